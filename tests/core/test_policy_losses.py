"""MASPO's gate and loss, and the k2 loss: by hand, by a loop, by finite differences, at the clamps."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.core import SoftGate, k2_token_losses, maspo_token_losses, maspo_weights


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


def test_maspo_token_losses_of_the_four_quadrants_by_hand():
    found = maspo_token_losses(NEW, OLD, ADVANTAGES, maspo_weights(NEW, OLD, ADVANTAGES))
    torch.testing.assert_close(found, row(-3.520145, -1.0, 4.0, 0.960469), rtol=1e-6, atol=0)


def test_k2_token_losses_by_hand():
    log_probs = row(-1.0, -2.0, -5.0).requires_grad_()
    losses = k2_token_losses(log_probs, row(-3.0, -2.0, -1.0))
    assert losses.tolist() == [[2.0, 0.0, 8.0]]
    losses.sum().backward()
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == [[2.0, 0.0, -4.0]]


def test_k2_token_losses_have_the_gradient_of_the_kl_divergence():
    """Summed over all tokens of a small vocabulary, weighted by their probability: no sampling noise."""
    generator = torch.Generator().manual_seed(0)
    logits, other = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    logits.requires_grad_()
    policy, reference = logits.log_softmax(-1), other.log_softmax(-1)
    divergence = (policy.exp() * (policy - reference)).sum()
    (expected,) = torch.autograd.grad(divergence, logits, retain_graph=True)
    losses = k2_token_losses(policy[None], reference[None])[0]
    (found,) = torch.autograd.grad((policy.exp().detach() * losses).sum(), logits)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)


def weight_by_loop(new: float, old: float, a: float, s: dict[str, float]) -> float:
    """The released code's order of operations, one token at a time."""
    ratio = math.exp(min(max(new - old, -20.0), 20.0))
    width = min(max(s["sigma_base"] / math.exp(old) ** s["alpha"], s["sigma_base"]), s["sigma_high"])
    if a > 0 and ratio > 1:
        sigma = width * min(max(1 + s["beta_pos"] * a, s["a_low"]), s["a_high"])
    elif a < 0 and ratio < 1:
        sigma = width * min(max(1 / (1 - s["beta_neg"] * a), s["a_low"]), s["a_high"])
    else:
        return 1.0
    return math.exp(-((ratio - 1) ** 2) / 2 / sigma**2)


RELEASED = {
    "sigma_base": 1.0, "alpha": 0.3, "sigma_high": 10.0, "a_low": 0.1, "a_high": 10.0, "beta_pos": 0.03,
    "beta_neg": 0.03,
}  # fmt: skip
OTHERS = {
    "sigma_base": 0.5, "alpha": 0.5, "sigma_high": 2.0, "a_low": 0.8, "a_high": 1.1, "beta_pos": 0.2, "beta_neg": 0.4,
}  # fmt: skip
TOKENS = st.lists(st.tuples(st.floats(-30, 0), st.floats(-30, 0), st.floats(-500, 500)), max_size=12)


@given(tokens=TOKENS, settings=st.sampled_from([RELEASED, OTHERS]))
def test_maspo_agrees_with_a_loop(tokens, settings):
    new, old, advantages = torch.tensor(tokens, dtype=torch.float64).reshape(-1, 3).T[:, None]
    weights = maspo_weights(new, old, advantages, SoftGate(**settings))
    losses = maspo_token_losses(new, old, advantages, weights)
    for t, (n, o, a) in enumerate(tokens):
        expected = weight_by_loop(n, o, a, settings)
        # An exponent of up to 1e16 amplifies rounding, but then the weight is 0.
        assert weights[0, t].item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
        ratio = math.exp(min(max(n - o, -20.0), 20.0))
        assert losses[0, t].item() == pytest.approx(-a * expected * ratio, rel=1e-9, abs=1e-9)


def test_maspo_weights_default_to_the_released_settings():
    assert torch.equal(maspo_weights(NEW, OLD, ADVANTAGES), maspo_weights(NEW, OLD, ADVANTAGES, SoftGate(**RELEASED)))


@pytest.mark.parametrize(
    ("advantage", "new", "factor"),
    # Old probability 1, so m = 1. 1 + 0.03 A reaches 10 at A = 300; 1 / (1 - 0.03 A) reaches 0.1 at A = -300.
    [(299.0, 1.0, 9.97), (300.0, 1.0, 10.0), (301.0, 1.0, 10.0), (1e30, 1.0, 10.0),
     (-299.0, -1.0, 1 / 9.97), (-300.0, -1.0, 0.1), (-301.0, -1.0, 0.1), (-1e30, -1.0, 0.1)],
)  # fmt: skip
def test_maspo_weights_clamp_the_factor_of_the_advantage(advantage, new, factor):
    found = maspo_weights(row(new), row(0.0), row(advantage))
    expected = math.exp(-((math.exp(new) - 1) ** 2) / (2 * factor**2))
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("old_log_prob", "width"),
    # m reaches sigma_high = 10 at p = 10^(-1 / 0.3); a probability above 1 by rounding keeps sigma_base.
    [(0.0, 1.0), (1e-3, 1.0), (math.log(1e-3), 10**0.9), (math.log(10) * -3.3, 10**0.99),
     (math.log(10) * -3.34, 10.0), (-1e4, 10.0), (-1e30, 10.0)],
)  # fmt: skip
def test_maspo_weights_clamp_the_width(old_log_prob, width):
    found = maspo_weights(row(old_log_prob + math.log(3)), row(old_log_prob), row(1e-12))
    ratio = 3.0 if old_log_prob > -1e20 else 1.0  # log 3 is lost beside 1e30
    assert found.item() == pytest.approx(math.exp(-((ratio - 1) ** 2) / (2 * width**2)), rel=1e-9)


def test_maspo_weights_do_not_divide_by_zero_where_only_the_other_sign_would():
    assert maspo_weights(row(0.0, -1.0), row(-1.0, 0.0), row(1 / 0.03, 1 / 0.03)).isfinite().all()


def test_maspo_gradient_agrees_with_finite_differences_with_the_gate_held_fixed():
    generator = torch.Generator().manual_seed(3)
    old, step = torch.randn(2, 4, 9, generator=generator, dtype=torch.float64)
    old, advantages = -old.abs() - 1.0, torch.randn(4, 9, generator=generator, dtype=torch.float64)
    new = (old + step).requires_grad_()
    weights = maspo_weights(new, old, advantages)
    assert (weights < 1).any()
    (found,) = torch.autograd.grad(maspo_token_losses(new, old, advantages, weights).sum(), new)
    h = 1e-6
    ahead, behind = (maspo_token_losses(new.detach() + d, old, advantages, weights) for d in (h, -h))
    # Central differences: h^2 of the third derivative, 1e-16 / h of rounding
    torch.testing.assert_close(found, (ahead - behind) / (2 * h), rtol=1e-8, atol=1e-9)
    # And in closed form: the loss is linear in rho, whose derivative is rho.
    torch.testing.assert_close(found, -advantages * weights * step.exp(), rtol=1e-12, atol=0)


def test_maspo_gradient_flows_neither_through_the_gate_nor_through_the_old_policy():
    new, old = (x.clone().requires_grad_() for x in (NEW, OLD))
    weights = maspo_weights(new, old, ADVANTAGES)
    assert not weights.requires_grad
    ones = torch.ones(1, 4).double().requires_grad_()
    maspo_token_losses(new, old, ADVANTAGES, ones).sum().backward()
    assert old.grad is None
    assert ones.grad is None
    assert new.grad is not None


def test_maspo_at_ratio_1_is_the_plain_policy_gradient():
    log_probs = row(-0.1, -3.0, -9.0).requires_grad_()
    advantages = row(2.0, -1.5, 0.0)
    weights = maspo_weights(log_probs, log_probs, advantages)
    assert weights.eq(1).all()
    (found,) = torch.autograd.grad(maspo_token_losses(log_probs, log_probs, advantages, weights).sum(), log_probs)
    (plain,) = torch.autograd.grad((-advantages * log_probs).sum(), log_probs)
    assert torch.equal(found, plain)


@pytest.mark.parametrize(("log_ratio", "slope"), [(19.9, 1.0), (20.1, 0.0), (-19.9, 1.0), (-20.1, 0.0)])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_maspo_has_no_gradient_where_the_log_ratio_is_clipped(log_ratio, slope, advantage):
    new = row(log_ratio).requires_grad_()
    losses = maspo_token_losses(new, row(0.0), row(advantage), row(1.0))
    losses.sum().backward()
    clipped = min(max(log_ratio, -20.0), 20.0)
    assert losses.item() == pytest.approx(-advantage * math.exp(clipped), rel=1e-12)
    assert new.grad is not None
    assert new.grad.item() == pytest.approx(-advantage * slope * math.exp(clipped), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("advantage", [-1e4, 0.0, 1e4])
def test_maspo_stays_finite_at_extreme_ratios(dtype, advantage):
    new = torch.tensor([[0.0, -1e4, -0.0, -1e30]], dtype=dtype, requires_grad=True)
    old = torch.tensor([[-1e4, 0.0, -0.0, -1e4]], dtype=dtype)
    advantages = torch.full((1, 1), advantage)
    weights = maspo_weights(new, old, advantages)
    losses = maspo_token_losses(new, old, advantages, weights)
    losses.sum().backward()
    assert losses.dtype == weights.dtype == torch.float32
    assert new.grad is not None
    assert losses.isfinite().all()
    assert new.grad.isfinite().all()


def test_losses_pass_nan_on():
    nan = row(math.nan)
    for new, old, advantage in ((nan, row(0.0), row(1.0)), (row(0.0), nan, row(1.0)), (row(0.0), row(0.0), nan)):
        assert maspo_token_losses(new, old, advantage, maspo_weights(new, old, advantage)).isnan().all()
    assert k2_token_losses(nan, row(0.0)).isnan().all()


@given(tokens=st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0), st.floats(-9, 9)), min_size=1, max_size=8))
def test_maspo_weights_lie_between_0_and_1_and_leave_a_token_alone_that_moved_the_other_way(tokens):
    new, old, advantages = torch.tensor(tokens, dtype=torch.float64).T[:, None]
    weights = maspo_weights(new, old, advantages)
    assert ((weights >= 0) & (weights <= 1)).all()
    assert weights[(new - old) * advantages <= 0].eq(1).all()


def test_maspo_of_one_advantage_per_response_is_that_of_its_repetition():
    new, old = NEW.reshape(2, 2), OLD.reshape(2, 2)
    one, repeated = row(2.0, -2.0).T, ADVANTAGES.reshape(2, 2)
    weights = maspo_weights(new, old, one)
    assert torch.equal(weights, maspo_weights(new, old, repeated))
    assert torch.equal(maspo_token_losses(new, old, one, weights), maspo_token_losses(new, old, repeated, weights))


def test_maspo_in_float32_agrees_with_float64():
    weights = maspo_weights(NEW.float(), OLD.float(), ADVANTAGES)
    assert weights.dtype == torch.float32  # float64 advantages do not widen the loss
    losses = maspo_token_losses(NEW.float(), OLD.float(), ADVANTAGES, weights)
    assert losses.dtype == torch.float32
    expected = maspo_token_losses(NEW, OLD, ADVANTAGES, maspo_weights(NEW, OLD, ADVANTAGES))
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_losses_of_no_tokens_are_empty(shape):
    empty = torch.zeros(shape)
    assert maspo_token_losses(empty, empty, empty, maspo_weights(empty, empty, empty)).shape == shape
    assert k2_token_losses(empty, empty).shape == shape


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigma_base": 0.0}, "sigma_base must be finite and positive, got 0.0"),
        ({"alpha": -0.3}, "alpha must be finite and not negative, got -0.3"),
        ({"sigma_high": 0.5}, "sigma_high must be finite and at least sigma_base (1.0), got 0.5"),
        ({"a_low": 0.0}, "a_low must be finite and positive, got 0.0"),
        ({"a_high": 0.01}, "a_high must be finite and at least a_low (0.1), got 0.01"),
        ({"beta_pos": -1.0}, "beta_pos must be finite and not negative, got -1.0"),
        ({"beta_neg": -1.0}, "beta_neg must be finite and not negative, got -1.0"),
        ({"beta_neg": math.inf}, "beta_neg must be finite and not negative, got inf"),
    ],
)
def test_maspo_weights_refuse_a_setting_out_of_range(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        maspo_weights(NEW, OLD, ADVANTAGES, SoftGate(**changes))


@pytest.mark.usefixtures("unchecked")
def test_losses_refuse_shapes_that_differ():
    two = row(0.0, 0.0)
    message = "both log-probabilities must have one shape [responses, tokens], got (1, 2) and (1, 4)"
    for call in (maspo_weights, lambda new, old, a: maspo_token_losses(new, old, a, two)):
        with pytest.raises(ValueError, match=re.escape(message)):
            call(two, OLD, two)
        with pytest.raises(ValueError, match=r"advantages must have shape \(1, 2\) or \(1, 1\), got \(2,\)\. Does one"):
            call(two, two, two[0])
    with pytest.raises(ValueError, match=re.escape("weights must have shape (1, 2), got (1, 4)")):
        maspo_token_losses(two, two, two, OLD)
    with pytest.raises(ValueError, match=re.escape(message)):
        k2_token_losses(two, OLD)
