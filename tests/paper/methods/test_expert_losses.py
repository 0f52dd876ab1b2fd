"""LUFFY's tokens and CHORD's weight: by hand, against float64 and autograd, at the ends."""

import math

import pytest
import torch

from paper.methods.expert_losses import imitation_weight, off_policy_token_losses


def test_off_policy_token_losses_by_hand():
    probabilities = torch.tensor([[0.1, 0.9, 0.3], [0.1, 0.9, 1.0]], dtype=torch.float64)
    losses = off_policy_token_losses(probabilities.log(), torch.tensor([[2.0], [-1.0]], dtype=torch.float64))
    # 0.1/0.2, 0.9/1, 0.3/0.4, and 1/1.1
    expected = torch.tensor([[-1.0, -1.8, -1.5], [0.5, 0.9, 1 / 1.1]], dtype=torch.float64)
    torch.testing.assert_close(losses, expected, rtol=1e-14, atol=0)  # a few roundings of float64


@pytest.mark.parametrize("gamma", [0.1, 0.5])
def test_off_policy_token_losses_have_the_stated_gradient(gamma):
    log_probs = torch.linspace(-30, 0, 61, dtype=torch.float64)[None].requires_grad_()
    advantages = torch.tensor([[1.5]], dtype=torch.float64, requires_grad=True)
    off_policy_token_losses(log_probs, advantages, gamma=gamma).sum().backward()
    p = log_probs.detach().exp()
    torch.testing.assert_close(log_probs.grad, -1.5 * gamma * p / (p + gamma) ** 2, rtol=1e-12, atol=0)
    assert advantages.grad is None


def test_off_policy_token_losses_in_float32_agree_with_float64_down_to_vanishing_probabilities():
    log_probs = torch.tensor([[-80.0, -20.0, -2.3, -1e-6, 0.0]])
    exact = off_policy_token_losses(log_probs.double(), torch.ones(1, 1, dtype=torch.float64))
    found = off_policy_token_losses(log_probs, torch.ones(1, 1))
    # The argument of the sigmoid is rounded at 2^-24 of up to 80, which is its relative error.
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=0)
    assert (found < 0).all()


def test_off_policy_token_losses_refuse_a_gamma_that_is_not_positive():
    for gamma in (0.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="gamma must be positive"):
            off_policy_token_losses(torch.zeros(1, 1), torch.ones(1, 1), gamma=gamma)


def test_imitation_weight_by_hand():
    assert imitation_weight(0, 200) == pytest.approx(0.9, abs=1e-15)
    assert imitation_weight(100, 200) == pytest.approx((0.9 + 0.05) / 2, abs=1e-15)
    assert imitation_weight(50, 200) == pytest.approx(0.05 + 0.85 * (1 + math.sqrt(0.5)) / 2, abs=1e-15)
    assert imitation_weight(200, 200) == imitation_weight(10**6, 200) == imitation_weight(0, 0) == 0.05
    weights = [imitation_weight(step, 30, peak=1.0, valley=0.0) for step in range(40)]
    assert weights == sorted(weights, reverse=True)
    assert (weights[0], weights[30]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-1, 5), "steps must not be negative"),
        ((1, -5), "steps must not be negative"),
        ((1, 5, 0.1, 0.2), "0 <= valley <= peak <= 1, got 0.2 and 0.1"),
        ((1, 5, 1.5, 0.2), "0 <= valley <= peak <= 1"),
    ],
)
def test_imitation_weight_refuses(arguments, words):
    step, decay_steps, *ends = arguments
    with pytest.raises(ValueError, match=words):
        imitation_weight(step, decay_steps, **dict(zip(("peak", "valley"), ends, strict=False)))
