"""`GarScorer`: gradient-aligned scores for any causal language model, in any training loop."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gar.core import NORM_FLOOR, BestAlignment, best_alignment_scores, group_advantages, unit_rows
from gar.errors import ConfigError
from gar.methods import METHODS, ScoredBatch, ShapedRewards, check_settings, eligible_responses, resolve_signal
from gar.models.families import find_parts
from gar.scoring.forward import signal_means, token_shares
from gar.scoring.reader import GroupReader, Row
from gar.scoring.scores import ResponseGroup, ResponseScore, SignalStatus
from gar.settings import GROUP_DDOF, GROUP_EPS, AdvantageSettings, RewardSettings, SignalSettings
from gar.shaping import responses_to_score
from gar.spans import SpanRule, TokenSequence
from gar.types import ResponseVerifier, Status, Tags, Verdict

_METHOD = METHODS["gar-grpo"]


class GarScorer:
    """Scores groups of responses against expert solutions with the gradients of a policy.

    The model is used as it is, on its device and in its dtype, without gradients and in evaluation mode; modes are
    given back as they were. Its current weights count, so one scorer serves a whole training run. Under PEFT the
    adapter counts as it is switched: `with model.disable_adapter(): scorer.score(...)` scores the model beneath.

    Args:
        model: A causal language model of transformers, with or without a PEFT adapter.
        tokenizer: Its tokenizer.
        verifier: Judges responses against `ResponseGroup.answer`, for example `gar.verify.Verifier()`. None: every
            group says itself which responses are `eligible`, and the whole response is scored unless `signal.span`
            is "think".
        signal: Which tokens are scored, and how; `max_batch_tokens` bounds the memory of a forward pass.
        reward: From verdicts and alignment to rewards.
        advantage: Group normalisation; unset values are those of the variant `paper`: ddof 0, eps 1e-6.
        score_all: Compute the alignment of every response, not only where a bonus is possible. Rewards stay the same.

    Raises:
        ConfigError: Settings that nothing would read.
        ModelError: The model has no plain LM head, does something to its logits that the closed form does not cover,
            or the tokenizer has more tokens than the model.

    Example:
        >>> from gar.models.embedded import load_embedded
        >>> scorer = GarScorer(*load_embedded())
        >>> group = ResponseGroup(prompt="3+4=", responses=["7", "7"], anchors=["7"], eligible=[True, True])
        >>> [score.reward for score in scorer.score([group])]
        [1.0, 1.0]
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        verifier: ResponseVerifier | None = None,
        signal: SignalSettings | None = None,
        reward: RewardSettings | None = None,
        advantage: AdvantageSettings | None = None,
        score_all: bool = False,
    ):
        self._parts = find_parts(model)
        self._verifier = verifier
        method = _METHOD
        self._signal = resolve_signal(method, signal or SignalSettings())
        self._reward = reward or RewardSettings()
        self._advantage = advantage or AdvantageSettings()
        if self._advantage.estimator not in (None, "group"):
            raise ConfigError(
                f"advantage.estimator is '{self._advantage.estimator}', but a scorer normalises within groups: it does "
                "not know which responses make a batch. Whiten its rewards in your own loop."
            )
        check_settings(method, reward=self._reward, advantage=self._advantage)
        self._score_all = score_all
        tags = verifier.tags if verifier else Tags()
        rule = SpanRule.from_settings(
            self._signal, format=verifier.format if verifier else "none", tags=tags, tokenizer=tokenizer
        )
        self._reader = GroupReader(model, tokenizer, rule=rule, tags=tags, head_rows=len(self._parts.weight))

    def score(self, groups: Sequence[ResponseGroup], *, tokens: bool = False) -> list[ResponseScore]:
        """Score whole groups. What is wrong with one response is said in its score; the others go on.

        Args:
            groups: Responses by problem. Vectors of all of them exist at one time, so score a large file in parts.
            tokens: Also give each token's text and exact share in the alignment, for a second forward pass.

        Returns:
            One score per response, group by group, in the order given.

        Raises:
            ValueError: A group has neither `eligible` nor, with a verifier, an `answer`, or its lengths disagree.
            ModelError: Chat messages for a tokenizer without a chat template.
        """
        rows: list[Row] = []
        anchors: list[TokenSequence] = []
        anchor_groups: list[int] = []
        for index, group in enumerate(groups):
            _check_group(group, index, has_verifier=self._verifier is not None)
            mine = self._reader.read_group(group, index)
            usable = self._reader.read_anchors(group, mine)
            rows += mine
            anchors += usable
            anchor_groups += [index] * len(usable)
        if not rows:
            return []
        self._verify(groups, rows)
        facts = _facts(rows)
        needed = self._needed(facts, rows)
        best, norms, vectors = self._align(rows, needed, anchors, anchor_groups)
        scored = best.scored.cpu()
        facts = _facts(rows, alignment=best.scores.cpu().double().where(scored, torch.nan))
        _note_outcome(rows, needed, scored, norms)
        if tokens:
            self._attribute(rows, scored, best, vectors)
        return self._scores(groups, rows, facts, norms)

    def _verify(self, groups: Sequence[ResponseGroup], rows: Sequence[Row]) -> None:
        """A verdict for each response: the group's own, or the verifier's."""
        open_rows = []
        for row in rows:
            eligible = groups[row.group_index].eligible
            if eligible is None:
                open_rows.append(row)
            else:
                right = bool(eligible[row.response_index])
                row.verdict = Verdict(status=Status.OK, grade=float(right), verified=right, well_formatted=True)
        if not open_rows:
            return
        assert self._verifier is not None
        verdicts = self._verifier.verify(
            [row.text for row in open_rows],
            [str(groups[row.group_index].answer) for row in open_rows],
            prefilled_think=[row.prefilled for row in open_rows],
            prompts=[self._reader.prompt_text(groups[row.group_index].prompt) for row in open_rows],
        )
        for row, verdict in zip(open_rows, verdicts, strict=True):
            row.verdict = verdict

    def _needed(self, facts: ScoredBatch, rows: Sequence[Row]) -> Tensor:
        """Which responses to score: those that can be, and unless all are asked for, those that may earn a bonus."""
        possible = torch.tensor([row.fault is None for row in rows])
        return possible if self._score_all else responses_to_score(_METHOD, self._reward, facts, possible)

    def _align(
        self, rows: Sequence[Row], needed: Tensor, anchors: Sequence[TokenSequence], anchor_groups: Sequence[int]
    ) -> tuple[BestAlignment, Tensor, Tensor]:
        """Best cosines of all responses; norms of their means, NaN where not needed; unit vectors of the anchors."""
        members = needed.nonzero()[:, 0].tolist()
        groups = {rows[i].group_index for i in members}
        used = [j for j, group in enumerate(anchor_groups) if group in groups]
        found = signal_means(
            self._parts.gathered(),
            [*(rows[i].sequence for i in members), *(anchors[j] for j in used)],
            self._signal,
            keep_fractions=[1.0] * len(members) + [self._signal.anchor_keep_fraction] * len(used),
        )
        means = found.new_zeros(len(rows), found.shape[1])
        means[members] = found[: len(members)]
        vectors = unit_rows(found[len(members) :])
        device = found.device
        best = best_alignment_scores(
            unit_rows(means),
            torch.tensor([row.group_index for row in rows], device=device),
            vectors,
            torch.tensor([anchor_groups[j] for j in used], dtype=torch.long, device=device),
        )
        norms = means.double().norm(dim=-1).cpu().where(needed, torch.nan)
        return best, norms, vectors

    def _attribute(self, rows: Sequence[Row], scored: Tensor, best: BestAlignment, vectors: Tensor) -> None:
        members = scored.nonzero()[:, 0].tolist()
        shares = token_shares(
            self._parts.gathered(),
            [rows[i].sequence for i in members],
            vectors[best.anchor_index[members]],
            self._signal,
        )
        for row in rows:
            if row.fault is not SignalStatus.UNKNOWN_TOKENS:
                row.tokens = self._reader.pieces(row.sequence.ids)
        for i, values in zip(members, shares, strict=True):
            positions = rows[i].sequence.positions
            by_position = dict(zip(positions, values, strict=True))
            rows[i].shares = [by_position.get(position) for position in range(len(rows[i].sequence.ids))]

    def _scores(
        self, groups: Sequence[ResponseGroup], rows: Sequence[Row], facts: ScoredBatch, norms: Tensor
    ) -> list[ResponseScore]:
        shaped = _METHOD.shape(facts, self._reward)
        advantages = self._advantages(shaped, facts).tolist()
        eligible = eligible_responses(facts, self._reward).tolist()
        scores = []
        for i, row in enumerate(rows):
            group = groups[row.group_index]
            scores.append(
                ResponseScore(
                    id=group.id,
                    group_index=row.group_index,
                    response_index=row.response_index,
                    status=None if group.eligible is not None else row.verdict.status,
                    answer=row.verdict.answer,
                    verified=row.verdict.verified,
                    well_formatted=row.verdict.well_formatted,
                    eligible=eligible[i],
                    signal=row.outcome,
                    alignment=float(facts.alignment[i]) if facts.scored[i] else None,
                    signal_norm=float(norms[i]) if norms[i].isfinite() else None,
                    bonus=float(shaped.bonuses[i]),
                    penalty=float(shaped.penalties[i]),
                    reward=float(shaped.rewards[i]),
                    advantage=advantages[i],
                    num_tokens=len(row.sequence.ids),
                    num_scored_tokens=len(row.sequence.positions),
                    detail="; ".join([*row.notes, *([row.verdict.detail] if row.verdict.detail else [])]),
                    tokens=row.tokens,
                    token_shares=row.shares,
                )
            )
        return scores

    def _advantages(self, shaped: ShapedRewards, facts: ScoredBatch) -> Tensor:
        settings = self._advantage
        if settings.baseline == "none":
            return shaped.rewards
        return group_advantages(
            shaped.rewards,
            facts.group_index,
            scale="std",
            ddof=GROUP_DDOF if settings.ddof is None else settings.ddof,
            eps=GROUP_EPS if settings.eps is None else settings.eps,
            std_floor=settings.std_floor,
        )


def _check_group(group: ResponseGroup, index: int, *, has_verifier: bool) -> None:
    name = f"group {index}" + (f" ({group.id})" if group.id else "")
    if group.eligible is not None:
        if len(group.eligible) != len(group.responses):
            raise ValueError(
                f"{name}: eligible must have one entry per response, expected {len(group.responses)}, got "
                f"{len(group.eligible)}"
            )
    elif not has_verifier:
        raise ValueError(f"{name}: nothing says which responses are right. Give `eligible`, or the scorer a verifier.")
    elif group.answer is None:
        raise ValueError(f"{name}: no gold answer to verify against. Give `answer`, or `eligible`.")


def _facts(rows: Sequence[Row], alignment: Tensor | None = None) -> ScoredBatch:
    unknown = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    known = unknown if alignment is None else alignment
    return ScoredBatch(
        verified=torch.tensor([row.verdict.verified for row in rows]),
        well_formatted=torch.tensor([row.verdict.well_formatted for row in rows]),
        group_index=torch.tensor([row.group_index for row in rows]),
        alignment=known,
        scored=known.isfinite(),
    )


def _note_outcome(rows: Sequence[Row], needed: Tensor, scored: Tensor, norms: Tensor) -> None:
    """How the signal of each response ended."""
    for i, row in enumerate(rows):
        if row.fault is not None:
            row.outcome = row.fault
        elif scored[i]:
            row.outcome = SignalStatus.SCORED
        elif needed[i]:
            if not norms[i].isfinite():
                row.outcome = SignalStatus.NOT_FINITE
                row.notes.append("the model gave NaN or infinity for it")
            elif norms[i] < NORM_FLOOR:
                row.outcome = SignalStatus.NO_DIRECTION
            else:
                row.outcome = SignalStatus.NO_ANCHOR
                row.notes.append("its anchor has no usable vector")
