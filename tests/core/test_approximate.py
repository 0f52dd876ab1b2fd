"""Means without unlikely token ids and nearly certain tokens: what is left out, and that the bound holds."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.core.approximate import ApproximateMeans, Thresholds, approximate_means, largest_angles
from gar.core.gradients import gradient_activation_means
from tests.core.conftest import Case, _make_case

RESPONSES = 4
HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gradient": {"signal": "gradient"},
    "all": {
        "temperature": 1.3, "logit_scale": 0.6, "logit_softcap": 3.0, "activation_threshold": 0.3,
        "bias": torch.linspace(-2, 2, 37).double(),
    },
}  # fmt: skip


def approximate(case: Case, sparse: float = 0.0, gate: float = 0.0, **settings: Any) -> ApproximateMeans:
    thresholds = Thresholds(sparse, gate)
    return approximate_means(*case, num_responses=RESPONSES, thresholds=thresholds, **settings)


def exact(case: Case, **settings: Any) -> Tensor:
    return gradient_activation_means(*case, num_responses=RESPONSES, **settings).double()


def left_out_by_hand(case: Case, sparse: float, gate: float) -> Tensor:
    """The definition, token by token, with small probabilities set to zero."""
    sums = torch.zeros(RESPONSES, case.hidden.shape[1], dtype=torch.float64)
    for h, y, r in zip(case.hidden, case.target_ids, case.response_index, strict=True):
        p = (case.weight @ h).softmax(0)
        others = torch.where(p >= sparse, p, 0.0)
        others[y] = 0.0
        if 1 - p[y] >= gate:
            sums[r] += (others @ case.weight - (1 - p[y]) * case.weight[y]) * h
    return sums / torch.bincount(case.response_index, minlength=RESPONSES)[:, None]


@pytest.mark.parametrize("settings", HEADS.values(), ids=HEADS)
def test_approximate_means_without_thresholds_are_the_means(settings):
    case = _make_case()
    found = approximate(case, **settings)
    torch.testing.assert_close(found.means.double(), exact(case, **settings), rtol=1e-6, atol=1e-7)
    assert torch.equal(found.bounds, torch.zeros(RESPONSES, dtype=torch.float64))


@pytest.mark.parametrize(("sparse", "gate"), [(0.01, 0.0), (0.0, 0.5), (0.02, 0.3)])
def test_approximate_means_leave_out_what_the_thresholds_say(sparse, gate):
    case = _make_case(tokens=60, peak=4.0)
    found = approximate(case, sparse, gate).means.double()
    torch.testing.assert_close(found, left_out_by_hand(case, sparse, gate), rtol=1e-6, atol=1e-7)
    assert not torch.allclose(found, exact(case), rtol=1e-4)


@given(
    seed=st.integers(0, 50),
    sparse=st.floats(0, 0.2),
    gate=st.floats(0, 0.9),
    settings=st.sampled_from(list(HEADS.values())),
)
def test_approximate_means_stay_within_their_bound(seed, sparse, gate, settings):
    case = _make_case(seed=seed, peak=3.0)
    found, truth = approximate(case, sparse, gate, **settings), exact(case, **settings)
    assert bool(((found.means - truth).norm(dim=-1) <= found.bounds + 1e-6).all())
    cosines = torch.nn.functional.cosine_similarity(found.means.double(), truth, dim=-1).clamp(-1, 1)
    empty = truth.norm(dim=-1) == 0
    assert bool(((cosines.acos() <= largest_angles(found.means, found.bounds) + 1e-3) | empty).all())


def test_approximate_means_bound_is_tight_for_one_id_that_points_one_way():
    """p = (0.88, 0.12, 0.00001) and h along the first axis: the id left out is the one with the largest entry."""
    case = Case(
        torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0], [-9.0, 0.0]]), torch.tensor([0]),
        torch.tensor([0]),
    )  # fmt: skip
    found = approximate(case, 0.01)
    error = float((found.means.double() - exact(case)).norm(dim=-1)[0])
    assert error == pytest.approx(float(found.bounds[0]), rel=1e-3)
    assert error == pytest.approx(9 * math.exp(-9) / (math.exp(2) + 1), rel=1e-3)


@pytest.mark.parametrize("settings", [{}, {"precision": "storage"}], ids=["float32", "storage"])
def test_approximate_means_of_a_bfloat16_head(settings):
    case = _make_case(tokens=200, hidden=64, vocab=500, peak=4.0)
    case = case._replace(hidden=case.hidden.bfloat16(), weight=case.weight.bfloat16())
    found = approximate(case, 2.0**-12, **settings).means
    loss = 1 - torch.nn.functional.cosine_similarity(found, exact(case).float(), dim=-1)
    assert float(loss.max()) < (1e-3 if settings else 1e-5)


@pytest.mark.parametrize("memory", [1000, 4000])
def test_approximate_means_do_not_depend_on_the_memory(memory):
    case = _make_case(peak=4.0)
    few, many = approximate(case, 0.02, 0.3, memory_bytes=memory), approximate(case, 0.02, 0.3)
    torch.testing.assert_close(few.means, many.means, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(few.bounds, many.bounds)


def test_approximate_means_are_the_same_dense_and_sparse(monkeypatch):
    case = _make_case(peak=4.0)
    found = []
    for share in (0.0, 1.0):  # always dense, always sparse
        monkeypatch.setattr("gar.core.approximate._DENSE_SHARE", share)
        found.append(approximate(case, 0.02).means)
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-7)


def test_approximate_means_let_what_is_not_finite_show():
    case = _make_case()
    case.hidden[case.response_index == 2] = torch.nan
    found = approximate(case, 0.01, 0.9)
    assert bool(found.means[2].isnan().all())
    assert float(largest_angles(found.means, found.bounds)[2]) == pytest.approx(math.pi)
    assert bool(found.means[[0, 1, 3]].isfinite().all())


@pytest.mark.parametrize("size", [1.0, 300.0], ids=["certain", "absurd"])
def test_approximate_means_of_certain_and_hopeless_tokens_are_finite(size):
    case = _make_case(hidden=64)
    rows = case.weight[case.target_ids]
    sign = torch.where(torch.arange(len(rows)) % 3 == 0, -1.0, 1.0)[:, None]
    case = case._replace(hidden=(size * sign * 25.0 * rows / rows.square().sum(-1, keepdim=True)).float())
    found = approximate(case._replace(weight=case.weight.float()), 0.01)
    assert bool(found.means.isfinite().all())
    assert bool(found.bounds.isfinite().all())


def test_approximate_means_without_a_token_are_zero():
    none = torch.zeros(0, dtype=torch.long)
    found = approximate(Case(torch.zeros(0, 2), torch.ones(5, 2), none, none), 0.1, 0.1)
    assert torch.equal(found.means, torch.zeros(RESPONSES, 2))
    assert torch.equal(largest_angles(found.means, found.bounds), torch.zeros(RESPONSES, dtype=torch.float64))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"thresholds": Thresholds(sparse=1.0)}, r"thresholds.sparse must lie in \[0, 1\), got 1.0"),
        ({"thresholds": Thresholds(gate=-0.1)}, r"thresholds.gate must lie in \[0, 1\), got -0.1"),
        ({"signal": "hidden"}, "signal must be gradient-activation or gradient, got 'hidden'"),
        ({"memory_bytes": 50_000}, "memory_bytes must be at least 60000 for a row of logits with 5000 token ids, got"),
        ({"temperature": 0.0}, "temperature must be positive"),
    ],
)
def test_approximate_means_refuse(change, text):
    arguments: dict[str, Any] = {"num_responses": RESPONSES, "thresholds": Thresholds(0.1, 0.1)}
    case = _make_case(vocab=5000)
    case = case._replace(hidden=case.hidden.float(), weight=case.weight.float())
    with pytest.raises(ValueError, match=text):
        approximate_means(*case, **arguments | change)
