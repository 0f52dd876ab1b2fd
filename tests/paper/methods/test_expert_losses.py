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


def test_imitation_weight_by_hand():
    assert imitation_weight(0, 200) == pytest.approx(0.9, abs=1e-15)
    assert imitation_weight(100, 200) == pytest.approx((0.9 + 0.05) / 2, abs=1e-15)
    assert imitation_weight(50, 200) == pytest.approx(0.05 + 0.85 * (1 + math.sqrt(0.5)) / 2, abs=1e-15)
    assert imitation_weight(200, 200) == imitation_weight(10**6, 200) == imitation_weight(0, 0) == 0.05
    weights = [imitation_weight(step, 30, peak=1.0, valley=0.0) for step in range(40)]
    assert weights == sorted(weights, reverse=True)
    assert (weights[0], weights[30]) == (1.0, 0.0)
