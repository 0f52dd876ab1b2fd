"""MASPO's soft trust region: the weight of each token in the policy loss.

Values are not checked, since that would synchronize the device at every micro-batch: NaN in gives NaN out.
"""

import torch
from jaxtyping import Float
from torch import Tensor

_LOG_RATIO_BOUND = 20.0
"""Log ratios are clipped to [-20, 20] [MASPO, released code]."""

_SIGMA_BASE, _ALPHA, _SIGMA_HIGH = 1.0, 0.3, 10.0
"""Width of the gate for a certain token, how fast it widens as tokens get rarer, and its upper limit."""
_A_LOW, _A_HIGH = 0.1, 10.0
"""Limits of the factor for the advantage."""
_BETA = 0.03
"""How much a positive advantage widens the gate, and a negative one narrows it."""


@torch.no_grad()
def maspo_weights(
    log_probs: Float[Tensor, "responses tokens"],
    old_log_probs: Float[Tensor, "responses tokens"],
    advantages: Float[Tensor, "responses #tokens"],
) -> Float[Tensor, "responses tokens"]:
    """MASPO's gate: `exp(-(rho - 1)^2 / (2 sigma^2))` for tokens that have already moved in A's direction, else 1.

    These are A > 0 with rho > 1, and A < 0 with rho < 1, for `rho = exp(clip(log_probs - old_log_probs, -20, 20))`.
    `sigma = m * clip(a, 0.1, 10)`: the width for the token's probability
    `m = clip(p_old^-0.3, 1, 10)` times a factor for the advantage, `a = 1 + 0.03 A` where A > 0 and
    `a = 1 / (1 - 0.03 A)` where A < 0. The constants come from the released code.

    Args:
        log_probs: Log-probabilities of the sampled tokens under the current policy.
        old_log_probs: The same under the policy that sampled them.
        advantages: One per token, or one per response with a last dimension of 1.

    Returns:
        In [0, 1], without gradient, in float32, or float64 if `log_probs` is.

    Raises:
        ValueError: Shapes differ.

    References:
        MASPO, arXiv 2602.17550, as its released code computes it: the limits a_low and a_high are not in the paper.

    Example:
        >>> old, new = torch.tensor([[0.25, 0.25]]).log(), torch.tensor([[0.5, 0.125]]).log()
        >>> maspo_weights(new, old, torch.tensor([[1.0]]))  # the second has yet to grow
        tensor([[0.8145, 1.0000]])
    """
    if log_probs.shape != old_log_probs.shape:
        raise ValueError(
            "both log-probabilities must have one shape [responses, tokens], got "
            f"{tuple(log_probs.shape)} and {tuple(old_log_probs.shape)}"
        )
    responses, tokens = log_probs.shape
    if advantages.shape not in ((responses, tokens), (responses, 1)):
        raise ValueError(
            f"advantages must have shape {(responses, tokens)} or {(responses, 1)}, got {tuple(advantages.shape)}. "
            "Does one value per response lack its [:, None]?"
        )
    new = log_probs if log_probs.dtype == torch.float64 else log_probs.float()
    old, wide = old_log_probs.to(new.dtype), advantages.to(new.dtype)
    ratios = (new - old).clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND).exp()
    widths = (_SIGMA_BASE * torch.exp(-_ALPHA * old)).clamp(_SIGMA_BASE, _SIGMA_HIGH)
    # The unused branch may be infinite, at A = 1 / beta. Without gradients that does no harm.
    factors = torch.where(wide > 0, 1.0 + _BETA * wide, 1.0 / (1.0 - _BETA * wide))
    gates = torch.exp(-0.5 * ((ratios - 1.0) / (widths * factors.clamp(_A_LOW, _A_HIGH))).square())
    moved = ((wide > 0) & (ratios > 1)) | ((wide < 0) & (ratios < 1))
    return torch.where(moved, gates, 1.0)
