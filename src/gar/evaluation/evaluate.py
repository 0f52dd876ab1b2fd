"""Evaluate a policy on a set of problems: sample, verify, count."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from transformers import PreTrainedModel

from gar.data.problems import prompt_text
from gar.errors import DataError
from gar.evaluation.metrics import mean, pass_at_k
from gar.records.files import canonical_hash
from gar.records.rollouts import SampleRecord
from gar.rollouts.generate import Response, encode_prompt, generate_responses
from gar.sequences import ends_in_thinking_tag, token_pieces
from gar.settings import EvaluateSettings
from gar.types import Problem, ResponseFormat, ResponseVerifier, Status, Tags, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How responses are drawn. The fields are arguments of `generate_responses` and `encode_prompt`."""

    max_new_tokens: int
    temperature: float
    top_p: float = 1.0
    seed: int
    batch_size: int = 64
    chat_template_kwargs: Mapping[str, Any] | None = None
    generation_kwargs: Mapping[str, Any] | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of `generate_responses`."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "chat_template_kwargs"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The responses to one problem, and the verifier's verdict on each."""

    problem: Problem
    responses: tuple[Response, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def num_samples(self) -> int:
        """Responses to the problem."""
        return len(self.responses)

    @property
    def num_correct(self) -> int:
        """Responses that are verified and well formatted."""
        return sum(verdict.verified and verdict.well_formatted for verdict in self.verdicts)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetResult:
    """The groups of one set, in the order of its problems, the k of pass@k, and how the responses were read."""

    groups: tuple[Group, ...]
    ks: Sequence[int]
    format: ResponseFormat

    @property
    def pass_at(self) -> dict[int, float]:
        """pass@k for each k, the mean over problems. Correct means verified and well formatted."""
        return {k: mean(pass_at_k(group.num_samples, group.num_correct, k) for group in self.groups) for k in self.ks}

    def to_json(self) -> dict[str, Any]:
        """The numbers without the texts: `{"num_problems": 200, ..., "pass_at": {"1": 0.31}, ...}`.

        `problems_hash` is of what was asked and graded against: two sets with the same ids may differ in it.
        `truncated_fraction` is the share of responses without an end token within the limit, and
        `mean_response_tokens` counts end tokens.
        """
        problems = [group.problem for group in self.groups]
        verdicts = [verdict for group in self.groups for verdict in group.verdicts]
        responses = [response for group in self.groups for response in group.responses]
        statuses = Counter(verdict.status for verdict in verdicts)
        return {
            "num_problems": len(self.groups),
            "problems_hash": canonical_hash([[problem.id, problem.prompt, problem.answer] for problem in problems]),
            "num_samples": self.groups[0].num_samples,
            "format": self.format,
            "pass_at": {str(k): value for k, value in self.pass_at.items()},
            "mean_response_tokens": mean(response.num_tokens for response in responses),
            "truncated_fraction": mean(response.truncated for response in responses),
            "well_formatted_fraction": mean(verdict.well_formatted for verdict in verdicts),
            "verified_fraction": mean(verdict.verified for verdict in verdicts),
            "status_counts": {status.value: statuses[status] for status in Status},
            "problems": [{"id": group.problem.id, "num_correct": group.num_correct} for group in self.groups],
        }

    def samples(self, set_name: str) -> list[SampleRecord]:
        """Every response with its verdict, as a file of samples holds it."""
        return [
            SampleRecord(
                set_name=set_name,
                problem_id=group.problem.id,
                group_index=number,
                response_index=index,
                prompt=str(group.problem.prompt),
                response=response.text,
                gold=group.problem.answer,
                answer=verdict.answer,
                status=verdict.status,
                verified=verdict.verified,
                well_formatted=verdict.well_formatted,
                num_tokens=response.num_tokens,
                truncated=response.truncated,
            )
            for number, group in enumerate(self.groups)
            for index, (response, verdict) in enumerate(zip(group.responses, group.verdicts, strict=True))
        ]


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
        max_new_tokens=max_new_tokens,
        temperature=settings.temperature,
        seed=seed,
        batch_size=settings.batch_size,
        chat_template_kwargs=chat_template_kwargs,
    )
    number, asked = settings.num_samples, problems[: settings.max_problems]
    groups = sample_groups(model, tokenizer, asked, verifier, sampling, num_samples=number, progress="evaluate")
    return SetResult(groups=groups, ks=settings.pass_at_k, format=verifier.format)


def sample_groups(
    model: PreTrainedModel,
    tokenizer: Any,
    problems: Sequence[Problem],
    verifier: ResponseVerifier,
    sampling: Sampling,
    *,
    num_samples: int,
    progress: str | None = None,
) -> tuple[Group, ...]:
    """Sample a group of responses to each problem, and verify them. Without `progress` there is no bar.

    Raises:
        DataError: There are no problems, or a prompt does not fit into the context.
        ModelError: As `generate_responses`.
    """
    if not problems:
        raise DataError("there are no problems to sample responses to. Is the file empty, or was every row dropped?")
    prompt_ids, prefilled = encode_prompts(tokenizer, problems, verifier.tags, sampling.chat_template_kwargs)
    sampled = generate_responses(
        model,
        tokenizer,
        prompt_ids,
        num_samples=num_samples,
        tags=verifier.tags,
        progress=progress,
        **sampling.arguments(),
    )
    return graded_groups(verifier, problems, sampled, prefilled=prefilled)


def encode_prompts(
    tokenizer: Any, problems: Sequence[Problem], tags: Tags, template: Mapping[str, Any] | None = None
) -> tuple[list[list[int]], list[bool]]:
    """The token ids of each prompt, and whether it ends in the opening thinking tag. Raises as `encode_prompt`."""
    pieces = token_pieces(tokenizer)
    prompt_ids = [encode_prompt(tokenizer, problem.prompt, chat_template_kwargs=template) for problem in problems]
    return prompt_ids, [ends_in_thinking_tag(ids, pieces, tags) for ids in prompt_ids]


def graded_groups(
    verifier: ResponseVerifier,
    problems: Sequence[Problem],
    responses: Sequence[Sequence[Response]],
    *,
    prefilled: Sequence[bool],
) -> tuple[Group, ...]:
    """A group per problem, with a verdict on each of its responses. `prefilled` prompts open the thinking part."""
    rows = [
        (response.text, problem.answer, flag, prompt_text(problem.prompt))
        for problem, group, flag in zip(problems, responses, prefilled, strict=True)
        for response in group
    ]
    texts, golds, flags, prompts = zip(*rows, strict=True)
    verdicts = iter(verifier.verify(texts, golds, prefilled_think=flags, prompts=prompts))
    return tuple(
        Group(problem=problem, responses=tuple(group), verdicts=tuple(itertools.islice(verdicts, len(group))))
        for problem, group in zip(problems, responses, strict=True)
    )
