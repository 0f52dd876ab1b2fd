"""Token attribution: shares against autograd, and their sum against the alignment."""

from typing import Any

import pytest
import torch

from gar.core import Budget, Head, ScoredTokens, Signal, alignment_scores, alignment_shares, unit_rows
from tests.core.conftest import Case, autograd_means, make_case, unit_vectors

HEAD = {
    "plain": {},
    "gradient": {"signal": "gradient"},
    "hidden": {"signal": "hidden"},
    "thresholds": {"activation_threshold": 0.3},
    "cold": {"temperature": 0.5},
    "softcap": {"logit_softcap": 3.0, "logit_scale": 0.7},
}


def shares_of(
    case: Case,
    anchors: torch.Tensor,
    signal: Any = "gradient-activation",
    activation_threshold: float = 0.0,
    chunk_tokens: int | None = None,
    **head: Any,
) -> torch.Tensor:
    return alignment_shares(
        ScoredTokens(case.hidden, case.target_ids, case.response_index, len(anchors)),
        Head(case.weight, **head),
        anchors,
        Signal(signal, activation_threshold),
        Budget(chunk_tokens=chunk_tokens),
    )


def random_anchors(responses: int) -> torch.Tensor:
    return unit_rows(make_case(seed=9).hidden[:responses].float())


@pytest.mark.parametrize("options", HEAD.values(), ids=HEAD)
def test_alignment_shares_agree_with_autograd_and_add_up_to_the_alignment(options):
    """Second route: a response of one token has its u_t as its mean."""
    case, anchors = make_case(tokens=60, responses=5, peak=2.0), random_anchors(5)
    index = case.response_index
    u = autograd_means(case._replace(response_index=torch.arange(60)), num_responses=60, **options)
    sums = torch.zeros(5, 8, dtype=torch.float64).index_add_(0, index, u)
    expected = (u * anchors[index].double()).sum(-1) / sums.norm(dim=-1)[index]
    alignment = alignment_scores(unit_vectors(*case, num_responses=5, **options), anchors)
    for chunk_tokens in (None, 1, 7):
        shares = shares_of(case, anchors, chunk_tokens=chunk_tokens, **options)
        assert shares.dtype == torch.float32
        found = shares.double()
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
        added = torch.zeros(5, dtype=torch.float64).index_add_(0, index, found)
        torch.testing.assert_close(added.float(), alignment, rtol=0, atol=5e-7)


def test_alignment_shares_without_signal_are_zero_and_leave_the_others():
    case, anchors = make_case(responses=3), random_anchors(3)
    whole = shares_of(case, anchors)
    anchors[1] = 0.0
    case.hidden[case.response_index == 2] = torch.nan
    found = shares_of(case, anchors)
    first = case.response_index == 0
    assert torch.equal(found[first], whole[first])
    assert found[~first].count_nonzero() == 0
    case.hidden[first] = 2e-9  # its mean has no direction by `unit_rows`, though its sum would
    assert shares_of(case, anchors, signal="hidden").count_nonzero() == 0
    nothing = torch.zeros(0, dtype=torch.long)
    assert shares_of(Case(case.hidden[:0], case.weight, nothing, nothing), anchors).shape == (0,)
