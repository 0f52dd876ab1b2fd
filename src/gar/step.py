"""All of GAR, from responses to rewards: the one path of every engine (TRL, `GARScorer`, slime, verl, yours).

    a method on an engine, with its settings          plan_shaping (gar.methods.plan)
    token ids, texts, anchors                         Reader.read, Reader.anchors
      -> verdicts                                     judge
      -> who needs a vector                           Step.needed
      -> token sequences                              Step.sequences, Step.anchors
      -> [the engine gives their mean vectors]
      -> alignment, rewards                           Step.finish
      -> advantages, metrics                          Step.advantages, Step.metrics

An engine gives responses, computes the vectors of those that need them, and takes rewards, advantages and metrics. On
several ranks it also gathers. `examples/add_an_engine.py` is a complete engine.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gar import metrics
from gar.core import BestAlignment, best_alignment_scores, group_deviations, group_sizes, unit_rows
from gar.methods import ScoredBatch, ShapedRewards, eligible_responses
from gar.methods.gar import SIMILARITIES, random_anchor_vectors
from gar.methods.plan import Shaping
from gar.methods.plan import plan_shaping as plan_shaping
from gar.reader import TokenPieces
from gar.response import Response, SignalStatus, TokenSequence
from gar.types import Status

_TOO_LONG = SignalStatus.TOO_LONG


class StepRanks:
    """The processes of a step: here one with all the rows. With several, all make each call together."""

    def gather(self, items: list[Any]) -> tuple[list[Any], int]:
        """The items of all ranks, in the order of the ranks, and the position of this rank's first."""
        return items, 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, with the device of `values`."""
        return values


_ALONE = StepRanks()


class Step:
    """The responses of one optimizer step, from verdicts to rewards.

    On several ranks each has its responses and the facts of all, so all decide equally. The vector of an anchor is
    computed on the rank with the first response of its group that needs a vector.

    Args:
        shaping: Method, engine and settings.
        responses: Those of this process, in any order.
        ranks: How processes gather. By default this one has all the responses.
        pieces: The text of tokens, for a method that compares texts (`Reader.pieces`).
        seed: Seed of random anchors.

    Attributes:
        facts: The responses of all ranks, without tokens and texts.
        group_index: The problem of each of these responses, int64.
        here: Positions of this process's responses among them.
        members: Indices in `responses` of those that need a vector.
        anchors: The sequences of the anchors with vectors from this process.
        batch: What the method reads. Complete after `finish`.
        shaped: The method's rewards of all responses and their parts, after `finish`.
        nearest: The best cosine of each of `responses` and the index of its anchor, after `finish` with vectors.
        anchor_vectors: Unit rows of the anchors that `nearest` counts, [anchors, hidden].
    """

    def __init__(
        self,
        shaping: Shaping,
        responses: Sequence[Response],
        *,
        ranks: StepRanks = _ALONE,
        pieces: TokenPieces | None = None,
        seed: int = 0,
    ):
        self.shaping, self.responses = shaping, responses
        self._ranks, self._pieces, self._seed = ranks, pieces, seed
        facts, start = self._ranks.gather([response.facts() for response in responses])
        self.facts: list[Response] = facts
        self.here = slice(start, start + len(responses))
        self.group_index = torch.tensor([fact.group_index for fact in facts], dtype=torch.long)
        self.batch = ScoredBatch(
            verified=torch.tensor([fact.verdict.verified for fact in facts], dtype=torch.bool),
            well_formatted=torch.tensor([fact.verdict.well_formatted for fact in facts], dtype=torch.bool),
            num_tokens=torch.tensor([fact.num_tokens for fact in facts], dtype=torch.long),
            group_index=self.group_index,
            alignment=torch.full((len(facts),), torch.nan, dtype=torch.float64),
        )
        self.members: list[int] = self.needed[self.here].nonzero()[:, 0].tolist()
        self.shaped: ShapedRewards
        self.nearest: BestAlignment | None = None
        self._list_anchors()

    @cached_property
    def eligible(self) -> Tensor:
        """Which responses of all ranks earn the base reward and may earn a bonus."""
        return eligible_responses(self.batch, self.shaping.reward)

    @cached_property
    def needed(self) -> Tensor:
        """Which responses of all ranks need a vector, or the method's substitute for one: bool [responses].

        The others have no bonus and do not affect their group's. The only candidate of a group has a centered alignment
        of 0. With a `bonus_weight` of 0 alignments are still logged [GAR, arXiv 2609.03342, eqs. 6 and 9].
        """
        method = self.shaping.method
        if not (method.needs_alignment or method.compares_responses):
            return torch.zeros_like(self.group_index, dtype=torch.bool)
        has_anchor = [method.compares_responses or bool(fact.anchors.usable) for fact in self.facts]
        can_score = [fact.num_scored_tokens > 0 for fact in self.facts]
        needed = torch.tensor(can_score, dtype=torch.bool) & torch.tensor(has_anchor, dtype=torch.bool)
        if method.scores_all or method.compares_responses:
            return needed
        needed &= self.eligible
        return needed & (group_sizes(self.group_index, needed) >= 2) if self.shaping.reward.center else needed

    @property
    def needs_vectors(self) -> bool:
        """Whether a response of any rank needs a vector. Then all ranks take part in making them."""
        return self.shaping.method.reads_vectors and bool(self.needed.any())

    @property
    def sequences(self) -> list[TokenSequence]:
        """The sequences of the needed responses of this process."""
        return [self.responses[i].sequence for i in self.members]

    def finish(self, vectors: Tensor | None = None, anchors: Tensor | None = None) -> ShapedRewards:
        """Rewards of the responses of all ranks. A collective.

        Args:
            vectors: Mean vectors of `sequences`, [members, hidden], perhaps of none. None for a method that reads no
                vectors, or if no response of any rank needs one.
            anchors: Mean vectors of `anchors`, [anchors, hidden].
        """
        method = self.shaping.method
        # 1. The alignment of this process's responses, NaN where there is none.
        if vectors is not None:
            unit = unit_rows(self._placed(vectors, self.members, len(self.responses)))
            self.nearest = self._nearest_anchors(unit, anchors)
            alignment = torch.where(self.nearest.scored, self.nearest.scores, torch.nan).cpu().double()
            if method.compares_responses:
                self.batch = replace(self.batch, vectors=self._of_all_ranks(unit.cpu()))
        elif method.alignment in SIMILARITIES:
            alignment = self._similarities()
        else:
            alignment = torch.full((len(self.responses),), torch.nan, dtype=torch.float64)
        # 2. Every rank gets all alignments, and so shapes the same rewards.
        self.batch = replace(self.batch, alignment=self._of_all_ranks(alignment))
        self.shaped = method.shape(self.batch, self.shaping.reward)
        return self.shaped

    def advantages(self, token_counts: Tensor | None = None) -> Tensor:
        """Advantages of all responses after `finish`, as `Shaping.advantages`."""
        return self.shaping.advantages(self.shaped.rewards, self.group_index, token_counts=token_counts)

    def values(self, place: int) -> dict[str, Any]:
        """The results of `finish` for one response, by its position in `facts`, for the records."""
        return {
            "eligible": bool(self.eligible[place]),
            "alignment": float(self.batch.alignment[place]) if self.batch.scored[place] else None,
            "bonus": float(self.shaped.bonuses[place]),
            "penalty": float(self.shaped.penalties[place]),
            "reward": float(self.shaped.rewards[place]),
        }

    def _list_anchors(self) -> None:
        """Number the anchors of the needed groups equally on every rank, and keep this rank's."""
        self.anchors: list[TokenSequence] = []
        self._anchor_groups: list[int] = []
        self._own_anchors: list[int] = []
        if self.shaping.method.alignment not in ("anchor", "shuffled-anchor"):
            return
        # The first needed response of a group brings the anchors of its problem.
        first: dict[int, int] = {}
        for i in self.needed.nonzero()[:, 0].tolist():
            first.setdefault(self.facts[i].group_index, i)
        for group, i in first.items():
            count = len(self.facts[i].anchors.usable)
            # The process that has this response makes their vectors.
            if self.here.start <= i < self.here.stop:
                self._own_anchors += range(len(self._anchor_groups), len(self._anchor_groups) + count)
                self.anchors += self.responses[i - self.here.start].anchors.usable
            self._anchor_groups += [group] * count

    def _nearest_anchors(self, vectors: Tensor, anchors: Tensor | None) -> BestAlignment:
        """Compare this process's unit rows with the anchors of their groups, from all ranks."""
        groups, width = self.group_index[self.here].to(vectors.device), vectors.shape[1]
        anchor_groups = self._anchor_groups
        if self.shaping.method.alignment == "random-anchor":
            anchor_groups = groups.unique().tolist()
            self.anchor_vectors = random_anchor_vectors(anchor_groups, width, seed=self._seed).to(vectors)
        else:
            # Each anchor has a row of its own on one rank and zeros on the others, so that a sum gathers them.
            own = vectors.new_zeros(0, width) if anchors is None else anchors
            every = self._ranks.sum(self._placed(own, self._own_anchors, len(anchor_groups)))
            self.anchor_vectors = unit_rows(every)
        anchor_index = torch.tensor(anchor_groups, dtype=torch.long, device=vectors.device)
        return best_alignment_scores(vectors, groups, self.anchor_vectors, anchor_index)

    @staticmethod
    def _placed(values: Tensor, places: Sequence[int], count: int) -> Tensor:
        """`count` rows: the values at their places, zeros elsewhere."""
        rows = values.new_zeros(count, values.shape[1])
        rows[places] = values
        return rows

    def _similarities(self) -> Tensor:
        """Largest similarity of each needed response of this process to an anchor of its problem. NaN elsewhere."""
        assert self._pieces is not None, "a method that compares texts needs `pieces`"
        similarity = SIMILARITIES[str(self.shaping.method.alignment)]
        values = torch.full((len(self.responses),), torch.nan, dtype=torch.float64)
        for i in self.members:
            response = self.responses[i]
            values[i] = max(similarity(response.sequence, a, self._pieces) for a in response.anchors.usable)
        return values

    def _of_all_ranks(self, values: Tensor) -> Tensor:
        """The rows of all ranks, from a row for each response of this process."""
        everything = values.new_zeros(len(self.facts), *values.shape[1:])
        everything[self.here] = values
        return self._ranks.sum(everything)

    def _paid(self) -> Tensor:
        """The bonuses of the scored responses. Without an alignment, of all responses if any has a bonus."""
        bonuses = self.shaped.bonuses
        if self.shaping.method.needs_alignment:
            return bonuses[self.batch.scored]
        return bonuses if bool(bonuses.any()) else bonuses[:0]

    def metrics(self) -> dict[str, float]:
        """Logged metrics after `finish`: means over the responses of all ranks, NaN if there is nothing to average.

        docs/glossary.md defines each.
        """
        batch, facts, shaped, total = self.batch, self.facts, self.shaped, len(self.facts)
        outcomes = shaped.outcomes + shaped.penalties
        alignment = batch.alignment[batch.scored]
        statuses = Counter(fact.verdict.status for fact in facts)
        anchor_faults = [{fault.status for fault in fact.anchors.faults} for fact in facts]
        return {
            metrics.VERIFIED: _mean(batch.verified),
            metrics.WELL_FORMATTED: _mean(batch.well_formatted),
            metrics.ELIGIBLE: _mean(self.eligible),
            metrics.SCORED: _mean(batch.scored),
            metrics.ALIGNMENT: _mean(alignment),
            metrics.ALIGNMENT_STD: float(alignment.std(correction=0)) if len(alignment) else float("nan"),
            metrics.BONUS: _mean(self._paid()),
            metrics.OUTCOME: _mean(outcomes),
            metrics.ZERO_STD_OUTCOME: _zero_std_fraction(outcomes, batch.group_index),
            metrics.ZERO_STD_SHAPED: _zero_std_fraction(shaped.rewards, batch.group_index),
            metrics.NO_ANCHOR: sum(not fact.anchors.usable for fact in facts) / total,
            metrics.NO_SIGNAL: sum(fact.num_scored_tokens == 0 for fact in facts) / total,
            metrics.TOO_LONG: sum(bool(f.fault and f.fault.status is _TOO_LONG) for f in facts) / total,
            metrics.ANCHOR_TOO_LONG: sum(_TOO_LONG in faults for faults in anchor_faults) / total,
            metrics.EMPTY: sum(fact.empty for fact in facts) / total,
            metrics.TRUNCATED: sum(fact.truncated for fact in facts) / total,
            **{metrics.with_status(status): statuses[status] / total for status in Status},
        }


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")


def _zero_std_fraction(rewards: Tensor, group_index: Tensor) -> float:
    """Share of groups with equal rewards, from which GRPO learns nothing."""
    uneven = group_index[group_deviations(rewards, group_index) != 0].unique().numel()
    return 1.0 - uneven / group_index.unique().numel()
