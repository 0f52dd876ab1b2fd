"""The closed form from logits that exist already, against autograd and against the form that makes its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.core import gradient_activation_means, unit_rows
from gar.core.arguments import Head, ScoredTokens, Signal
from gar.core.from_logits import means_from_logits
from tests.core.conftest import Case, _autograd_means, _make_case
from tests.ranks import run_ranks

RESPONSES = 4
HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "all": {"temperature": 1.3, "logit_scale": 0.6, "logit_softcap": 3.0},
    "gradient": {"signal": "gradient"},
    "hidden": {"signal": "hidden"},
    "thresholds": {"activation_threshold": 0.3, "keep_fraction": [0.3, 1.0, 0.5, 0.01]},
}


def from_logits(
    case: Case,
    raw_logits: Tensor | None = None,
    *,
    signal: str = "gradient-activation",
    activation_threshold: float = 0.0,
    keep_fraction: Any = 1.0,
    chunk_tokens: int | None = None,
    context_group: Any = None,
    **head: Any,
) -> Tensor:
    """The case's rows of logits lie among others, whose values must not matter; or `raw_logits`, in order."""
    positions = torch.arange(len(case.hidden))
    if raw_logits is None:
        order = torch.randperm(len(case.hidden) + 9, generator=torch.Generator().manual_seed(1))
        positions = order[: len(case.hidden)]
        raw_logits = case.hidden.new_full((len(order), len(case.weight)), torch.nan)
        raw_logits[positions] = torch.nn.functional.linear(case.hidden, case.weight, head.get("bias"))
    return means_from_logits(
        ScoredTokens(case.hidden, case.target_ids, case.response_index, RESPONSES),
        raw_logits,
        positions,
        Head(case.weight, **head),
        Signal(signal, activation_threshold, torch.as_tensor(keep_fraction, dtype=torch.float64)),
        chunk_tokens=chunk_tokens,
        context_group=context_group,
    )


@pytest.mark.parametrize("settings", HEADS.values(), ids=HEADS)
def test_means_from_logits_equals_autograd(settings):
    case = _make_case()
    expected = _autograd_means(case, num_responses=RESPONSES, **settings)
    # 1e-7: the result is rounded to float32.
    torch.testing.assert_close(from_logits(case, **settings).double(), expected, rtol=1e-6, atol=1e-7)


def test_means_from_logits_counts_the_bias_that_the_logits_hold():
    case, bias = _make_case(), torch.linspace(-2, 2, 37).double()
    expected = _autograd_means(case, num_responses=RESPONSES, bias=bias)
    torch.testing.assert_close(from_logits(case, bias=bias).double(), expected, rtol=1e-6, atol=1e-7)


def test_means_from_logits_on_a_worked_example():
    # Logits (0, ln 3, ln 4): p = (1, 3, 4) / 8. u = W^T (p - e_1) = (1/8, -5/8, 4/8) for W = identity, times h.
    tokens = ScoredTokens(torch.tensor([[8.0, 16.0, -8.0]]), torch.tensor([1]), torch.tensor([0]), 2)
    raw = torch.tensor([[1.0, 3.0, 4.0]]).log()
    u = means_from_logits(tokens, raw, torch.tensor([0]), Head(torch.eye(3)), Signal())
    torch.testing.assert_close(u, torch.tensor([[1.0, -10.0, -4.0], [0.0, 0.0, 0.0]]))


def test_means_from_logits_leaves_the_logits_as_they_are():
    case = _make_case()
    raw = case.hidden @ case.weight.T
    before = raw.clone()
    from_logits(case, raw, temperature=2.0, logit_softcap=3.0)
    assert torch.equal(raw, before)


@given(chunk=st.integers(1, 30), temperature=st.floats(0.3, 3))
def test_means_from_logits_does_not_depend_on_the_chunk(chunk, temperature):
    case = _make_case()
    torch.testing.assert_close(
        from_logits(case, chunk_tokens=chunk, temperature=temperature),
        from_logits(case, temperature=temperature),
        rtol=1e-6, atol=1e-7,
    )  # fmt: skip


@pytest.mark.parametrize("size", [1.0, 300.0], ids=["certain", "absurd"])
def test_means_from_logits_keeps_its_digits_on_confident_and_on_hopeless_tokens(size):
    """p_y rounds to 1, or log p_y lies in the hundreds: float32 from float32 logits, against float64 from the same."""
    case = _make_case(hidden=64)
    rows = case.weight[case.target_ids]
    sign = torch.ones(len(rows), 1, dtype=torch.float64)
    sign[::3] = -1.0
    case = case._replace(hidden=size * sign * 25.0 * rows / rows.square().sum(-1, keepdim=True))
    single = Case(*(part.float() if part.is_floating_point() else part for part in case))
    exact = Case(*(part.double() if part.is_floating_point() else part for part in single))
    raw = (single.hidden @ single.weight.T).double()  # the same logits for both
    expected, found = (from_logits(used, raw.to(used.hidden.dtype)) for used in (exact, single))
    assert bool((expected.norm(dim=-1) > 0).all())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=float(expected.abs().max()) * 1e-6)


def test_means_from_logits_in_bfloat16_is_not_worse_than_plain_bfloat16():
    """Float32 truth, plain bfloat16, ours."""
    case = _make_case(tokens=200, hidden=64, vocab=500, peak=4.0)
    half = Case(*(part.bfloat16() if part.is_floating_point() else part for part in case))
    truth = gradient_activation_means(*(p.double() if p.is_floating_point() else p for p in half), num_responses=4)
    raw = half.hidden @ half.weight.T
    p = raw.softmax(-1)
    p[torch.arange(200), half.target_ids] -= 1.0
    u = (p @ half.weight) * half.hidden
    plain = torch.zeros(4, 64).index_add_(0, half.response_index, u.float())
    loss = [1 - (unit_rows(means) * unit_rows(truth)).sum(-1) for means in (from_logits(half), plain)]
    assert bool((loss[0] <= loss[1] + 1e-6).all())
    assert float(loss[0].max()) < 1e-3  # what logits of 8 bits leave


def test_means_from_logits_without_a_token_is_zero():
    none = torch.zeros(0, dtype=torch.long)
    tokens = ScoredTokens(torch.zeros(0, 2), none, none, 2)
    found = means_from_logits(tokens, torch.ones(3, 5), none, Head(torch.ones(5, 2)), Signal())
    assert torch.equal(found, torch.zeros(2, 2))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"raw_logits": torch.ones(3, 4)}, r"raw_logits must have shape .* expected 5 columns, got \(3, 4\)"),
        ({"positions": torch.tensor([3])}, r"positions must lie in \[0, 3\), got 3 to 3"),
        ({"target_ids": torch.tensor([5])}, r"target_ids must lie in \[0, 5\), got 5 to 5"),
        ({"response_index": torch.tensor([-1])}, r"response_index must lie in \[0, 2\), got -1 to -1"),
        ({"temperature": 0.0}, "temperature must be positive, got 0"),
    ],
)
def test_means_from_logits_refuses(change, text):
    values = {"raw_logits": torch.ones(3, 5), "temperature": 1.0}
    values |= dict.fromkeys(("positions", "target_ids", "response_index"), torch.tensor([0])) | change
    tokens = ScoredTokens(torch.ones(1, 2), values["target_ids"], values["response_index"], 2)
    head = Head(torch.ones(5, 2), temperature=values["temperature"])
    with pytest.raises(ValueError, match=text):
        means_from_logits(tokens, values["raw_logits"], values["positions"], head, Signal())


def _one_rank_of_a_split_context() -> Tensor:
    case = _make_case()
    mine = torch.arange(len(case.hidden)) % 2 == dist.get_rank()
    part = Case(case.hidden[mine], case.weight, case.target_ids[mine], case.response_index[mine])
    return torch.stack([from_logits(part, context_group=dist.group.WORLD, **HEADS[name]) for name in HEADS])


@pytest.mark.dist
def test_means_from_logits_adds_up_over_a_split_context(tmp_path: Path):
    whole = torch.stack([from_logits(_make_case(), **HEADS[name]) for name in HEADS])
    for found in run_ranks(_one_rank_of_a_split_context, 2, tmp_path / "ranks"):
        torch.testing.assert_close(found, whole, rtol=1e-6, atol=1e-7)
