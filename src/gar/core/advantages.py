"""Advantages: rewards made comparable, within a group (GRPO) or over the tokens of the whole batch (REINFORCE++)."""

from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from gar.core.arguments import as_given, check_finite, check_shapes
from gar.core.groups import group_deviations, group_sizes, group_standard_deviations


def group_advantages(
    rewards: Shaped[Tensor, " responses"],
    group_index: Int[Tensor, " responses"],
    *,
    scale: Literal["std", "none"],
    ddof: int,
    eps: float,
    min_std: float = 0.0,
) -> Float[Tensor, " responses"]:
    """GRPO's advantage: `(r_i - mean_group) / (max(std_group, min_std) + eps)`.

    Dividing by the standard deviation scales any spread to unit size, however small. If all outcomes of a group
    are equal, a bonus of 0.001 trains as hard as right against wrong. `min_std` limits this amplification.

    Args:
        rewards: Shaped rewards of all responses on all ranks.
        group_index: Which problem a response answers. Any integers, any order.
        scale: "std" divides by the group's standard deviation, "none" only subtracts the mean (Dr. GRPO).
        ddof: 0 population (the paper's eq. 12), 1 Bessel (TRL, slime, verl).
        eps: Added to the denominator: 1e-6 in slime and verl, 1e-4 in TRL. The paper gives no number.
        min_std: Smallest standard deviation to divide by.

    Returns:
        One advantage per response in `rewards`' dtype, torch's default for integers and bool. Computed in float64.
        Exactly 0 in a group of one and in a group with equal rewards.

    Raises:
        ValueError: A reward is not finite, or a setting is out of range.

    References:
        GAR, arXiv 2609.03342, eqs. 10, 12. GRPO, arXiv 2402.03300, section 4.1.

    Example:
        >>> import torch
        >>> group_advantages(torch.tensor([1.0, 0.0, 5.0]), torch.tensor([4, 4, 9]), scale="std", ddof=0, eps=0.0)
        tensor([ 1., -1.,  0.])
    """
    check_shapes(rewards.shape, group_index=group_index)
    if scale not in ("std", "none") or ddof not in (0, 1) or not (eps >= 0 and min_std >= 0):
        raise ValueError(
            "scale must be std or none, ddof 0 or 1, eps and min_std not negative, got "
            f"scale={scale!r}, ddof={ddof}, eps={eps}, min_std={min_std}"
        )
    values = rewards.double()
    check_finite("rewards", values)
    advantages = group_deviations(values, group_index)
    if scale == "std":
        denominators = group_standard_deviations(values, group_index, ddof=ddof).clamp(min=min_std) + eps
        advantages = advantages / denominators.where(advantages != 0, 1.0)  # 0 / 0 in a zero-std group with eps 0
    return as_given(advantages.where(group_sizes(group_index) > 1, 0.0), rewards)


def reinforce_plus_plus_advantages(
    rewards: Shaped[Tensor, " responses"],
    token_counts: Int[Tensor, " responses"],
    group_index: Int[Tensor, " responses"],
    *,
    baseline: bool,
    ddof: int,
    eps: float,
) -> Float[Tensor, " responses"]:
    """REINFORCE++'s advantage: the rewards, less their group's mean if `baseline`, whitened over the batch's tokens.

    `(a_i - mean) / sqrt(variance + eps)`. Long responses weigh more in mean and variance. Nothing is divided by a
    group's standard deviation, so a bonus keeps its size relative to the outcome. Unlike in `group_advantages`, eps is
    added to the variance: verl and slime use `ddof=1, eps=1e-8`, OpenRLHF `ddof=0` and `max(variance, 1e-8)`.

    Args:
        rewards: Rewards of all responses on all ranks, shaped or not.
        token_counts: Tokens of each response that enter the loss. They weight its value.
        group_index: Which problem a response answers. Read only with `baseline`.
        baseline: Subtract the group's mean first (REINFORCE++-baseline). The value of a group of one is then 0.
        ddof: 0 population (OpenRLHF), 1 Bessel (verl, slime), on the number of tokens.
        eps: Added to the variance.

    Returns:
        One advantage per response in `rewards`' dtype, torch's default for integers and bool. Computed in
        float64. 0 for a response without tokens. Exactly 0 throughout if all counted values are equal.

    Raises:
        ValueError: Shapes differ, a reward is not finite, a token count is negative, or a setting is out of range.

    References:
        REINFORCE++, arXiv 2501.03262, without KL in the reward: normalization over the global batch.

    Example:
        >>> rewards, groups = torch.tensor([3.0, 1.0, 7.0, 5.0]), torch.tensor([0, 0, 1, 1])
        >>> reinforce_plus_plus_advantages(rewards, torch.ones(4).long(), groups, baseline=True, ddof=0, eps=0.0)
        tensor([ 1., -1.,  1., -1.])
    """
    check_shapes(rewards.shape, token_counts=token_counts, group_index=group_index)
    check_finite("rewards", rewards)
    if token_counts.numel() and int(token_counts.min()) < 0:
        raise ValueError(f"token_counts must not be negative, got {int(token_counts.min())}")
    if ddof not in (0, 1) or not eps >= 0:
        raise ValueError(f"ddof must be 0 or 1 and eps not negative, got ddof={ddof}, eps={eps}")
    values = group_deviations(rewards.double(), group_index) if baseline else rewards.double()
    counted, counts = token_counts > 0, token_counts.double()
    if not bool(counted.any()):
        return as_given(torch.zeros_like(values), rewards)
    shifted = torch.where(counted, values - values[counted].min(), 0.0)  # equal values give exactly 0
    total = counts.sum()
    deviations = torch.where(counted, shifted - (counts * shifted).sum() / total, 0.0)
    variance = (counts * deviations.square()).sum() / (total - ddof).clamp(min=1)
    spread = (variance + eps).sqrt()
    return as_given(deviations / spread.where(spread > 0, 1.0), rewards)  # 0 / 0 for equal values with eps 0
