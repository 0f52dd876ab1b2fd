"""Batches of responses, made up."""

import torch

from gar.core import unit_rows
from gar.methods import ScoredBatch


def batch_of(responses: list[tuple[bool, bool, float]], group_index: list[int] | None = None) -> ScoredBatch:
    """For each response: verified, well formatted, alignment. NaN: no anchor, or no usable vector."""
    verified, well_formatted, alignment = zip(*responses, strict=True)
    return ScoredBatch(
        verified=torch.tensor(verified),
        well_formatted=torch.tensor(well_formatted),
        group_index=torch.tensor(group_index or [0] * len(responses)),
        num_tokens=torch.arange(1, len(responses) + 1),
        alignment=torch.tensor(alignment, dtype=torch.float64),
        vectors=unit_rows(torch.randn(len(responses), 5, generator=torch.Generator().manual_seed(0))),
    )
