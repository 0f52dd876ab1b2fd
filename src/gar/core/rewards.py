"""The bonus of correct responses that align better than their group."""

from math import isfinite

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from gar.core.arguments import as_given, check_finite, check_shapes
from gar.core.groups import group_deviations


def gradient_aligned_bonuses(
    eligible: Bool[Tensor, " responses"],
    alignment: Shaped[Tensor, " responses"],
    group_index: Int[Tensor, " responses"],
    *,
    scored: Bool[Tensor, " responses"] | None = None,
    bonus_weight: float = 0.5,
    center: bool = True,
    clip: bool = True,
) -> Float[Tensor, " responses"]:
    """Bonus for alignment: `bonus_weight * max(0, b_i - mean of the group's b)` on Q(x), 0 elsewhere.

    Q(x) are the responses to a problem that are eligible and scored. The mean is over Q(x) in the whole group: pass the
    responses of all ranks.

    Args:
        eligible: Verified and well formatted, P(x) of the paper.
        alignment: b_i. Entries outside Q(x) are not read and may be NaN.
        group_index: Which problem a response answers. Any integers, any order.
        scored: Has an anchor and a usable vector. None means all.
        bonus_weight: The paper's beta.
        center: Subtract the group's mean. False is the paper's ablation.
        clip: Cut negative bonuses to zero. False is the paper's ablation.

    Returns:
        One bonus per response in `alignment`'s dtype, torch's default for integers and bool. Computed in float64.

    Raises:
        ValueError: Shapes differ, or an alignment in Q(x) or `bonus_weight` is not finite.

    References:
        GAR, arXiv 2609.03342, eqs. 6 and 9.

    Example:
        >>> b = torch.tensor([0.6, 0.2, 0.9])
        >>> gradient_aligned_bonuses(torch.tensor([True, True, False]), b, torch.tensor([0, 0, 0]))
        tensor([0.1000, 0.0000, 0.0000])
    """
    if not isfinite(bonus_weight):
        raise ValueError(f"bonus_weight must be finite, got {bonus_weight}")
    if scored is None:
        scored = torch.ones_like(eligible)
    check_shapes(alignment.shape, eligible=eligible, group_index=group_index, scored=scored)
    members = eligible & scored
    values = alignment.double()
    hint = ", which is eligible and scored. Was a response without a usable vector left in `scored`?"
    check_finite("alignment", values, members, hint=hint)
    shifted = group_deviations(values, group_index, members) if center else torch.where(members, values, 0.0)
    if clip:
        shifted = shifted.clamp(min=0.0)
    return as_given(bonus_weight * shifted, alignment)
