"""All of GAR, from rows to rewards: the one path that every engine takes (TRL, `GARScorer`, slime, verl, your own).

    a method on an engine, with its settings          plan_shaping (gar.methods.plan)
    rows: verdicts, token ids, groups, anchors        SequenceReader, read_row
      -> who needs a vector                           Step.needed
      -> token sequences                              Step.sequences
      -> [the engine gives their mean vectors]
      -> alignment, rewards, advantages, metrics      Step.finish

An engine gives rows, computes the vectors of the sequences that need them, and takes rewards, advantages and metrics.
On several ranks it also gathers. `examples/add_an_engine.py` is a complete engine.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gar.core import BestAlignment, best_alignment_scores, group_deviations, group_sizes, unit_rows
from gar.methods import ScoredBatch, ShapedRewards, eligible_responses
from gar.methods.plan import Shaping
from gar.methods.plan import plan_shaping as plan_shaping
from gar.methods.similarity import SIMILARITIES, random_anchor_vectors
from gar.sequences import NO_ANCHORS, NO_SEQUENCE, AnchorSequences, SequenceReader, TokenPieces, TokenSequence
from gar.types import Status, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseFacts:
    """Facts about a response that need no vector. They are small, so every rank can hold the facts of all responses.

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
    """Tokens that enter its vector. 0 if they reach beyond the model's context."""
    too_long: bool = False
    """Its scored tokens reach beyond the model's context."""
    num_anchors_too_long: int = 0
    """Anchors of its problem that reach beyond the model's context."""
    empty: bool = False
    truncated: bool = False
    """It was cut off before its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A response: its facts, its tokens, and its problem's anchors that can be scored."""

    facts: ResponseFacts
    sequence: TokenSequence = NO_SEQUENCE
    anchors: Sequence[TokenSequence] = ()


def read_row(
    reader: SequenceReader,
    verdict: Verdict,
    sequence: TokenSequence,
    anchors: AnchorSequences = NO_ANCHORS,
    *,
    group_index: int,
    num_anchors: int | None = None,
    truncated: bool = False,
) -> Row:
    """The row of a response, from its tokens (`reader.response`), its verdict, and its problem's `reader.anchors`.

    `num_anchors`: the number of the problem's anchors, if the method reads none of them. None counts `anchors`.
    """
    fault = reader.fault(sequence)
    facts = ResponseFacts(
        group_index=group_index,
        status=str(verdict.status),
        verified=verdict.verified,
        well_formatted=verdict.well_formatted,
        num_anchors=len(anchors.usable) if num_anchors is None else num_anchors,
        num_scored_tokens=len(sequence.positions) if fault is None else 0,
        too_long=fault == "too long",
        num_anchors_too_long=anchors.num_too_long,
        empty=reader.is_empty(sequence.ids, sequence.mask),
        truncated=truncated,
    )
    return Row(facts=facts, sequence=sequence, anchors=anchors.usable)


class StepRanks:
    """The processes of a step: here one with all the rows. With several, all make each call together."""

    def gather(self, items: list[Any]) -> tuple[list[Any], int]:
        """The items of all ranks, in the order of the ranks, and the position of this rank's first."""
        return items, 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, with the device of `values`."""
        return values


_ALONE = StepRanks()


class Aligned(NamedTuple):
    """Responses of one process compared with the anchors of their groups.

    Attributes:
        best: The best cosine of each response, and the index of its anchor.
        vectors: [responses, hidden], unit rows. Zeros if none is needed.
        anchors: [anchors, hidden], unit rows.
    """

    best: BestAlignment
    vectors: Tensor
    anchors: Tensor


class Step:
    """The responses of one optimizer step, from verdicts to rewards.

    On several ranks each has its rows and the facts of all responses, so all decide equally. The vector of an anchor is
    computed on the rank with the first response of its group that needs a vector.

    Args:
        shaping: Method, engine and settings.
        rows: Responses of this process, in any order.
        ranks: How processes gather. By default this one has all the responses.
        pieces: The text of tokens, for a method that compares texts (`SequenceReader.pieces`).
        seed: Seed of random anchors.

    Attributes:
        facts: Facts of the responses of all ranks.
        group_index: Which problem each of these answers, int64.
        here: Positions of this process's rows among them.
        members: Indices in `rows` of the responses that need a vector.
        anchors: The sequences of the anchors with vectors from this process.
    """

    def __init__(
        self,
        shaping: Shaping,
        rows: Sequence[Row],
        *,
        ranks: StepRanks = _ALONE,
        pieces: TokenPieces | None = None,
        seed: int = 0,
    ):
        self.shaping, self.rows = shaping, rows
        self._ranks, self._pieces, self._seed = ranks, pieces, seed
        facts, start = self._ranks.gather([row.facts for row in rows])
        self.facts: list[ResponseFacts] = facts
        self.here = slice(start, start + len(rows))
        self.group_index = torch.tensor([fact.group_index for fact in facts], dtype=torch.long)
        self._batch = ScoredBatch(
            verified=torch.tensor([fact.verified for fact in facts], dtype=torch.bool),
            well_formatted=torch.tensor([fact.well_formatted for fact in facts], dtype=torch.bool),
            group_index=self.group_index,
            alignment=torch.full((len(facts),), torch.nan, dtype=torch.float64),
        )
        self.members: list[int] = self.needed[self.here].nonzero()[:, 0].tolist()
        self._list_anchors()

    @cached_property
    def eligible(self) -> Tensor:
        """Which responses of all ranks earn the base reward and may earn a bonus."""
        return eligible_responses(self._batch, self.shaping.reward)

    @cached_property
    def needed(self) -> Tensor:
        """Which responses of all ranks need a vector, or the method's substitute for one: bool [responses].

        The others have no bonus and do not affect their group's. The only candidate of a group has a centered alignment
        of 0. With a `bonus_weight` of 0 alignments are still logged [GAR, arXiv 2609.03342, eqs. 6 and 9].
        """
        method = self.shaping.method
        if not (method.needs_alignment or method.compares_responses):
            return torch.zeros_like(self.group_index, dtype=torch.bool)
        without_anchor = method.compares_responses
        can_score = [fact.num_scored_tokens > 0 and (without_anchor or fact.num_anchors > 0) for fact in self.facts]
        needed = torch.tensor(can_score, dtype=torch.bool)
        if method.scores_all or method.compares_responses:
            return needed
        needed &= self.eligible
        return needed & (group_sizes(self.group_index, needed) >= 2) if self.shaping.reward.center else needed

    @property
    def sequences(self) -> list[TokenSequence]:
        """The sequences with mean vectors from this process: the needed responses, then the anchors."""
        return [*(self.rows[i].sequence for i in self.members), *self.anchors]

    @property
    def keep_fractions(self) -> list[float]:
        """Share of the tokens of each sequence that counts (p_f)."""
        return [1.0] * len(self.members) + [self.shaping.signal.anchor_keep_fraction] * len(self.anchors)

    def finish(self, means: Tensor | None = None) -> "Shaped":
        """Rewards of the responses of all ranks. A collective.

        Args:
            means: Mean vectors of `sequences`, in their order, [sequences, hidden], perhaps of none. None for a method
                that reads no vectors, or if no response of any rank needs one.
        """
        method, aligned, vectors = self.shaping.method, None, None
        if means is not None:
            aligned = self._align(means)
            alignment = torch.where(aligned.best.scored, aligned.best.scores, torch.nan).cpu().double()
            if method.compares_responses:
                vectors = self._of_all_ranks(aligned.vectors.cpu())
        elif method.alignment in SIMILARITIES:
            alignment = self._similarities()
        else:
            alignment = torch.full((len(self.rows),), torch.nan, dtype=torch.float64)
        batch = replace(self._batch, alignment=self._of_all_ranks(alignment), vectors=vectors)
        return Shaped(self.shaping, self.facts, batch, self.eligible, method.shape(batch, self.shaping.reward), aligned)

    def _list_anchors(self) -> None:
        """Number the anchors of the needed groups equally on every rank, and keep this rank's."""
        self.anchors: list[TokenSequence] = []
        self._anchor_groups: list[int] = []
        self._own_anchors: list[int] = []
        if self.shaping.method.alignment not in ("anchor", "shuffled-anchor"):
            return
        first: dict[int, int] = {}
        for i in self.needed.nonzero()[:, 0].tolist():
            first.setdefault(self.facts[i].group_index, i)
        for group, i in first.items():
            if self.here.start <= i < self.here.stop:
                anchors = self.rows[i - self.here.start].anchors
                self._own_anchors += range(len(self._anchor_groups), len(self._anchor_groups) + len(anchors))
                self.anchors += anchors
            self._anchor_groups += [group] * self.facts[i].num_anchors

    def _align(self, means: Tensor) -> Aligned:
        groups = self.group_index[self.here].to(means.device)
        responses = means.new_zeros(len(self.rows), means.shape[1])
        responses[self.members] = means[: len(self.members)]
        vectors, anchor_groups = unit_rows(responses), self._anchor_groups
        if self.shaping.method.alignment == "random-anchor":
            anchor_groups = groups.unique().tolist()
            anchors = random_anchor_vectors(anchor_groups, means.shape[1], seed=self._seed).to(vectors)
        else:
            anchors = means.new_zeros(len(anchor_groups), means.shape[1])
            anchors[self._own_anchors] = means[len(self.members) :]
            anchors = unit_rows(self._ranks.sum(anchors))
        anchor_index = torch.tensor(anchor_groups, dtype=torch.long, device=means.device)
        return Aligned(best_alignment_scores(vectors, groups, anchors, anchor_index), vectors, anchors)

    def _similarities(self) -> Tensor:
        """Largest similarity of each needed response of this process to an anchor of its problem. NaN elsewhere."""
        assert self._pieces is not None, "a method that compares texts needs `pieces`"
        similarity = SIMILARITIES[str(self.shaping.method.alignment)]
        values = torch.full((len(self.rows),), torch.nan, dtype=torch.float64)
        for i in self.members:
            row = self.rows[i]
            usable = [anchor for anchor in row.anchors if anchor.positions]
            values[i] = max((similarity(row.sequence, a, self._pieces) for a in usable), default=torch.nan)
        return values

    def _of_all_ranks(self, values: Tensor) -> Tensor:
        """The rows of all ranks, from a row for each response of this process."""
        everything = values.new_zeros(len(self.facts), *values.shape[1:])
        everything[self.here] = values
        return self._ranks.sum(everything)


@dataclass(frozen=True)
class Shaped:
    """The responses of all ranks with their rewards.

    Attributes:
        shaping: Method, engine and settings.
        facts: One of each response.
        batch: The batch that the method read.
        eligible: Which responses earn the base reward.
        shaped: The method's rewards and their parts.
        aligned: This process's responses with their anchors, if vectors were compared.
    """

    shaping: Shaping
    facts: Sequence[ResponseFacts]
    batch: ScoredBatch
    eligible: Tensor
    shaped: ShapedRewards
    aligned: Aligned | None = None

    @property
    def rewards(self) -> Tensor:
        """Float64 [responses]."""
        return self.shaped.rewards

    def advantages(self, token_counts: Tensor | None = None) -> Tensor:
        """Advantages of all responses, as `Shaping.advantages`."""
        return self.shaping.advantages(self.rewards, self.batch.group_index, token_counts=token_counts)

    def metrics(self) -> dict[str, float]:
        """Logged metrics of a step: means over the responses, NaN if there is nothing to average.

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
            "gar/zero_std_group_fraction_outcome": _zero_std_fraction(outcomes, batch.group_index),
            "gar/zero_std_group_fraction_shaped": _zero_std_fraction(shaped.rewards, batch.group_index),
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


def _zero_std_fraction(rewards: Tensor, group_index: Tensor) -> float:
    """Share of groups with equal rewards, from which GRPO learns nothing."""
    uneven = group_index[group_deviations(rewards, group_index) != 0].unique().numel()
    return 1.0 - uneven / group_index.unique().numel()
