"""Losses per token that the training engines lack: MASPO's soft trust region, and KL as a k2 loss.

The engine sums or averages over tokens. Values are not checked, since that would synchronise the device at every
micro-batch: NaN in gives NaN out.
"""

from math import isfinite
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gar.core.checks import check_shapes

_LOG_RATIO_BOUND = 20.0
"""Log ratios are clipped to [-20, 20]; a clipped token has no gradient [MASPO, released code]."""


class SoftGate(NamedTuple):
    """Settings of MASPO's gate, as its released code has them.

    Attributes:
        sigma_base: Width for a token that was certain.
        alpha: How much wider it is for an unlikely token: 0.3, or 0.5 at 1.5B.
        sigma_high: Upper limit of the width.
        a_low: Lower limit of the factor for the advantage.
        a_high: Its upper limit.
        beta_pos: Widening by a positive advantage.
        beta_neg: Narrowing by a negative advantage.
    """

    sigma_base: float = 1.0
    alpha: float = 0.3
    sigma_high: float = 10.0
    a_low: float = 0.1
    a_high: float = 10.0
    beta_pos: float = 0.03
    beta_neg: float = 0.03


@torch.no_grad()
def maspo_weights(
    log_probs: Float[Tensor, "responses tokens"],
    old_log_probs: Float[Tensor, "responses tokens"],
    advantages: Float[Tensor, "responses #tokens"],
    gate: SoftGate | None = None,
) -> Float[Tensor, "responses tokens"]:
    """MASPO's gate: `exp(-(rho - 1)^2 / (2 sigma^2))` for tokens that have already moved in A's direction, else 1.

    These are A > 0 with rho > 1, and A < 0 with rho < 1, where `rho = exp(clip(log_probs - old_log_probs, -20, 20))`.
    `sigma = m * clip(a, a_low, a_high)`: the width for the token's probability
    `m = clip(sigma_base * p_old^-alpha, sigma_base, sigma_high)` times a factor for the advantage,
    `a = 1 + beta_pos A` where A > 0 and `a = 1 / (1 - beta_neg A)` where A < 0.

    Args:
        log_probs: Log-probabilities of the sampled tokens under the current policy.
        old_log_probs: The same under the policy that sampled them.
        advantages: One per token, or one per response with a last dimension of 1.
        gate: Settings of sigma. None: the defaults.

    Returns:
        In [0, 1], without gradient, in float32, or float64 where `log_probs` is.

    Raises:
        ValueError: Shapes differ or a setting is out of range.

    References:
        MASPO, arXiv 2602.17550, as its released code computes it: the limits a_low and a_high are not in the paper.

    Example:
        >>> old, new = torch.tensor([[0.25, 0.25]]).log(), torch.tensor([[0.5, 0.125]]).log()
        >>> maspo_weights(new, old, torch.tensor([[1.0]]))  # the second has yet to grow
        tensor([[0.8145, 1.0000]])
    """
    gate = gate or SoftGate()
    _check_gate(gate)
    ratios = _ratios(log_probs, old_log_probs)
    _check_advantages(advantages, log_probs)
    wide = advantages.to(ratios.dtype)
    unlikely = torch.exp(-gate.alpha * old_log_probs.to(ratios.dtype))
    widths = (gate.sigma_base * unlikely).clamp(gate.sigma_base, gate.sigma_high)
    # The unused branch may be infinite, at A = 1 / beta_neg; without gradients that does no harm.
    factors = torch.where(wide > 0, 1.0 + gate.beta_pos * wide, 1.0 / (1.0 - gate.beta_neg * wide))
    gates = torch.exp(-0.5 * ((ratios - 1.0) / (widths * factors.clamp(gate.a_low, gate.a_high))).square())
    moved = ((wide > 0) & (ratios > 1)) | ((wide < 0) & (ratios < 1))
    return torch.where(moved, gates, 1.0)


def maspo_token_losses(
    log_probs: Float[Tensor, "responses tokens"],
    old_log_probs: Float[Tensor, "responses tokens"],
    advantages: Float[Tensor, "responses #tokens"],
    weights: Float[Tensor, "responses tokens"],
) -> Float[Tensor, "responses tokens"]:
    """MASPO's loss of each token: `-A * stopgrad(w) * rho`, with `rho` as in `maspo_weights`.

    No ratio is clipped to a trust region: w fades a token out instead. MASPO averages this over all tokens of the
    batch, without KL. At ratio 1 the gradient is the plain policy gradient, so MASPO acts only with two or more updates
    per rollout. The loss of a token with a negative advantage and a growing ratio is not bounded.

    Args:
        log_probs: Log-probabilities of the sampled tokens under the current policy; only these have a gradient.
        old_log_probs: The same under the policy that sampled them.
        advantages: One per token, or one per response with a last dimension of 1.
        weights: `maspo_weights` of the same three. All 1 is importance-weighted policy gradient.

    Returns:
        float32, or float64 where `log_probs` is; padding included. No gradient where the log ratio is clipped.

    Raises:
        ValueError: Shapes differ.

    References:
        MASPO, arXiv 2602.17550, as its released code computes it: the stop-gradient is not in the paper.

    Example:
        >>> log_probs = torch.tensor([[0.5, 0.25]]).log()
        >>> maspo_token_losses(log_probs, log_probs, torch.tensor([[3.0]]), torch.ones(1, 2))
        tensor([[-3., -3.]])
    """
    ratios = _ratios(log_probs, old_log_probs)
    _check_advantages(advantages, log_probs)
    check_shapes(log_probs.shape, weights=weights)
    return -(advantages.to(ratios.dtype) * weights.to(ratios.dtype)).detach() * ratios


def k2_token_losses(
    log_probs: Float[Tensor, "responses tokens"], reference_log_probs: Float[Tensor, "responses tokens"]
) -> Float[Tensor, "responses tokens"]:
    """KL loss of each token: `0.5 * (log_probs - reference_log_probs)^2`.

    Over tokens sampled from the current policy, its mean gradient is that of the KL divergence from the reference; its
    mean value is that divergence only to second order.

    Args:
        log_probs: Log-probabilities of the sampled tokens under the current policy; only these have a gradient.
        reference_log_probs: The same under the reference policy.

    Returns:
        float32, or float64 where `log_probs` is; not negative.

    Raises:
        ValueError: Shapes differ.

    References:
        REINFORCE++, arXiv 2501.03262, KL as a separate loss; k2: Schulman, "Approximating KL divergence" (2020).

    Example:
        >>> k2_token_losses(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-3.0, -2.0]]))
        tensor([[2., 0.]])
    """
    return 0.5 * _log_ratios(log_probs, reference_log_probs).square()


def _log_ratios(log_probs: Tensor, others: Tensor) -> Tensor:
    if log_probs.shape != others.shape:
        raise ValueError(
            "both log-probabilities must have one shape [responses, tokens], got "
            f"{tuple(log_probs.shape)} and {tuple(others.shape)}"
        )
    wide = log_probs if log_probs.dtype == torch.float64 else log_probs.float()
    return wide - others.detach().to(wide.dtype)


def _ratios(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    return _log_ratios(log_probs, old_log_probs).clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND).exp()


def _check_advantages(advantages: Tensor, log_probs: Tensor) -> None:
    responses, tokens = log_probs.shape
    if advantages.shape not in ((responses, tokens), (responses, 1)):
        raise ValueError(
            f"advantages must have shape {(responses, tokens)} or {(responses, 1)}, got {tuple(advantages.shape)}. "
            "Does one value per response lack its [:, None]?"
        )


def _check_gate(gate: SoftGate) -> None:
    for name, expected, holds in (
        ("sigma_base", "positive", gate.sigma_base > 0),
        ("alpha", "not negative", gate.alpha >= 0),
        ("sigma_high", f"at least sigma_base ({gate.sigma_base})", gate.sigma_high >= gate.sigma_base),
        ("a_low", "positive", gate.a_low > 0),
        ("a_high", f"at least a_low ({gate.a_low})", gate.a_high >= gate.a_low),
        ("beta_pos", "not negative", gate.beta_pos >= 0),
        ("beta_neg", "not negative", gate.beta_neg >= 0),
    ):
        value = getattr(gate, name)
        if not (holds and isfinite(value)):
            raise ValueError(f"{name} must be finite and {expected}, got {value}")
