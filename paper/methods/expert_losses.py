"""Losses on expert solutions themselves, beside those on sampled responses: LUFFY's tokens, CHORD's weight."""

from math import cos, log, pi

import torch
from jaxtyping import Float
from torch import Tensor


def off_policy_token_losses(
    log_probs: Float[Tensor, "responses tokens"], advantages: Float[Tensor, "responses #tokens"], *, gamma: float = 0.1
) -> Float[Tensor, "responses tokens"]:
    """LUFFY's loss of tokens that the policy did not write: `-A p / (p + gamma)`, without a clip.

    `p` is the token's probability under the policy. The gradient is `-A gamma p / (p + gamma)^2` by log p.
    It is largest at `p = gamma`, and small for certain tokens and for very unlikely ones.

    Args:
        log_probs: Log-probabilities of the tokens under the policy.
        advantages: One per token, or one per solution with a last dimension of 1. No gradient flows through them.
        gamma: Probability at which a token's gradient has its largest weight.

    Raises:
        ValueError: gamma is not positive.

    References:
        LUFFY, arXiv 2504.14945, policy shaping with f(x) = x / (x + gamma). "p_div_p_0.1" in its released code.

    Example:
        >>> off_policy_token_losses(torch.tensor([[0.1, 0.9]]).log(), torch.tensor([[2.0]]))
        tensor([[-1.0000, -1.8000]])
    """
    if not gamma > 0:
        raise ValueError(f"gamma must be positive, got {gamma}")
    # p / (p + gamma) = sigmoid(log p - log gamma), which stays accurate for tiny p.
    return -advantages.detach() * torch.sigmoid(log_probs - log(gamma))


def imitation_weight(step: int, decay_steps: int, *, peak: float = 0.9, valley: float = 0.05) -> float:
    """CHORD's mu at an optimizer step: from `peak` at step 0 along half a cosine to `valley` at `decay_steps`.

    The loss of a step is `(1 - mu)` times that of the sampled responses plus `mu` times the negative
    log-likelihood of expert solutions.

    Raises:
        ValueError: A step is negative, or the weights are not `0 <= valley <= peak <= 1`.

    References:
        CHORD-mu, arXiv 2508.11408, with the schedule and the weights of its released code (modelscope/Trinity-RFT,
        chord_policy_loss.py and mix_chord.yaml), which has a warm-up too. CHORD-mu uses none.

    Example:
        >>> [round(imitation_weight(step, 4), 4) for step in range(6)]
        [0.9, 0.7755, 0.475, 0.1745, 0.05, 0.05]
    """
    if step < 0 or decay_steps < 0:
        raise ValueError(f"steps must not be negative, got step {step} and decay_steps {decay_steps}")
    if not 0 <= valley <= peak <= 1:
        raise ValueError(f"expected 0 <= valley <= peak <= 1, got {valley} and {peak}")
    if step >= decay_steps:
        return valley
    return valley + (peak - valley) * 0.5 * (1 + cos(pi * step / decay_steps))
