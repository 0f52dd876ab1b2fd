"""Evaluate a policy on a set of problems: sample, verify, count."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedModel

from gar.errors import DataError
from gar.evaluation.metrics import mean, pass_at_k
from gar.models.generate import Sampling, generate_responses
from gar.reader import encode_prompt, ends_in_thinking_tag, judge, token_pieces
from gar.records.files import canonical_hash
from gar.records.rollouts import SampleRecord, response_record
from gar.response import Response
from gar.settings import EvaluateSettings
from gar.types import Problem, ResponseFormat, ResponseVerifier, Status, Tags


@dataclass(frozen=True, kw_only=True, slots=True)
class SetResult:
    """The judged responses to each problem of a set, the k of pass@k, and how the responses were read."""

    problems: Sequence[Problem]
    groups: Sequence[Sequence[Response]]
    ks: Sequence[int]
    format: ResponseFormat

    @property
    def pass_at(self) -> dict[int, float]:
        """pass@k for each k, the mean over problems. Correct means verified and well formatted."""
        return {k: mean(pass_at_k(len(group), num_correct(group), k) for group in self.groups) for k in self.ks}

    def to_json(self) -> dict[str, Any]:
        """The numbers without the texts: `{"num_problems": 200, ..., "pass_at": {"1": 0.31}, ...}`.

        `problems_hash` is of what was asked and graded against: two sets with the same ids may differ in it.
        `truncated_fraction` is the share of responses without an end token within the limit, and
        `mean_response_tokens` counts end tokens.
        """
        responses = list(itertools.chain.from_iterable(self.groups))
        statuses = Counter(response.verdict.status for response in responses)
        asked = [[problem.id, problem.prompt, problem.answer] for problem in self.problems]
        counts = zip(self.problems, map(num_correct, self.groups), strict=True)
        return {
            "num_problems": len(self.groups),
            "problems_hash": canonical_hash(asked),
            "num_samples": len(self.groups[0]),
            "format": self.format,
            "pass_at": {str(k): value for k, value in self.pass_at.items()},
            "mean_response_tokens": mean(response.num_tokens for response in responses),
            "truncated_fraction": mean(response.truncated for response in responses),
            "well_formatted_fraction": mean(response.verdict.well_formatted for response in responses),
            "verified_fraction": mean(response.verdict.verified for response in responses),
            "status_counts": {status.value: statuses[status] for status in Status},
            "problems": [{"id": problem.id, "num_correct": number} for problem, number in counts],
        }

    def samples(self, set_name: str) -> list[SampleRecord]:
        """Every response with its verdict, as a file of samples holds it."""
        return [
            SampleRecord(
                set_name=set_name,
                **response_record(problem, response),
                group_index=number,
                response_index=index,
            )
            for number, (problem, group) in enumerate(zip(self.problems, self.groups, strict=True))
            for index, response in enumerate(group)
        ]


def num_correct(group: Sequence[Response]) -> int:
    """How many responses are verified and well formatted."""
    return sum(response.is_correct for response in group)


def evaluate_policy(
    model: PreTrainedModel,
    tokenizer: Any,
    problems: Sequence[Problem],
    verifier: ResponseVerifier,
    settings: EvaluateSettings,
    *,
    seed: int,
    max_new_tokens: int,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> SetResult:
    """Sample responses to the first `settings.max_problems`, verify them, and estimate pass@k.

    Raises:
        DataError, ModelError: As `sample_groups`.
    """
    sampling = Sampling(
        num_samples=settings.num_samples,
        max_new_tokens=max_new_tokens,
        temperature=settings.temperature,
        seed=seed,
        batch_size=settings.batch_size,
        chat_template_kwargs=chat_template_kwargs,
    )
    asked = problems[: settings.max_problems]
    groups = sample_groups(model, tokenizer, asked, verifier, sampling, progress="evaluate")
    return SetResult(problems=asked, groups=groups, ks=settings.pass_at_k, format=verifier.format)


def sample_groups(
    model: PreTrainedModel,
    tokenizer: Any,
    problems: Sequence[Problem],
    verifier: ResponseVerifier,
    sampling: Sampling,
    *,
    progress: str | None = None,
) -> list[list[Response]]:
    """Sample a group of responses to each problem, and verify them. Without `progress` there is no bar.

    Raises:
        DataError: There are no problems, or a prompt does not fit into the context.
        ModelError: As `generate_responses`.
    """
    if not problems:
        raise DataError("there are no problems to sample responses to. Is the file empty, or was every row dropped?")
    prompt_ids, prefilled = encode_prompts(tokenizer, problems, verifier.tags, sampling.chat_template_kwargs)
    sampled = generate_responses(model, tokenizer, prompt_ids, sampling, tags=verifier.tags, progress=progress)
    return judged_groups(verifier, problems, sampled, prefilled=prefilled)


def encode_prompts(
    tokenizer: Any, problems: Sequence[Problem], tags: Tags, template: Mapping[str, Any] | None = None
) -> tuple[list[list[int]], list[bool]]:
    """The token ids of each prompt, and whether it ends in the opening thinking tag. Raises as `encode_prompt`."""
    pieces = token_pieces(tokenizer)
    prompt_ids = [encode_prompt(tokenizer, problem.prompt, chat_template_kwargs=template) for problem in problems]
    return prompt_ids, [ends_in_thinking_tag(ids, pieces, tags) for ids in prompt_ids]


def judged_groups(
    verifier: ResponseVerifier,
    problems: Sequence[Problem],
    groups: Sequence[Sequence[Response]],
    *,
    prefilled: Sequence[bool],
) -> list[list[Response]]:
    """The responses to each problem with their verdicts. `prefilled` prompts open the thinking part."""
    rows = [
        (replace(response, prefilled=flag), problem)
        for problem, group, flag in zip(problems, groups, prefilled, strict=True)
        for response in group
    ]
    judged = iter(judge(verifier, [response for response, _ in rows], [problem for _, problem in rows]))
    return [list(itertools.islice(judged, len(group))) for group in groups]
