"""How the responses of a batch compare with the anchors of their problems."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from gar.core import unit_rows
from gar.integrations.trl.rollouts import RolloutBatch
from gar.methods.base import AlignmentSource
from gar.models.families import ModelParts
from gar.scoring.anchors import AnchorReader, best_likenesses, random_anchor_vectors
from gar.settings import SignalSettings
from gar.shaping import TableRow, VectorPlan, align
from gar.spans import SequenceReader, TokenSequence


@dataclass(frozen=True, kw_only=True)
class AnchorComparison:
    """What a method's alignment is made of.

    Attributes:
        source: What responses are compared with; None where only their own vectors are wanted.
        signal: The signal settings in force.
        anchors: The anchors of the data set.
        reader: A reader of the policy's tokenizer.
        seed: For random vectors.
        most: Largest of the ranks' numbers.
    """

    source: AlignmentSource | None
    signal: SignalSettings
    anchors: AnchorReader
    reader: SequenceReader
    seed: int
    most: Callable[[int], int]

    def alignment(self, batch: RolloutBatch, parts: ModelParts) -> Tensor:
        """Best cosine of each needed response of this rank with its anchors, NaN elsewhere; float64 [responses].

        Fills the batch's missing means.

        Args:
            batch: The responses of this rank.
            parts: With the head gathered.
        """
        plan = VectorPlan(self._rows(batch), batch.needed)
        vectors = unit_rows(batch.compute_missing(parts, plan.anchors, self.signal, self.most))
        groups = plan.anchor_groups
        if self.source == "random-anchor":
            groups = sorted(set(batch.group_index))
            vectors = random_anchor_vectors(groups, batch.means.shape[1], seed=self.seed).to(vectors)
        return align(batch.means, batch.group_index, vectors, groups).alignment

    def likenesses(self, batch: RolloutBatch) -> Tensor:
        """Likeness of each needed response to its anchors where a method needs no model for it, NaN elsewhere."""
        assert self.source is not None
        return best_likenesses(self._rows(batch), batch.needed, self.source, self.reader.pieces)

    def _rows(self, batch: RolloutBatch) -> list[TableRow]:
        """The responses of this rank, those of the needed groups with their anchors."""
        assert batch.table is not None
        anchors: dict[int, list[TokenSequence]] = {}
        for i in batch.needed.nonzero()[:, 0].tolist() if self.source not in (None, "random-anchor") else ():
            group = batch.group_index[i]
            if group not in anchors:
                anchors[group] = self.anchors.sequences(group, batch.sequences[i].context_ids)
        return [
            TableRow(facts=fact, sequence=sequence, anchors=anchors.get(fact.group_index, ()))
            for fact, sequence in zip(batch.table.facts[batch.here], batch.sequences, strict=True)
        ]
