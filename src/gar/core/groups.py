"""Statistics of a group: the responses to one problem, given by an explicit index, never by position.

Everything is computed in float64. Values are first shifted by their group's minimum, so a constant group has deviations
of exactly zero.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float64, Int, Shaped
from torch import Tensor


def group_sizes(
    group_index: Int[Tensor, " responses"], mask: Bool[Tensor, " responses"] | None = None
) -> Int[Tensor, " responses"]:
    """Number of counted responses in each response's group, int64.

    Args:
        group_index: Group of each response. Any integers, in any order.
        mask: True for counted responses. None counts all.

    Example:
        >>> group_sizes(torch.tensor([7, 3, 7]))
        tensor([2, 1, 2])
    """
    return _totals(torch.ones_like(group_index, dtype=torch.int64) if mask is None else mask.long(), group_index)


def group_deviations(
    values: Shaped[Tensor, " responses"],
    group_index: Int[Tensor, " responses"],
    mask: Bool[Tensor, " responses"] | None = None,
) -> Float64[Tensor, " responses"]:
    """Each value minus the mean of its group.

    Args:
        values: One number per response. Entries outside `mask` may be anything, NaN included.
        group_index: Which group a response belongs to. Any integers, in any order.
        mask: True for the members that count. None counts all.

    Returns:
        `value - mean over the counted members of its group` where `mask` holds, 0 elsewhere. Exactly 0 if a
        group's counted values are all equal, or if only one counts.
    """
    values = values.double()
    if mask is None:
        mask = torch.ones_like(values, dtype=torch.bool)
    shifted = torch.where(mask, values - group_extremes(values, group_index, mask, "amin"), 0.0)
    means = _totals(shifted, group_index) / group_sizes(group_index, mask).clamp(min=1)
    return torch.where(mask, shifted - means, 0.0)


def group_extremes(
    values: Float64[Tensor, " responses"],
    group_index: Int[Tensor, " responses"],
    mask: Bool[Tensor, " responses"],
    reduce: Literal["amin", "amax"],
) -> Float64[Tensor, " responses"]:
    """Smallest or largest counted value of each response's group. It is inf or -inf if none counts.

    Example:
        >>> group_extremes(torch.tensor([3.0, 1.0]).double(), torch.tensor([7, 7]), torch.tensor([True, False]), "amin")
        tensor([3., 3.], dtype=torch.float64)
    """
    groups, inverse = torch.unique(group_index, return_inverse=True)
    extremes = values.new_full((len(groups),), torch.inf if reduce == "amin" else -torch.inf)
    return extremes.scatter_reduce_(0, inverse[mask], values[mask], reduce=reduce)[inverse]


def in_equal_group(
    values: Shaped[Tensor, " responses"], group_index: Int[Tensor, " responses"]
) -> Bool[Tensor, " responses"]:
    """Whether all values of a response's group are equal in float64. NaN is equal to nothing.

    Example:
        >>> in_equal_group(torch.tensor([-0.6, -0.6, 1.0, 0.0]), torch.tensor([7, 7, 8, 8]))
        tensor([ True,  True, False, False])
    """
    values, everyone = values.double(), torch.ones_like(values, dtype=torch.bool)
    lowest, highest = (group_extremes(values, group_index, everyone, reduce) for reduce in ("amin", "amax"))
    return lowest == highest


def group_standard_deviations(
    values: Shaped[Tensor, " responses"],
    group_index: Int[Tensor, " responses"],
    *,
    ddof: int,
) -> Float64[Tensor, " responses"]:
    """Standard deviation of each response's group, repeated for every member.

    Args:
        values: One number per response.
        group_index: Which group a response belongs to.
        ddof: Subtracted from the count in the denominator: 0 population, 1 Bessel.

    Returns:
        `sqrt(sum of squared deviations / (size - ddof))`, 0 if `size <= ddof`.
    """
    squares = _totals(group_deviations(values, group_index).square(), group_index)
    freedom = (group_sizes(group_index) - ddof).double()
    return torch.where(freedom > 0, (squares / freedom.clamp(min=1)).sqrt(), 0.0)


def shuffled_groups(group_index: Int[Tensor, " rows"], generator: torch.Generator) -> Int[Tensor, " rows"]:
    """For each row, a different group: a random cycle through the groups, so that no row keeps its own.

    Rows may be responses or anchors. All rows of a group get the same group. Pass only groups with an anchor: any group
    may be drawn.

    Args:
        group_index: Which problem a row belongs to. Any integers, any order.
        generator: On the CPU, used once. The result depends on its state and the set of groups, not on the number or
            order of rows, and so not on ranks.

    Returns:
        `group_index` with each group's number replaced by another group's. A single group keeps its number, so with one
        problem per batch shuffled anchors are the problem's own.

    Example:
        >>> shuffled_groups(torch.tensor([7, 3, 7]), torch.Generator().manual_seed(0))
        tensor([3, 7, 3])
    """
    groups, inverse = group_index.unique(return_inverse=True)
    cycle = torch.randperm(len(groups), generator=generator).to(groups.device)
    others = torch.empty_like(groups)
    others[cycle] = groups[cycle.roll(-1)]
    return others[inverse]


def _totals(values: Tensor, group_index: Tensor) -> Tensor:
    """The sum over each response's group, repeated for every member."""
    groups, inverse = torch.unique(group_index, return_inverse=True)
    return values.new_zeros(len(groups)).index_add_(0, inverse, values)[inverse]
