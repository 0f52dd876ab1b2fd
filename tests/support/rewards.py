"""GAR's rewards of plain tensors, as the paper writes them."""

from typing import Any

from torch import Tensor

from gar.core import gradient_aligned_bonuses


def gradient_aligned_rewards(
    eligible: Tensor, alignment: Tensor, penalty: Tensor, group_index: Tensor, **options: Any
) -> Tensor:
    """`1 + bonus + penalty` for eligible responses, `penalty` for all others (algorithm 1), in `alignment`'s dtype."""
    bonuses = gradient_aligned_bonuses(eligible, alignment.double(), group_index, **options)
    return (eligible.double() + bonuses + penalty.double()).to(alignment.dtype)
