"""Gradient-activation vectors: by hand, by a second route, at the limits and at the edges."""

import math

import pytest
import torch

from gar.core import gradient_activation_means, unit_rows
from gar.core import head as head_module
from tests.core.conftest import autograd_means, make_case

LN2 = math.log(2.0)
# Rows chosen so that h = (1, 1) has logits (ln 2, 0, 0) and so p = (1/2, 1/4, 1/4).
WEIGHT = torch.tensor([[LN2, 0.0], [-1.0, 1.0], [2.0, -2.0]], dtype=torch.float64)
# y = 1: p - e = (1/2, -3/4, 1/4). W^T (p - e) = (ln2/2 + 3/4 + 2/4, -3/4 - 2/4).
GRADIENT = torch.tensor([LN2 / 2 + 1.25, -1.25])


def means(hidden: list[list[float]], targets: list[int], weight: torch.Tensor = WEIGHT, **options) -> torch.Tensor:
    """All tokens in one response unless told otherwise."""
    index = options.pop("response_index", [0] * len(targets))
    return gradient_activation_means(
        torch.tensor(hidden, dtype=torch.float64), weight, torch.tensor(targets), torch.tensor(index),
        num_responses=max(index) + 1, **options,
    )  # fmt: skip


def test_gradient_activation_means_by_hand():
    # h = (1, 1), so u is the gradient itself. float32 output: 1e-7.
    torch.testing.assert_close(means([[1.0, 1.0]], [1]), GRADIENT[None], rtol=1e-7, atol=0)
    # Second token: h = (2, 2), logits (2 ln 2, 0, 0), p = (4, 1, 1)/6, y = 0, p - e = (-2, 1, 1)/6,
    # W^T (p - e) = (-ln2/3 + 1/6, -1/6), times h: (-2 ln2/3 + 1/3, -1/3). Then the mean of the two tokens.
    second = torch.tensor([-2 * LN2 / 3 + 1 / 3, -1 / 3])
    found = means([[1.0, 1.0], [2.0, 2.0]], [1, 0])
    torch.testing.assert_close(found, ((GRADIENT + second) / 2)[None], rtol=1e-6, atol=0)


def test_gradient_activation_means_are_the_slope_of_the_loss_by_a_gain_on_each_dimension():
    """What an alignment compares: not gradients by the weights, but by one factor for each hidden dimension."""
    hidden, targets = torch.tensor([[1.0, 1.0], [2.0, -0.5]], dtype=torch.float64), torch.tensor([1, 0])
    gain = torch.ones(2, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.cross_entropy((gain * hidden) @ WEIGHT.T, targets).backward()
    assert gain.grad is not None
    found = means(hidden.tolist(), targets.tolist())[0]
    torch.testing.assert_close(found, gain.grad.float(), rtol=1e-6, atol=0)  # float32 output


@pytest.mark.parametrize(("target", "expected"), [(1, (0.375, 1.25, -1.25)), (0, (-0.375, 0.25, -0.25))])
def test_gradient_activation_means_with_softcap_by_hand(target, expected):
    # cap 2 ln 2 and raw logit ln2 ln3 : tanh(ln3 / 2) = 1/2, so the logit is ln 2 and its slope 1 - 1/4.
    # Row 0 counts 3/4 (p_0 - e_0) ln2 ln3; the rows with logit 0 have slope 1.
    weight = WEIGHT.clone()
    weight[0, 0] = LN2 * math.log(3.0)
    slope_of_row_0, rest_0, rest_1 = expected
    by_hand = torch.tensor([slope_of_row_0 * LN2 * math.log(3.0) + rest_0, rest_1])
    found = means([[1.0, 1.0]], [target], weight, logit_softcap=2 * LN2)
    torch.testing.assert_close(found, by_hand[None], rtol=1e-6, atol=0)


def test_gradient_activation_means_activation_threshold_drops_small_dimensions_and_keeps_the_tie():
    weight = torch.zeros(3, 3, dtype=torch.float64)
    weight[0] = torch.tensor([3.0, 3.0, 3.0])  # h sums to 0, so p is uniform; y = 1: gradient = 3 * (1/3) = 1 each
    hidden = [[-1.0, 0.95, 0.05]]
    full = means(hidden, [1], weight)
    torch.testing.assert_close(full, torch.tensor([[-1.0, 0.95, 0.05]]))
    tie = means(hidden, [1], weight, activation_threshold=0.05)  # 0.05 is not below 0.05 * 1
    torch.testing.assert_close(tie, full)
    above = means(hidden, [1], weight, activation_threshold=0.06)
    torch.testing.assert_close(above, torch.tensor([[-1.0, 0.95, 0.0]]))


def test_gradient_activation_means_keep_fraction_averages_the_strongest_tokens_by_hand():
    # signal "hidden": u = h, so the norms are the numbers below. Response 0 has 3 tokens, ceil(0.5 * 3) = 2 stay:
    # 5 and 4, mean 4.5. Response 1 keeps all: (1 + 2) / 2.
    found = means(
        [[5.0, 0.0], [1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [4.0, 0.0]], [0] * 5, signal="hidden",
        response_index=[0, 1, 0, 1, 0], keep_fraction=torch.tensor([0.5, 1.0]),
    )  # fmt: skip
    assert found.tolist() == [[4.5, 0.0], [1.5, 0.0]]
    equal = means([[3.0, 4.0], [4.0, 3.0]], [0, 0], signal="hidden", keep_fraction=0.5)  # both have norm 5
    assert equal.tolist() == [[3.0, 4.0]]  # the earlier


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_activation_means_keep_fraction_of_ten_tokens_is_a_whole_number(dtype):
    # 0.6 in float32 is 0.60000002: without slack, ceil(0.60000002 * 10) would keep 7 tokens.
    hidden = [[float(t), 0.0] for t in range(1, 11)]
    for kept in (1, 2, 3, 6, 7, 9):
        keep_fraction = torch.tensor([kept / 10], dtype=dtype)
        found = means(hidden, [0] * 10, signal="hidden", keep_fraction=keep_fraction)
        assert found[0, 0].item() == pytest.approx(10 - (kept - 1) / 2)  # mean of the largest: 10, ..., 11 - kept


HEADS = {
    "plain": {},
    "bias": {"bias": True, "temperature": 1.3, "logit_scale": 0.6},
    "temperature": {"temperature": 0.7},
    "scale": {"logit_scale": 1.9},
    "softcap": {"logit_softcap": 2.5},
    "all": {"bias": True, "temperature": 1.3, "logit_scale": 0.6, "logit_softcap": 3.0},
}


@pytest.mark.parametrize("tile_rows", [None, 10, 37, 64], ids="tile {}".format)
@pytest.mark.parametrize("signal", ["gradient-activation", "gradient", "hidden"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # float64 inputs are worked in float64 throughout: only the output is rounded, to 6e-8. In float32 a logit of size
    # 4 carries 4 * 6e-8, and the sums over 8 dimensions and 37 tokens a few times that.
    [(torch.float64, 1e-7), (torch.float32, 3e-6)],
)
def test_gradient_activation_means_agree_with_autograd(monkeypatch, dtype, tolerance, head, signal, tile_rows):
    """Tiles of 10 leave 7 rows over, 37 fit exactly, 64 are more than there are."""
    case = make_case(peak=2.0)
    weight = case.weight.to(dtype)
    if tile_rows:
        monkeypatch.setattr(head_module, "_CPU_TILE", tile_rows)
        weight = case.weight.bfloat16()
    case = case._replace(hidden=case.hidden.to(dtype), weight=weight)
    options = dict(HEADS[head])
    if options.pop("bias", False):
        options["bias"] = torch.linspace(-2, 2, 37, dtype=dtype)
    truth = autograd_means(case, num_responses=4, signal=signal, **options)
    found = gradient_activation_means(*case, num_responses=4, signal=signal, **options)
    assert (found - truth).abs().max() <= tolerance * truth.abs().max()


def test_unit_rows_by_hand():
    small = [[3.0, -4.0], [0.0, 0.0], [1.01e-8, 0.0], [0.99e-8, 0.0]]
    broken = [[value, 1.0] for value in (math.nan, math.inf, -math.inf)]
    huge = [[3e38, 3e38]]  # its square is above float32
    found = unit_rows(torch.tensor(small + broken + huge)).tolist()
    assert found[:3] == [pytest.approx([0.6, -0.8]), [0.0, 0.0], [1.0, 0.0]]
    assert found[3:-1] == [[0.0, 0.0]] * 4
    assert found[-1] == pytest.approx([0.5**0.5] * 2)


REJECTED = [
    {"hidden": torch.ones(2, 3, 4)},
    {"lm_head_weight": torch.ones(4, 5)},
    {"lm_head_weight": torch.ones(5, 4, device="meta")},
    {"bias": torch.ones(1)},
    {"target_ids": torch.tensor([0, 1])},
    {"target_ids": torch.zeros(3, 1).long()},
    {"target_ids": torch.tensor([0, 5, 2])},
    {"target_ids": torch.tensor([-100, 1, 2])},
    {"response_index": torch.zeros(4).long()},
    {"response_index": torch.tensor([0, -1, 1])},
    {"response_index": torch.tensor([0, 2, 1])},
    {"signal": "gradient_activation"},
    {"temperature": 0.0},
    {"temperature": math.nan},
    {"logit_scale": 0.0},
    {"logit_softcap": 0.0},
    {"activation_threshold": 1.5},
    {"activation_threshold": -0.1},
    {"keep_fraction": 0.0},
    {"keep_fraction": torch.tensor([0.5, 1.5])},
    {"keep_fraction": math.nan},
    {"keep_fraction": torch.tensor([0.5, 0.5, 0.5])},
    {"chunk_tokens": 0},
    {"precision": "bfloat16"},
    {"memory_bytes": 100},
]


@pytest.mark.usefixtures("unchecked")
def test_gradient_activation_means_reject_a_bad_argument_by_its_name():
    arguments = {
        "hidden": torch.ones(3, 4), "lm_head_weight": torch.ones(5, 4), "target_ids": torch.tensor([0, 1, 2]),
        "response_index": torch.tensor([0, 1, 1]), "num_responses": 2,
    }  # fmt: skip
    gradient_activation_means(**arguments)
    for changes in REJECTED:
        with pytest.raises(ValueError, match=next(iter(changes))):
            gradient_activation_means(**arguments | changes)
