"""Grade the responses to a set. Needs no model."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gar.data.problems import prompt_text
from gar.evaluation.metrics import mean, pass_at_k
from gar.records.files import canonical_hash
from gar.records.rollouts import SampleRecord
from gar.rollouts.generate import Response
from gar.types import Problem, ResponseFormat, ResponseVerifier, Status, Verdict


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


@dataclass(frozen=True, kw_only=True, slots=True)
class SetResult:
    """The groups of one set, in the order of its problems, the k of pass@k, and how the responses were read.

    `seconds` is the wall time of sampling and verification. None if they were apart.
    """

    groups: tuple[Group, ...]
    ks: Sequence[int]
    format: ResponseFormat
    seconds: float | None = None

    @property
    def pass_at(self) -> dict[int, float]:
        """pass@k for each k, the mean over problems. Correct means verified and well formatted."""
        return {k: mean(pass_at_k(group.num_samples, group.num_correct, k) for group in self.groups) for k in self.ks}

    @property
    def status_counts(self) -> Mapping[Status, int]:
        """Responses by how their verification ended. Only ok counts as correct."""
        counts = Counter(verdict.status for group in self.groups for verdict in group.verdicts)
        return {status: counts[status] for status in Status}

    def to_json(self) -> dict[str, Any]:
        """The numbers without the texts: `{"num_problems": 200, ..., "pass_at": {"1": 0.31}, ...}`.

        `problems_hash` is of what was asked and graded against: two sets with the same ids may differ in it.
        `truncated_fraction` is the share of responses without an end token within the limit, and
        `mean_response_tokens` counts end tokens.
        """
        problems = [group.problem for group in self.groups]
        verdicts = [verdict for group in self.groups for verdict in group.verdicts]
        responses = [response for group in self.groups for response in group.responses]
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
            "status_counts": {status.value: count for status, count in self.status_counts.items()},
            **({} if self.seconds is None else {"seconds": self.seconds}),
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


def graded_groups(
    verifier: ResponseVerifier,
    problems: Sequence[Problem],
    responses: Sequence[Sequence[Response]],
    *,
    prefilled: Sequence[bool],
) -> tuple[Group, ...]:
    """A group per problem, with a verdict on each of its responses."""
    rows = [
        (response.text, problem.answer, flag, prompt_text(problem.prompt))
        for problem, group, flag in zip(problems, responses, prefilled, strict=True)
        for response in group
    ]
    texts, golds, flags, prompts = zip(*rows, strict=True)
    verdicts = iter(verifier.verify(texts, golds, prefilled_think=flags, prompts=prompts))
    return tuple(
        Group(
            problem=problem,
            responses=tuple(group),
            verdicts=tuple(itertools.islice(verdicts, len(group))),
            prefilled=flag,
        )
        for problem, group, flag in zip(problems, responses, prefilled, strict=True)
    )
