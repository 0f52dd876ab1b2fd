"""`GARScorer`: gradient-aligned scores for any causal language model, in any training loop."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from gar.core import NORM_FLOOR
from gar.errors import DataError, expect, expect_members
from gar.methods import Engine, Method
from gar.models.adapters import num_embeddings
from gar.models.families import find_parts
from gar.models.load import check_vocabulary
from gar.models.rope import context_of
from gar.reader import Reader, judge
from gar.response import NO_ANCHORS, Response, SignalStatus
from gar.scoring.forward import step_means, token_shares
from gar.scoring.scores import ResponseGroup, ResponseScore
from gar.settings import AdvantageSettings, RewardSettings, SignalSettings
from gar.step import Step, plan_shaping
from gar.types import A_VERIFIER, Problem, Prompt, ResponseVerifier, Verdict

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
        method: A method or its name, for example `gar-grpo`. It must need neither a loss, a judge, a data set nor a
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
        expect(verifier, ResponseVerifier | None, "verifier", A_VERIFIER)
        if not hasattr(tokenizer, "decode"):
            expect(tokenizer, (), "tokenizer", "the model's tokenizer")
        # Method and settings first: a mistake in them needs no look at the model.
        self._verifier = verifier
        sections = {"signal": signal, "reward": reward, "advantage": advantage}
        shaping = plan_shaping(SCORER, method, sections)
        self._shaping = replace(shaping, method=replace(shaping.method, scores_all=True)) if score_all else shaping
        # Embeddings and head may differ in size. Ids must fit both.
        self._parts = find_parts(model)
        check_vocabulary(tokenizer, model)
        self._reader = Reader.from_settings(
            tokenizer,
            self._shaping.signal,
            verifier,
            context=context_of(model.config),
            vocabulary=min(num_embeddings(model), len(self._parts.weight)),
        )

    def score(self, groups: Sequence[ResponseGroup], *, tokens: bool = False) -> list[ResponseScore]:
        """Score whole groups. A fault of one response is reported in its score and does not affect the others.

        Args:
            groups: Responses by problem. All their vectors are in memory at one time, so score a large file in parts.
            tokens: Also give each token's text and exact share in the alignment, by a second forward pass.

        Returns:
            One score per response, group by group, in the order given.

        Raises:
            DataError: A group is no `ResponseGroup`, has neither `eligible` nor, with a verifier, an `answer`, or its
                lengths disagree.
            ModelError: Chat messages for a tokenizer without a chat template.
        """
        expect_members(groups, ResponseGroup, "groups", "a gar.ResponseGroup", error=DataError)
        # 1. Read and judge the responses, and find out which need a vector.
        responses = self._responses(groups)
        if not responses:
            return []
        step = Step(self._shaping, responses, pieces=self._reader.pieces)
        # 2. Make the vectors.
        vectors, anchors, norms = None, None, torch.full((len(responses),), torch.nan, dtype=torch.float64)
        if self._shaping.method.reads_vectors:
            vectors, anchors = step_means(self._parts.gathered(), step.sequences, step.anchors, self._shaping.signal)
            norms[step.members] = vectors.double().norm(dim=-1).cpu()
        # 3. Shape the rewards.
        step.finish(vectors, anchors)
        scores = self._scores(groups, step, norms)
        return self._with_tokens(scores, step) if tokens else scores

    def _responses(self, groups: Sequence[ResponseGroup]) -> list[Response]:
        """The responses of all groups, with anchors and verdicts: the group's own, or the verifier's."""
        responses, asked, problems = list[Response](), list[int](), list[Problem]()
        for index, group in enumerate(groups):
            _check_group(group, index, has_verifier=self._verifier is not None)
            prompt_ids, text = self._read_prompt(group.prompt)
            solutions = group.anchors if self._shaping.method.needs_alignment else ()
            anchors = self._reader.anchors(prompt_ids, solutions) if len(group.responses) else NO_ANCHORS
            problem = Problem(id=group.id, prompt=text, answer=group.answer or "", question=group.question)
            for number, given in enumerate(group.responses):
                ids = given if isinstance(given, str) else [int(token) for token in given]
                response = self._reader.read(prompt_ids, ids, anchors=anchors, group_index=index)
                if group.eligible is None:
                    asked.append(len(responses))
                    problems.append(problem)
                else:
                    response = replace(response, verdict=Verdict.decided(bool(group.eligible[number])))
                responses.append(response)
        if self._verifier is not None:
            for i, judged in zip(asked, judge(self._verifier, [responses[i] for i in asked], problems), strict=True):
                responses[i] = judged
        return responses

    def _read_prompt(self, prompt: Prompt | Sequence[int]) -> tuple[list[int], Prompt]:
        """Token ids and text of a prompt."""
        if isinstance(prompt, str) or (len(prompt) > 0 and isinstance(prompt[0], Mapping)):
            text = cast(Prompt, prompt)
            return self._reader.encode(text), text
        ids = [int(token) for token in cast(Sequence[int], prompt)]
        return ids, self._reader.prompt_text(ids)

    def _with_tokens(self, scores: list[ResponseScore], step: Step) -> list[ResponseScore]:
        """The scores with the text of each token and, of scored responses, its share in the alignment."""
        shares: dict[int, list[float | None]] = {}
        if step.nearest is not None:
            scored = step.batch.scored.nonzero()[:, 0].tolist()
            anchors = step.anchor_vectors[step.nearest.anchor_index[scored]]
            sequences = [step.responses[i].sequence for i in scored]
            values = token_shares(self._parts.gathered(), sequences, anchors, self._shaping.signal)
            for i, sequence, parts in zip(scored, sequences, values, strict=True):
                of_position = dict(zip(sequence.positions, parts, strict=True))
                shares[i] = [of_position.get(position) for position in range(len(sequence.ids))]
        return [
            replace(
                score,
                tokens=None
                if score.signal is SignalStatus.UNKNOWN_TOKENS
                else self._reader.pieces(response.sequence.ids),
                token_shares=shares.get(i),
            )
            for i, (score, response) in enumerate(zip(scores, step.responses, strict=True))
        ]

    def _scores(self, groups: Sequence[ResponseGroup], step: Step, norms: Tensor) -> list[ResponseScore]:
        needs_anchor = self._shaping.method.needs_alignment
        advantages, has_vector = step.advantages(), norms.isfinite() & (norms >= NORM_FLOOR)
        scored = step.batch.scored if needs_anchor else has_vector
        scores, numbers = [], Counter[int]()
        for i, response in enumerate(step.responses):
            group, verdict = groups[response.group_index], response.verdict
            # A fault of the response comes first. Without one, the vectors decide.
            signal, remarks = _signal(response, needs_anchor=needs_anchor)
            if signal is None:
                signal = _outcome(bool(scored[i]), bool(step.needed[i]), float(norms[i]))
                remarks.append(_REMARKS.get(signal, ""))
            scores.append(
                ResponseScore(
                    id=group.id,
                    group_index=response.group_index,
                    response_index=numbers[response.group_index],
                    status=None if group.eligible is not None else verdict.status,
                    answer=verdict.answer,
                    verified=verdict.verified,
                    well_formatted=verdict.well_formatted,
                    **step.values(i),
                    signal=signal,
                    signal_norm=float(norms[i]) if norms[i].isfinite() else None,
                    advantage=float(advantages[i]),
                    num_tokens=response.num_tokens,
                    num_scored_tokens=len(response.sequence.positions),
                    detail="; ".join(filter(None, [*remarks, verdict.detail])),
                )
            )
            numbers[response.group_index] += 1
        return scores


def _signal(response: Response, *, needs_anchor: bool) -> tuple[SignalStatus | None, list[str]]:
    """Why a response cannot be scored, None if it can, and remarks on it and its anchors."""
    fault, anchors = response.fault, response.anchors
    remarks = [] if fault is None else [fault.text]
    prompt_is_known = fault is None or fault.status is not SignalStatus.UNKNOWN_TOKENS
    if needs_anchor and prompt_is_known:
        remarks += [f"its expert solution cannot be used ({status}): {text}" for status, text in anchors.faults]
    if fault is not None:
        return fault.status, remarks
    if needs_anchor and not anchors.usable:
        return SignalStatus.NO_ANCHOR, remarks
    scored = response.sequence.scored_ids
    if any(anchor.scored_ids == scored for anchor in anchors.usable):
        remarks.append("equals its expert solution")
    return None, remarks


def _check_group(group: ResponseGroup, index: int, *, has_verifier: bool) -> None:
    name, code = f"group {index}" + (f" ({group.id})" if group.id else ""), "group"
    for field in ("responses", "anchors"):
        expect_members(getattr(group, field), Iterable, f"{name}: {field}", "a text or token ids", error=DataError)
    if group.eligible is not None:
        num, got = len(group.responses), len(group.eligible)
        if num != got:
            raise DataError(f"{name}: eligible must have one entry per response, expected {num}, got {got}.", code=code)
        if unclear := [value for value in group.eligible if value not in (False, True)]:
            raise DataError(
                f"{name}: eligible holds {unclear[0]!r}, expected True or False. Of rewards, give "
                "[reward > 0 for reward in rewards].",
                code=code,
            )
    elif not has_verifier:
        raise DataError(f"{name}: which responses are right? Give `eligible`, or the scorer a verifier.", code=code)
    elif group.answer is None:
        raise DataError(f"{name}: no gold answer to verify against. Give `answer`, or `eligible`.", code=code)


_REMARKS = {
    SignalStatus.NOT_FINITE: "the model gave NaN or infinity for it",
    SignalStatus.NO_ANCHOR: "its expert solution has no usable vector",
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
