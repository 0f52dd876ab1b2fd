"""How far this rank's responses resemble the anchors of their problems."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gar.core import best_alignment_scores, unit_rows
from gar.integrations.trl.rollouts import RolloutBatch
from gar.methods.base import AlignmentSource
from gar.scoring.anchors import AnchorReader, best_likeness, random_anchor_vectors
from gar.spans import TokenPieces, TokenSequence


class AnchorComparison:
    """Compares responses with anchors the way a method asks for.

    Args:
        reader: Finds a problem's anchors.
        pieces: Of the policy's tokenizer.
        source: What a method compares; None for nothing.
        seed: Of random anchors.
    """

    def __init__(self, reader: AnchorReader, pieces: TokenPieces, *, source: AlignmentSource | None, seed: int):
        self._reader = reader
        self._pieces = pieces
        self._source: AlignmentSource | None = source
        self._seed = seed

    def sequences(self, batch: RolloutBatch) -> tuple[list[TokenSequence], list[int]]:
        """The anchors to run through the model, each problem's once, and the groups they belong to."""
        if self._source in (None, "random-anchor"):
            return [], []
        sequences: list[TokenSequence] = []
        groups: list[int] = []
        for i, group in enumerate(batch.group_index):
            if batch.needed[i] and group not in groups:
                mine = self._reader.sequences(group, batch.sequences[i].context_ids)
                sequences += mine
                groups += [group] * len(mine)
        return sequences, groups

    def cosines(self, batch: RolloutBatch, anchor_means: Tensor, groups: list[int]) -> Tensor:
        """Best cosine of each needed response with its anchors, NaN elsewhere.

        Args:
            batch: With the means of its needed responses.
            anchor_means: Of `sequences`, in their order.
            groups: The anchors' groups.
        """
        vectors = unit_rows(anchor_means)
        if self._source == "random-anchor":
            groups = sorted(set(batch.group_index))
            vectors = random_anchor_vectors(groups, batch.means.shape[1], seed=self._seed).to(vectors)
        device = batch.means.device
        best = best_alignment_scores(
            unit_rows(batch.means),
            torch.tensor(batch.group_index, device=device),
            vectors,
            torch.tensor(groups, dtype=torch.long, device=device),
        )
        return torch.where(best.scored, best.scores, torch.nan).double().cpu()

    def likenesses(self, batch: RolloutBatch, wanted: Sequence[bool]) -> Tensor:
        """Likeness of each wanted response to its anchors where a method needs no model for it, NaN elsewhere."""
        assert self._source is not None
        values = [
            best_likeness(sequence, self._reader.sequences(group, sequence.context_ids), self._source, self._pieces)
            if needed
            else float("nan")
            for sequence, group, needed in zip(batch.sequences, batch.group_index, wanted, strict=True)
        ]
        return torch.tensor(values, dtype=torch.float64)
