"""What travels with each response from slime's rollout manager to the ranks that train."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gar.methods import ScoredBatch
from gar.spans import TokenSequence


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseFacts:
    """The small facts about a response that all data-parallel ranks come to know.

    Example: ResponseFacts(position=17, group_index=2, status="ok", verified=True, well_formatted=True, num_anchors=1,
        num_scored_tokens=768)
    """

    position: int
    """Where it stands in slime's batch: names it on every rank."""
    group_index: int
    status: str
    verified: bool
    well_formatted: bool
    num_anchors: int
    """Anchors of its problem that have a token to score."""
    num_scored_tokens: int

    @property
    def can_score(self) -> bool:
        """Whether it and an anchor have a token to score."""
        return self.num_anchors > 0 and self.num_scored_tokens > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponsePayload:
    """A response's facts, with what only the rank that trains on it needs.

    `positions` count from the response's first token; `anchors` are the same object for all responses of a group.
    """

    facts: ResponseFacts
    positions: tuple[int, ...]
    anchors: tuple[TokenSequence, ...]


def scored_batch(facts: list[ResponseFacts], alignment: Tensor | None = None) -> ScoredBatch:
    """Facts and alignments (NaN where unknown) as the methods read them."""
    if alignment is None:
        alignment = torch.full((len(facts),), torch.nan, dtype=torch.float64)
    return ScoredBatch(
        verified=torch.tensor([fact.verified for fact in facts]),
        well_formatted=torch.tensor([fact.well_formatted for fact in facts]),
        group_index=torch.tensor([fact.group_index for fact in facts]),
        alignment=alignment,
        scored=alignment.isfinite(),
    )
