"""How good a policy is on a set of problems: sample, verify, count."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from gar.data.problems import prompt_text
from gar.errors import DataError
from gar.evaluation.metrics import mean, pass_at_k
from gar.records.files import canonical_hash
from gar.records.rollouts import SampleRecord
from gar.rollouts.generate import Response, encode_prompt, generate_responses
from gar.rules import check
from gar.sequences import ends_in_thinking_tag, token_pieces
from gar.settings import EvaluateSettings
from gar.types import Problem, ResponseVerifier, Status, Verdict
from gar.verify import count_statuses


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How responses are drawn.

    Attributes:
        max_new_tokens: Longest response.
        temperature: Divides the logits.
        top_p: Share of the probability that is sampled from.
        seed: Seed of the random stream.
        batch_size: Responses generated at one time.
        chat_template_kwargs: As in `encode_prompt`.
        generation_kwargs: As in `generate_responses`.
    """

    max_new_tokens: int
    temperature: float
    top_p: float = 1.0
    seed: int
    batch_size: int = 64
    chat_template_kwargs: Mapping[str, Any] | None = None
    generation_kwargs: Mapping[str, Any] | None = None

    @classmethod
    def from_settings(
        cls, settings: EvaluateSettings, *, seed: int, max_new_tokens: int, template: Mapping[str, Any] | None = None
    ) -> "Sampling":
        """How a run's evaluations are drawn. `template` are arguments of the chat template."""
        return cls(
            max_new_tokens=max_new_tokens,
            temperature=settings.temperature,
            seed=seed,
            batch_size=settings.batch_size,
            chat_template_kwargs=template,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The responses to one problem, and the verifier's verdict on each."""

    problem: Problem
    responses: tuple[Response, ...]
    verdicts: tuple[Verdict, ...]
    prefilled: bool
    """The prompt ends in the opening thinking tag."""

    @property
    def num_samples(self) -> int:
        """Responses to the problem."""
        return len(self.responses)

    @property
    def num_correct(self) -> int:
        """Responses that are verified and well formatted."""
        return sum(verdict.verified and verdict.well_formatted for verdict in self.verdicts)

    @property
    def num_well_formatted(self) -> int:
        """Responses in the right format, whatever their answer."""
        return sum(verdict.well_formatted for verdict in self.verdicts)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetResult:
    """A measurement on one set of problems.

    Attributes:
        groups: Every response, one group per problem, in the order of the problems.
        pass_at: pass@k for each k, the mean over problems. Correct means verified and well formatted.
        well_formatted_fraction: Share of responses in the right format.
        truncated_fraction: Share of responses without an end token within the limit.
        mean_response_tokens: Mean length, end tokens included.
        status_counts: Responses by how their verification ended. Those that ended neither ok nor wrong are not correct
            in `pass_at`. Their number says how far it can be trusted.
        seconds: Wall time of sampling and verification.
    """

    groups: tuple[Group, ...]
    pass_at: Mapping[int, float]
    well_formatted_fraction: float
    truncated_fraction: float
    mean_response_tokens: float
    status_counts: Mapping[Status, int]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The numbers without the texts: `{"num_problems": 200, ..., "pass_at": {"1": 0.31}, ...}`.

        `problems_hash` is of what was asked and graded against: two sets with the same ids may differ in it.
        """
        problems = [group.problem for group in self.groups]
        return {
            "num_problems": len(self.groups),
            "problems_hash": canonical_hash([[problem.id, problem.prompt, problem.answer] for problem in problems]),
            "num_samples": self.groups[0].num_samples,
            "pass_at": {str(k): value for k, value in self.pass_at.items()},
            "well_formatted_fraction": self.well_formatted_fraction,
            "truncated_fraction": self.truncated_fraction,
            "mean_response_tokens": self.mean_response_tokens,
            "status_counts": {status.value: count for status, count in self.status_counts.items()},
            "seconds": self.seconds,
            "problems": [
                {
                    "id": group.problem.id,
                    "num_correct": group.num_correct,
                    "num_well_formatted": group.num_well_formatted,
                }
                for group in self.groups
            ],
        }

    def samples(self, set_name: str) -> list[SampleRecord]:
        """Every response with its verdict, as `evaluation/MOMENT.parquet` holds it."""
        return [
            SampleRecord(
                set_name=set_name,
                problem_id=group.problem.id,
                group_index=number,
                response_index=index,
                prompt=group.problem.prompt if isinstance(group.problem.prompt, str) else str(group.problem.prompt),
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
    sampling: Sampling,
    *,
    progress: str | None = "evaluate",
) -> SetResult:
    """Sample `settings.num_samples` responses to each problem, verify them, and estimate pass@k.

    Args:
        model: The policy. Its mode and the random state of the process are left as they are.
        tokenizer: Its tokenizer.
        problems: One set. The first `settings.max_problems` are used.
        verifier: Gives each response its verdict. Its tags tell whether a prompt already opens the thinking part.
        settings: The number of samples and the k.
        sampling: How to sample.
        progress: Label of the progress bar.

    Raises:
        ConfigError: Some k is not in [1, num_samples].
        DataError: No problems, or a prompt that does not fit.
        ModelError: As `generate_responses`.
    """
    facts = {"evaluate.pass_at_k": settings.pass_at_k, "evaluate.num_samples": settings.num_samples, "evaluates": True}
    check("gar train", facts)
    start = time.perf_counter()
    problems = problems[: settings.max_problems]
    groups = sample_groups(
        model, tokenizer, problems, verifier, sampling, num_samples=settings.num_samples, progress=progress
    )
    responses = [response for group in groups for response in group.responses]
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    return SetResult(
        groups=groups,
        pass_at={
            k: mean(pass_at_k(group.num_samples, group.num_correct, k) for group in groups) for k in settings.pass_at_k
        },
        well_formatted_fraction=mean(verdict.well_formatted for verdict in verdicts),
        truncated_fraction=mean(response.truncated for response in responses),
        mean_response_tokens=mean(response.num_tokens for response in responses),
        status_counts=count_statuses(verdicts),
        seconds=time.perf_counter() - start,
    )


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
    """Sample a group of responses to each problem, and verify them.

    Args:
        model: The policy. Its mode and the random state of the process are left as they are.
        tokenizer: Its tokenizer.
        problems: At least one.
        verifier: Gives each response its verdict.
        sampling: How to sample.
        num_samples: Responses per problem.
        progress: Label of the progress bar. None shows none.

    Raises:
        DataError: There are no problems, or a prompt does not fit into the context.
        ModelError: As `generate_responses`.
    """
    if not problems:
        raise DataError("there are no problems to sample responses to. Is the file empty, or was every row dropped?")
    template = sampling.chat_template_kwargs
    prompt_ids = [encode_prompt(tokenizer, problem.prompt, chat_template_kwargs=template) for problem in problems]
    pieces = token_pieces(tokenizer)
    prefilled = [ends_in_thinking_tag(ids, pieces, verifier.tags) for ids in prompt_ids]
    sampled = generate_responses(
        model,
        tokenizer,
        prompt_ids,
        num_samples=num_samples,
        max_new_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        batch_size=sampling.batch_size,
        seed=sampling.seed,
        tags=verifier.tags,
        generation_kwargs=sampling.generation_kwargs,
        progress=progress,
    )
    verdicts = verifier.verify(
        [response.text for responses in sampled for response in responses],
        [problem.answer for problem in problems for _ in range(num_samples)],
        prefilled_think=[flag for flag in prefilled for _ in range(num_samples)],
        prompts=[prompt_text(problem.prompt) for problem in problems for _ in range(num_samples)],
    )
    assert len(verdicts) == len(problems) * num_samples
    return tuple(
        Group(
            problem=problem,
            responses=tuple(responses),
            verdicts=tuple(verdicts[i * num_samples : (i + 1) * num_samples]),
            prefilled=flag,
        )
        for i, (problem, responses, flag) in enumerate(zip(problems, sampled, prefilled, strict=True))
    )
