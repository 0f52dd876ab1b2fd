"""All of GAR, from rows to rewards: the one path that every engine takes (TRL, `GarScorer`, slime, verl, your own).

    a method on an engine, with its settings          plan_shaping (gar.methods.plan)
    rows: verdicts, token ids, groups, anchors        SequenceReader, read_row
      -> who needs a vector                           RewardTable.needed
      -> token sequences                              VectorPlan.sequences
      -> [the engine gives their mean vectors]
      -> alignment                                    VectorPlan.alignment
      -> rewards                                      RewardTable.shape
      -> advantages, metrics                          ShapedTable

An engine translates: it hands rows in, asks which sequences need vectors, hands the vectors in, and takes rewards,
advantages and metrics. `examples/add_an_engine.py` is a complete engine.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from gar.core import (
    BestAlignment,
    best_alignment_scores,
    group_deviations,
    group_sizes,
    unit_rows,
)
from gar.methods import Method, ScoredBatch, ShapedRewards, eligible_responses
from gar.methods.plan import Shaping
from gar.methods.plan import plan_shaping as plan_shaping
from gar.settings import RewardSettings
from gar.spans import AnchorSequences, SequenceReader, TokenSequence
from gar.types import Status, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseFacts:
    """Facts about a response that need no vector. They are small, so every rank can hold those of all responses.

    Example: ResponseFacts(group_index=2, status="ok", verified=True, well_formatted=True, num_anchors=1,
        num_scored_tokens=768)
    """

    group_index: int
    """Which problem it answers."""
    status: str
    """How its verification ended."""
    verified: bool
    well_formatted: bool
    num_anchors: int = 0
    """Anchors of its problem that can be scored."""
    num_scored_tokens: int = 0
    """Tokens that enter its vector; 0 if they reach beyond the model's context."""
    too_long: bool = False
    """Its scored tokens reach beyond the model's context."""
    num_anchors_too_long: int = 0
    """Anchors of its problem that reach beyond the model's context."""
    empty: bool = False
    truncated: bool = False
    """It was cut off before its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRow:
    """A response: its facts, its tokens, and its problem's anchors that can be scored."""

    facts: ResponseFacts
    sequence: TokenSequence
    anchors: Sequence[TokenSequence] = ()


def read_facts(
    reader: SequenceReader,
    verdict: Verdict,
    sequence: TokenSequence,
    *,
    group_index: int,
    num_anchors: int = 0,
    num_anchors_too_long: int = 0,
    truncated: bool = False,
) -> ResponseFacts:
    """The facts of a response, from its tokens (`reader.response`), its verdict, and its problem's anchors."""
    fault = reader.fault(sequence)
    return ResponseFacts(
        group_index=group_index,
        status=str(verdict.status),
        verified=verdict.verified,
        well_formatted=verdict.well_formatted,
        num_anchors=num_anchors,
        num_scored_tokens=len(sequence.positions) if fault is None else 0,
        too_long=fault == "too long",
        num_anchors_too_long=num_anchors_too_long,
        empty=reader.is_empty(sequence.ids, sequence.mask),
        truncated=truncated,
    )


def read_row(
    reader: SequenceReader,
    verdict: Verdict,
    sequence: TokenSequence,
    anchors: AnchorSequences,
    *,
    group_index: int,
    truncated: bool = False,
) -> TableRow:
    """The row of a response, from its tokens, its verdict, and its problem's anchors (`reader.anchors`)."""
    facts = read_facts(
        reader,
        verdict,
        sequence,
        group_index=group_index,
        num_anchors=len(anchors.usable),
        num_anchors_too_long=anchors.num_too_long,
        truncated=truncated,
    )
    return TableRow(facts=facts, sequence=sequence, anchors=anchors.usable)


def responses_to_score(method: Method, settings: RewardSettings, facts: ScoredBatch, can_score: Tensor) -> Tensor:
    """Which responses need an alignment or, where the method compares responses, a vector: bool [responses].

    Any other response has a bonus of 0 whatever its alignment, and does not affect the bonuses of its group. `beta` is
    not read: with `beta=0` alignments are still measured and logged.

    Args:
        method: The method that is trained.
        settings: `centre` decides whether the only candidate of a group may earn a bonus: its centred alignment is 0,
            its own cosine is not.
        facts: Verdicts and groups of the responses of all ranks; `alignment`, `scored` and `vectors` are not read.
        can_score: Bool [responses]: has tokens to score and, for a method that compares it with anchors alone, an
            anchor.

    References:
        GAR, arXiv 2609.03342, eqs. 6 and 9.
    """
    if method.alignment is None and not method.compares_responses:
        return torch.zeros_like(can_score)
    if method.scores_all or method.compares_responses:
        return can_score
    candidates = can_score & eligible_responses(facts, settings)
    if not settings.centre:
        return candidates
    return candidates & (group_sizes(facts.group_index, candidates) >= 2)


class RewardTable:
    """The responses of all ranks, on their way from verdicts to rewards.

    Args:
        shaping: Method, engine and settings.
        facts: One per response, in any order; the responses of a group need not be adjacent.
    """

    def __init__(self, shaping: Shaping, facts: Sequence[ResponseFacts]):
        self._shaping = shaping
        self.facts = facts
        self.group_index = torch.tensor([fact.group_index for fact in facts], dtype=torch.long)

    @cached_property
    def eligible(self) -> Tensor:
        """Which responses earn the base reward and may earn a bonus."""
        return eligible_responses(self._batch(), self._shaping.reward)

    @cached_property
    def needed(self) -> Tensor:
        """Which responses need a vector, or the method's substitute for one."""
        shaping = self._shaping
        without_anchor = shaping.method.compares_responses or not shaping.method.needs_alignment
        can_score = [fact.num_scored_tokens > 0 and (without_anchor or fact.num_anchors > 0) for fact in self.facts]
        return responses_to_score(shaping.method, shaping.reward, self._batch(), torch.tensor(can_score).bool())

    def shape(self, alignment: Tensor | None = None, *, vectors: Tensor | None = None) -> "ShapedTable":
        """Rewards of all responses.

        Args:
            alignment: Float64 [responses], NaN where unknown; None where all are unknown.
            vectors: [responses, hidden], unit rows; read by a method that compares responses with each other.
        """
        compares = self._shaping.method.compares_responses
        batch = self._batch(alignment, vectors.cpu() if compares and vectors is not None else None)
        shaped = self._shaping.method.shape(batch, self._shaping.reward)
        return ShapedTable(self._shaping, self.facts, batch, self.eligible, shaped)

    def _batch(self, alignment: Tensor | None = None, vectors: Tensor | None = None) -> ScoredBatch:
        if alignment is None:
            alignment = torch.full((len(self.facts),), torch.nan, dtype=torch.float64)
        return ScoredBatch(
            verified=torch.tensor([fact.verified for fact in self.facts], dtype=torch.bool),
            well_formatted=torch.tensor([fact.well_formatted for fact in self.facts], dtype=torch.bool),
            group_index=self.group_index,
            alignment=alignment,
            scored=alignment.isfinite(),
            vectors=vectors,
        )


class VectorPlan:
    """The sequences that need mean vectors from the engine, and the alignments computed from these.

    Args:
        rows: Responses of one process: all of them, or those of a rank.
        needed: Which of these rows, from `RewardTable.needed`.
        anchor_keep_fraction: From the signal's settings.
    """

    def __init__(self, rows: Sequence[TableRow], needed: Tensor, *, anchor_keep_fraction: float = 1.0):
        self._rows = rows
        self._keep = anchor_keep_fraction
        self.members: list[int] = needed.nonzero()[:, 0].tolist()
        """Row indices of the needed responses."""
        first: dict[int, TableRow] = {}
        for i in self.members:
            first.setdefault(rows[i].facts.group_index, rows[i])
        pairs = [(group, anchor) for group, row in first.items() for anchor in row.anchors]
        self.anchors = [anchor for _, anchor in pairs]
        """The anchors of their groups, each listed once."""
        self.anchor_groups = [group for group, _ in pairs]

    @property
    def sequences(self) -> list[TokenSequence]:
        """The needed responses, then the anchors."""
        return [*(self._rows[i].sequence for i in self.members), *self.anchors]

    @property
    def keep_fractions(self) -> list[float]:
        """Share of the tokens of each sequence that counts (p_f)."""
        return [1.0] * len(self.members) + [self._keep] * len(self.anchors)

    def align(self, means: Tensor) -> "Aligned":
        """Alignments from the mean vectors of `sequences`, in their order, [sequences, hidden]."""
        responses = means.new_zeros(len(self._rows), means.shape[-1])
        responses[self.members] = means[: len(self.members)]
        groups = [row.facts.group_index for row in self._rows]
        return align(responses, groups, unit_rows(means[len(self.members) :]), self.anchor_groups)


class Aligned(NamedTuple):
    """Responses compared with the anchors of their groups.

    Attributes:
        alignment: Float64 [responses] on the CPU: the best cosine, NaN where there is none.
        best: The same cosines with the index of the best anchor, on the device of the vectors.
        vectors: [responses, hidden], unit rows.
        anchors: [anchors, hidden], unit rows.
    """

    alignment: Tensor
    best: BestAlignment
    vectors: Tensor
    anchors: Tensor


def align(means: Tensor, groups: Sequence[int], anchors: Tensor, anchor_groups: Sequence[int]) -> Aligned:
    """The best cosine of each response with the anchors of its group.

    Args:
        means: [responses, hidden]; zero rows where a response needs none.
        groups: Which problem each response answers.
        anchors: [anchors, hidden], unit rows.
        anchor_groups: Which problem each anchor belongs to.
    """
    device = means.device
    vectors = unit_rows(means)
    best = best_alignment_scores(
        vectors,
        torch.tensor(groups, dtype=torch.long, device=device),
        anchors,
        torch.tensor(anchor_groups, dtype=torch.long, device=device),
    )
    alignment = torch.where(best.scored, best.scores, torch.nan).double().cpu()
    return Aligned(alignment, best, vectors, anchors)


@dataclass(frozen=True)
class ShapedTable:
    """The responses of all ranks with their rewards.

    Attributes:
        shaping: Method, engine and settings.
        facts: One of each response.
        batch: The batch that the method read.
        eligible: Which responses earn the base reward.
        shaped: The method's rewards and their parts.
    """

    shaping: Shaping
    facts: Sequence[ResponseFacts]
    batch: ScoredBatch
    eligible: Tensor
    shaped: ShapedRewards

    @property
    def rewards(self) -> Tensor:
        """Float64 [responses]."""
        return self.shaped.rewards

    def advantages(self, token_counts: Tensor | None = None) -> Tensor:
        """Advantages of all responses, as `Shaping.advantages`."""
        return self.shaping.advantages(self.rewards, self.batch.group_index, token_counts=token_counts)

    def metrics(self) -> dict[str, float]:
        """Logged metrics of a step: means over the responses, NaN where there is nothing to average.

        docs/glossary.md defines each.
        """
        batch, facts, shaped = self.batch, self.facts, self.shaped
        outcomes = shaped.outcomes + shaped.penalties
        alignment, bonuses = batch.alignment[batch.scored], shaped.bonuses[batch.scored]
        counts, total = Counter(fact.status for fact in facts), len(facts)
        return {
            "gar/verified_fraction": _mean(batch.verified),
            "gar/well_formatted_fraction": _mean(batch.well_formatted),
            "gar/eligible_fraction": _mean(self.eligible),
            "gar/scored_fraction": _mean(batch.scored),
            "gar/alignment_mean": _mean(alignment),
            "gar/alignment_std": float(alignment.std(correction=0)) if len(alignment) else float("nan"),
            "gar/bonus_mean": _mean(bonuses),
            "gar/outcome_mean": _mean(outcomes),
            "gar/silent_group_fraction_outcome": _silent_fraction(outcomes, batch.group_index),
            "gar/silent_group_fraction_shaped": _silent_fraction(shaped.rewards, batch.group_index),
            "gar/no_anchor_fraction": sum(fact.num_anchors == 0 for fact in facts) / total,
            "gar/no_signal_fraction": sum(fact.num_scored_tokens == 0 for fact in facts) / total,
            "gar/too_long_fraction": sum(fact.too_long for fact in facts) / total,
            "gar/anchor_too_long_fraction": sum(fact.num_anchors_too_long > 0 for fact in facts) / total,
            "gar/empty_fraction": sum(fact.empty for fact in facts) / total,
            "gar/truncated_fraction": sum(fact.truncated for fact in facts) / total,
            **{f"verify/{status}_fraction": counts[status] / total for status in Status},
        }


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")


def _silent_fraction(rewards: Tensor, group_index: Tensor) -> float:
    """Share of groups whose rewards are all equal, so that GRPO learns nothing from them."""
    uneven = group_index[group_deviations(rewards, group_index) != 0].unique().numel()
    return 1.0 - uneven / group_index.unique().numel()
