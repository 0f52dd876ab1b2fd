"""MASPO's gate: by hand, by a loop, at the edges."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from gar.core import maspo_weights


def row(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


# Old probability 1/8 in all four quadrants: m = 8^0.3 = 1.8660660. Ratio 2 or 1/2, advantage 2 or -2.
OLD = row(*[math.log(0.125)] * 4)
NEW = row(*[math.log(p) for p in (0.25, 0.0625, 0.25, 0.0625)])
ADVANTAGES = row(2.0, 2.0, -2.0, -2.0)


def test_maspo_weights_of_the_four_quadrants_by_hand():
    # Up and already up: sigma 1.866066 * 1.06, exp(-1 / (2 * 3.912602)) = 0.880036.
    # Down and already down: sigma 1.866066 / 1.06, exp(-0.25 / (2 * 3.099148)) = 0.960469.
    found = maspo_weights(NEW, OLD, ADVANTAGES)
    torch.testing.assert_close(found, row(0.880036, 1.0, 1.0, 0.960469), rtol=1e-6, atol=0)


def weight_by_loop(new: float, old: float, a: float) -> float:
    """The released code's order of operations and its constants, one token at a time."""
    ratio = math.exp(min(max(new - old, -20.0), 20.0))
    width = min(max(1.0 / math.exp(old) ** 0.3, 1.0), 10.0)
    if a > 0 and ratio > 1:
        sigma = width * min(max(1 + 0.03 * a, 0.1), 10.0)
    elif a < 0 and ratio < 1:
        sigma = width * min(max(1 / (1 - 0.03 * a), 0.1), 10.0)
    else:
        return 1.0
    return math.exp(-((ratio - 1) ** 2) / 2 / sigma**2)


# sigma is clamped at A = 300, where 1 + 0.03 A = 10, at -300, and at p_old = 10^(-1 / 0.3). Rounding may give p > 1.
CLAMPED = [
    (math.log(3), 0.0, 299.0), (math.log(3), 0.0, 301.0), (math.log(3), 0.0, 1e30),
    (-1.0, 0.0, -299.0), (-1.0, 0.0, -301.0), (-1.0, 0.0, -1e30), (1.0, 1e-3, 1e-12),
    (-7.0, math.log(10) * -3.3, 1e-12), (-7.0, math.log(10) * -3.34, 1e-12), (-700.0, -701.0, 1e-12),
]  # fmt: skip


@given(tokens=st.lists(st.tuples(st.floats(-30, 0), st.floats(-30, 0), st.floats(-500, 500)), max_size=12))
@example(tokens=CLAMPED)
def test_maspo_weights_agree_with_a_loop(tokens):
    new, old, advantages = torch.tensor(tokens, dtype=torch.float64).reshape(-1, 3).T[:, None]
    weights = maspo_weights(new, old, advantages)
    for t, token in enumerate(tokens):
        # An exponent of up to 1e16 amplifies rounding, but then the weight is 0.
        assert weights[0, t].item() == pytest.approx(weight_by_loop(*token), rel=1e-9, abs=1e-12)


@pytest.mark.usefixtures("unchecked")
def test_maspo_weights_have_no_gradient_one_shape_and_no_infinity():
    assert not maspo_weights(NEW.clone().requires_grad_(), OLD, ADVANTAGES).requires_grad
    assert maspo_weights(NEW, NEW, ADVANTAGES).eq(1).all()
    weights = maspo_weights(NEW.reshape(2, 2), OLD.reshape(2, 2), row(2.0, -2.0).T)  # one advantage per response
    assert torch.equal(weights.flatten(), maspo_weights(NEW, OLD, ADVANTAGES)[0])
    for dtype in (torch.bfloat16, torch.float32):
        new = torch.tensor([[0.0, -1e4, -0.0, -1e30, 0.0]], dtype=dtype)
        old = torch.tensor([[-1e4, 0.0, -0.0, -1e4, -1.0]], dtype=dtype)
        for advantage in (-1e4, 0.0, 1 / 0.03, 1e4):  # 1 - 0.03 A is 0 at the third
            weights = maspo_weights(new, old, torch.full((1, 1), advantage, dtype=torch.float64))
            assert weights.dtype == torch.float32  # advantages do not widen it
            assert weights.isfinite().all()
    two = row(0.0, 0.0)
    for arguments, text in (((two, OLD, two), "log-probabilities"), ((two, two, two[0]), "advantages")):
        with pytest.raises(ValueError, match=text):
            maspo_weights(*arguments)
