"""The state of one generation batch: what is known about each response, from its tokens to its advantage."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gar.methods import ScoredBatch, ShapedRewards
from gar.models.families import ModelParts, evaluation_mode
from gar.records import RolloutRecord
from gar.scoring import means_from_hidden, signal_means
from gar.scoring.forward import batches_by_length
from gar.settings import SignalSettings
from gar.spans import TokenSequence
from gar.types import Problem, Verdict


@dataclass(kw_only=True)
class RolloutBatch:
    """Responses of this rank, in TRL's order, with everything that is found out about them along the way."""

    problems: list[Problem]
    group_index: list[int]
    sequences: list[TokenSequence] = field(default_factory=list)
    prefilled: list[bool] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)
    needed: list[bool] = field(default_factory=list)
    needed_anywhere: bool = False
    """Whether any rank needs a vector: the others then take part."""
    captured: bool = False
    """Hidden states were taken from a passing forward, on all ranks."""
    means: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    has_means: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    alignment: Tensor = field(default_factory=lambda: torch.zeros(0))
    shaped: ShapedRewards | None = None
    advantages: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.problems)

    def prepare_means(self, parts: ModelParts) -> None:
        """Room for one mean vector per response."""
        self.means = torch.zeros(len(self), parts.width, device=parts.device)
        self.has_means = torch.zeros(len(self), dtype=torch.bool)

    def attended(self, attention_mask: Tensor) -> list[bool]:
        """Which responses a pass over all of them reads whole; TRL may hide truncated ones from attention."""
        lengths = [len(sequence.context_ids) + len(sequence.ids) for sequence in self.sequences]
        return (attention_mask.sum(1).cpu() == torch.tensor(lengths)).tolist()

    def take_hidden(
        self,
        parts: ModelParts,
        hidden: Tensor,
        first_row: int,
        first_column: int,
        settings: SignalSettings,
        *,
        attended: Sequence[bool] | None = None,
    ) -> None:
        """Form the needed means from hidden states that a passing forward computed for some rows of the batch.

        Responses that are not `attended` (None: all are) are left to `compute_missing`.
        """
        rows = [
            row
            for row in range(len(hidden))
            if self.needed[first_row + row] and (attended is None or attended[first_row + row])
        ]
        if not rows:
            return
        members = [first_row + row for row in rows]
        sequences = [self.sequences[i] for i in members]
        means = means_from_hidden(parts, hidden[rows], sequences, [first_column] * len(rows), settings)
        self.means[members] = means
        self.has_means[members] = True

    def compute_missing(
        self,
        parts: ModelParts,
        anchors: Sequence[TokenSequence],
        settings: SignalSettings,
        most: Callable[[int], int],
    ) -> Tensor:
        """Run the forward passes that are still needed: responses without a mean, and the anchors, in one list.

        All ranks make as many as the one with the most: where the model is sharded, each pass needs all of them.

        Args:
            parts: With the head gathered.
            anchors: The anchors' sequences.
            settings: Signal kind and thresholds.
            most: Largest of the ranks' numbers.

        Returns:
            The anchors' means, [anchors, hidden].
        """
        missing = [i for i in range(len(self)) if self.needed[i] and not self.has_means[i]]
        sequences = [*(self.sequences[i] for i in missing), *anchors]
        num_forwards = _num_forwards(sequences, settings.max_batch_tokens)
        num_idle = most(num_forwards) - num_forwards
        means = signal_means(
            parts,
            sequences,
            settings,
            keep_fractions=[1.0] * len(missing) + [settings.anchor_keep_fraction] * len(anchors),
        )
        _run_idle_forwards(parts, num_idle)
        self.means[missing] = means[: len(missing)]
        self.has_means[missing] = True
        return means[len(missing) :]

    def records(self, *, step: int, batch: ScoredBatch, eligible: Tensor, offset: int) -> list[RolloutRecord]:
        """One row per response of this rank. `batch`, `eligible` and the rewards are those of all ranks.

        `offset` is the position of this rank's first response among them.
        """
        assert self.shaped is not None
        norms = self.means.norm(dim=-1).tolist()
        rows = []
        for i, (problem, sequence, verdict) in enumerate(
            zip(self.problems, self.sequences, self.verdicts, strict=True)
        ):
            j = offset + i
            group = self.group_index[i]
            response_index = int((batch.group_index[:j] == group).sum())
            scored = bool(batch.scored[j])
            rows.append(
                RolloutRecord(
                    step=step,
                    problem_id=problem.id,
                    group_index=group,
                    response_index=response_index,
                    prompt=problem.prompt if isinstance(problem.prompt, str) else str(problem.prompt),
                    response=self.texts[i],
                    gold=problem.answer,
                    answer=verdict.answer,
                    status=verdict.status,
                    verified=verdict.verified,
                    well_formatted=verdict.well_formatted,
                    eligible=bool(eligible[j]),
                    anchor=bool(problem.anchors),
                    alignment=float(batch.alignment[j]) if scored else None,
                    bonus=float(self.shaped.bonuses[j]),
                    penalty=float(self.shaped.penalties[j]),
                    reward=float(self.shaped.rewards[j]),
                    advantage=self.advantages[i],
                    num_tokens=len(sequence.ids),
                    truncated=self.truncated[i],
                    num_scored_tokens=len(sequence.positions),
                    signal_norm=norms[i] if self.has_means[i] else None,
                    prompt_tokens=len(sequence.context_ids),
                )
            )
        return rows


def _num_forwards(sequences: Sequence[TokenSequence], max_batch_tokens: int) -> int:
    """Forward passes that `signal_means` makes."""
    lengths = [len(sequence.context_ids) + sequence.positions[-1] for sequence in sequences if sequence.positions]
    return len(batches_by_length(lengths, max_batch_tokens))


@torch.no_grad()
def _run_idle_forwards(parts: ModelParts, count: int) -> None:
    with evaluation_mode(parts.backbone):
        for _ in range(count):
            parts.backbone(input_ids=torch.zeros(1, 1, dtype=torch.long, device=parts.device), use_cache=False)
