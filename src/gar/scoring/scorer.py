"""`GARScorer`: gradient-aligned scores for any causal language model, in any training loop."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gar.core import NORM_FLOOR
from gar.errors import DataError
from gar.methods import Engine, Method
from gar.models.families import find_parts
from gar.scoring.forward import signal_means, token_shares
from gar.scoring.reader import GroupReader, ReadResponse
from gar.scoring.scores import ResponseGroup, ResponseScore, SignalStatus
from gar.sequences import SpanRule, TokenSequence
from gar.settings import AdvantageSettings, RewardSettings, SignalSettings
from gar.step import ResponseFacts, Row, Shaped, Step, plan_shaping
from gar.types import ResponseVerifier, Status, Verdict

SCORER = Engine(
    name="GARScorer",
    can=frozenset({"anchor", "text", "length", "compares_responses"}),
    estimators={"group": ()},
)
"""A scorer sees only the groups of one call: no data set, no judge, no loss, and no batch to whiten over."""


class GARScorer:
    """Scores groups of responses against expert solutions with the gradients of a policy.

    The model is used as it is, on its device and in its dtype, without gradients and in evaluation mode. Its modes are
    restored. Each call uses the current weights, so one scorer serves a whole training run. Under PEFT an enabled
    adapter is used: `with model.disable_adapter(): scorer.score(...)` scores the base model.

    Args:
        model: A causal language model of transformers, with or without a PEFT adapter.
        tokenizer: Its tokenizer.
        method: Name of a method, or a method: `gar-grpo`, or any that needs neither a loss, a judge, a data set nor a
            whole batch (`SCORER.methods()`).
        verifier: Checks responses against `ResponseGroup.answer`, for example `gar.verify.Verifier()`. None: every
            group states which responses are `eligible`, and the whole response is scored unless `signal.span`
            is "think".
        signal: Which tokens are scored, and how. `max_batch_tokens` bounds the memory of a forward pass.
        reward: How verdicts and alignments become rewards.
        advantage: Group normalization. Unset values come from the variant `paper`: ddof 0, eps 1e-6.
        score_all: Compute the alignment of every response, even if no bonus is possible. Rewards stay the same.

    Raises:
        ConfigError: A method that a scorer cannot run, or settings that another one switches off.
        ModelError: The model has no plain LM head, does something to its logits that the closed form does not cover,
            or the tokenizer has more tokens than the model.

    Example:
        >>> from gar.models.embedded import load_embedded
        >>> scorer = GARScorer(*load_embedded())
        >>> group = ResponseGroup(prompt="3+4=", responses=["7", "7"], anchors=["7"], eligible=[True, True])
        >>> [score.reward for score in scorer.score([group])]
        [1.0, 1.0]
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        method: str | Method = "gar-grpo",
        verifier: ResponseVerifier | None = None,
        signal: SignalSettings | None = None,
        reward: RewardSettings | None = None,
        advantage: AdvantageSettings | None = None,
        score_all: bool = False,
    ):
        self._verifier = verifier
        sections = {"signal": signal, "reward": reward, "advantage": advantage}
        shaping = plan_shaping(SCORER, method, sections)
        self._shaping = replace(shaping, method=replace(shaping.method, scores_all=True)) if score_all else shaping
        self._parts = find_parts(model)
        rule = SpanRule.for_verifier(self._shaping.signal, verifier, tokenizer)
        self._reader = GroupReader(model, tokenizer, rule=rule, head_rows=len(self._parts.weight))

    def score(self, groups: Sequence[ResponseGroup], *, tokens: bool = False) -> list[ResponseScore]:
        """Score whole groups. A fault of one response is reported in its score and does not affect the others.

        Args:
            groups: Responses by problem. Vectors of all of them exist at one time, so score a large file in parts.
            tokens: Also give each token's text and exact share in the alignment, by a second forward pass.

        Returns:
            One score per response, group by group, in the order given.

        Raises:
            DataError: A group is no `ResponseGroup`, has neither `eligible` nor, with a verifier, an `answer`, or its
                lengths disagree.
            ModelError: Chat messages for a tokenizer without a chat template.
        """
        rows: list[ReadResponse] = []
        anchors: list[list[TokenSequence]] = []
        for index, group in enumerate(groups):
            _check_group(group, index, has_verifier=self._verifier is not None)
            group_rows = self._reader.read_group(group, index)
            rows += group_rows
            anchors.append(self._reader.read_anchors(group, group_rows) if self._shaping.method.needs_alignment else [])
        if not rows:
            return []
        self._verify(groups, rows)
        step = Step(
            self._shaping, [_step_row(row, anchors[row.group_index]) for row in rows], pieces=self._reader.pieces
        )
        means, norms = None, torch.full((len(rows),), torch.nan, dtype=torch.float64)
        if self._shaping.method.reads_vectors:
            parts, signal = self._parts.gathered(), self._shaping.signal
            means = signal_means(parts, step.sequences, signal, keep_fractions=step.keep_fractions)
            norms[step.members] = means[: len(step.members)].double().norm(dim=-1).cpu()
        shaped = step.finish(means)
        scores = self._scores(groups, rows, shaped, norms, step.needed)
        return self._with_tokens(scores, rows, shaped) if tokens else scores

    def _with_tokens(
        self, scores: list[ResponseScore], rows: Sequence[ReadResponse], shaped: Shaped
    ) -> list[ResponseScore]:
        """The scores with the text of each token and, of scored responses, its share in the alignment."""
        shares: dict[int, list[float | None]] = {}
        if shaped.aligned is not None:
            scored = shaped.batch.scored.nonzero()[:, 0].tolist()
            anchors = shaped.aligned.anchors[shaped.aligned.best.anchor_index[scored]]
            sequences = [rows[i].sequence for i in scored]
            values = token_shares(self._parts.gathered(), sequences, anchors, self._shaping.signal)
            for i, sequence, parts in zip(scored, sequences, values, strict=True):
                of_position = dict(zip(sequence.positions, parts, strict=True))
                shares[i] = [of_position.get(position) for position in range(len(sequence.ids))]
        return [
            replace(
                score,
                tokens=None if row.fault is SignalStatus.UNKNOWN_TOKENS else self._reader.pieces(row.sequence.ids),
                token_shares=shares.get(i),
            )
            for i, (score, row) in enumerate(zip(scores, rows, strict=True))
        ]

    def _verify(self, groups: Sequence[ResponseGroup], rows: Sequence[ReadResponse]) -> None:
        """Set the verdict of each response, from its group's `eligible` or from the verifier."""
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

    def _scores(
        self,
        groups: Sequence[ResponseGroup],
        rows: Sequence[ReadResponse],
        table: Shaped,
        norms: Tensor,
        needed: Tensor,
    ) -> list[ResponseScore]:
        advantages, shaped, facts = table.advantages(), table.shaped, table.batch
        has_vector = norms.isfinite() & (norms >= NORM_FLOOR)
        scored = facts.scored if self._shaping.method.needs_alignment else has_vector
        scores = []
        for i, row in enumerate(rows):
            group = groups[row.group_index]
            verdict = row.verdict
            outcome = row.fault or _outcome(bool(scored[i]), bool(needed[i]), float(norms[i]))
            remarks = [*row.notes, _REMARKS.get(outcome, "") if row.fault is None else "", verdict.detail]
            scores.append(
                ResponseScore(
                    id=group.id,
                    group_index=row.group_index,
                    response_index=row.response_index,
                    status=None if group.eligible is not None else verdict.status,
                    answer=verdict.answer,
                    verified=verdict.verified,
                    well_formatted=verdict.well_formatted,
                    eligible=bool(table.eligible[i]),
                    signal=outcome,
                    alignment=float(facts.alignment[i]) if facts.scored[i] else None,
                    signal_norm=float(norms[i]) if norms[i].isfinite() else None,
                    bonus=float(shaped.bonuses[i]),
                    penalty=float(shaped.penalties[i]),
                    reward=float(shaped.rewards[i]),
                    advantage=float(advantages[i]),
                    num_tokens=len(row.sequence.ids),
                    num_scored_tokens=len(row.sequence.positions),
                    detail="; ".join(filter(None, remarks)),
                )
            )
        return scores


def _check_group(group: ResponseGroup, index: int, *, has_verifier: bool) -> None:
    if not isinstance(group, ResponseGroup):
        raise DataError(f"group {index} is {type(group).__name__}, expected a ResponseGroup. For a file: gar score.")
    name, code = f"group {index}" + (f" ({group.id})" if group.id else ""), "group"
    if group.eligible is not None:
        num, got = len(group.responses), len(group.eligible)
        if num != got:
            raise DataError(f"{name}: eligible must have one entry per response, expected {num}, got {got}.", code=code)
    elif not has_verifier:
        raise DataError(f"{name}: which responses are right? Give `eligible`, or the scorer a verifier.", code=code)
    elif group.answer is None:
        raise DataError(f"{name}: no gold answer to verify against. Give `answer`, or `eligible`.", code=code)


def _step_row(row: ReadResponse, anchors: Sequence[TokenSequence]) -> Row:
    can_be_read = row.fault in (None, SignalStatus.NO_ANCHOR)
    facts = ResponseFacts(
        group_index=row.group_index,
        status=str(row.verdict.status),
        verified=row.verdict.verified,
        well_formatted=row.verdict.well_formatted,
        num_anchors=len(anchors),
        num_scored_tokens=len(row.sequence.positions) if can_be_read else 0,
    )
    return Row(facts=facts, sequence=row.sequence, anchors=anchors)


_REMARKS = {
    SignalStatus.NOT_FINITE: "the model gave NaN or infinity for it",
    SignalStatus.NO_ANCHOR: "its anchor has no usable vector",
}


def _outcome(scored: bool, needed: bool, norm: float) -> SignalStatus:
    """The status of a response that can be read. `norm` of its mean vector is NaN if none was computed."""
    if scored:
        return SignalStatus.SCORED
    if not needed:
        return SignalStatus.SKIPPED
    if not math.isfinite(norm):
        return SignalStatus.NOT_FINITE
    return SignalStatus.NO_DIRECTION if norm < NORM_FLOOR else SignalStatus.NO_ANCHOR
