"""Controls for GAR's bonus: another problem's anchor, a random anchor, or closeness in length."""

import torch
from jaxtyping import Float32, Float64, Int
from torch import Tensor

from gar.core.checks import check_shapes
from gar.core.vectors import unit_rows


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


def random_unit_rows(num_rows: int, hidden_size: int, generator: torch.Generator) -> Float32[Tensor, "rows hidden"]:
    """Random directions, uniform on the sphere, float32, on the generator's device.

    Raises:
        ValueError: A size is not positive.
    """
    if num_rows < 0 or hidden_size < 1:
        raise ValueError(f"num_rows must not be negative and hidden_size positive, got {num_rows} and {hidden_size}")
    return unit_rows(torch.randn(num_rows, hidden_size, generator=generator, device=generator.device))


def length_closeness(
    token_counts: Int[Tensor, " responses"], anchor_token_counts: Int[Tensor, " responses"]
) -> Float64[Tensor, " responses"]:
    """Closeness of a response's length to its anchor's: `min(n, m) / max(n, m)`, float64 in [0, 1].

    Args:
        token_counts: n, tokens of each response's span.
        anchor_token_counts: m, tokens of its anchor's span.

    Raises:
        ValueError: Shapes differ, a response's count is negative, or an anchor has no tokens.

    Example:
        >>> length_closeness(torch.tensor([3, 8, 0]), torch.tensor([4, 4, 4]))
        tensor([0.7500, 0.5000, 0.0000], dtype=torch.float64)
    """
    check_shapes(token_counts.shape, anchor_token_counts=anchor_token_counts)
    for name, counts, least, hint in (
        ("token_counts", token_counts, 0, ""),
        ("anchor_token_counts", anchor_token_counts, 1, " Leave out responses without an anchor."),
    ):
        if counts.numel() and int(counts.min()) < least:
            bad = int((counts < least).nonzero()[0])
            raise ValueError(f"{name} must be at least {least}, got {int(counts[bad])} at response {bad}.{hint}")
    shorter = torch.minimum(token_counts, anchor_token_counts).double()
    return shorter / torch.maximum(token_counts, anchor_token_counts)
