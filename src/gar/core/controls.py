"""A control for GAR's bonus: another problem's anchor."""

import torch
from jaxtyping import Int
from torch import Tensor


def shuffled_groups(group_index: Int[Tensor, " rows"], generator: torch.Generator) -> Int[Tensor, " rows"]:
    """The group whose anchor each row gets: a random cycle through the groups, so that no group keeps its own.

    Rows may be responses or anchors; all rows of a group get the same group. Pass only rows of groups with an anchor:
    any group may be drawn.

    Args:
        group_index: Which problem a row belongs to; any integers, any order.
        generator: On the CPU, used once. The result depends only on its state and the set of groups, not on the number
            or order of rows, and so not on ranks.

    Returns:
        `group_index` with each group's number replaced by that of another. A single group keeps its own number:
        shuffled anchors in a batch of one problem are GAR.

    Example:
        >>> shuffled_groups(torch.tensor([7, 3, 7]), torch.Generator().manual_seed(0))
        tensor([3, 7, 3])
    """
    groups, inverse = group_index.unique(return_inverse=True)
    cycle = torch.randperm(len(groups), generator=generator).to(groups.device)
    others = torch.empty_like(groups)
    others[cycle] = groups[cycle.roll(-1)]
    return others[inverse]
