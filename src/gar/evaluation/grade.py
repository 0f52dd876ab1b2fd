"""Verdicts and numbers of sampled responses, in training and in `gar eval`. Needs no model.

A sample is *correct* if its answer is right and it keeps the required format. Every sample that keeps the format and
has an answer *votes* for the value of its answer: `1/2` and `\\frac{1}{2}` vote for the same value. The others abstain.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from tqdm import tqdm

from gar.evaluation.folder import EvaluationFolder, Line
from gar.evaluation.job import ScoreSettings
from gar.evaluation.metrics import check_ks, default_ks, mean, pass_at_k, rate
from gar.evaluation.statistics import bootstrap_interval
from gar.models.generate import TERMINAL_SECONDS
from gar.reader import judge
from gar.records.evaluations import EvaluatedSet, ProblemCount
from gar.records.files import canonical_hash
from gar.records.rollouts import SampleRecord, response_record
from gar.response import Response, TokenSequence
from gar.types import Problem, ResponseVerifier, Status, problem_text
from gar.verify import Verifier
from gar.verify.choices import chosen_letter, is_choice

_RESPONSES_PER_WINDOW = 1024

Groups = Sequence[Sequence[Response]]
"""The responses to each problem."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GradedSet:
    """The graded responses to each problem of a set, and its numbers."""

    problems: Sequence[Problem]
    groups: Groups
    numbers: EvaluatedSet

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


def grade(problems: Sequence[Problem], groups: Groups, verifier: Verifier, ks: Sequence[int]) -> GradedSet:
    """Grade the responses of `sample`, at least one to each problem, and count them. `ks` are the k of pass@k."""
    judged, votes = list[list[Response]](), list[list[int]]()
    size = max(1, _RESPONSES_PER_WINDOW // len(groups[0]))
    # A window of problems at a time, so that few answers wait for the workers.
    for start in tqdm(range(0, len(problems), size), desc="grading", disable=None, delay=TERMINAL_SECONDS):
        window = slice(start, start + size)
        judged += judged_groups(verifier, problems[window], groups[window])
        votes += _wrong_votes(verifier, problems[window], judged[window])
    return GradedSet(problems=problems, groups=judged, numbers=_numbers(problems, judged, votes, verifier, ks))


def grade_folder(folder: EvaluationFolder, settings: ScoreSettings) -> EvaluatedSet:
    """Grade every response in a folder, write `samples.parquet` and `metrics.json`, and return the numbers.

    Raises:
        ConfigError: A k is larger than the number of samples, or the folder belongs to a run.
        RecordError: Responses are missing, or a file is not what was written, or cannot be read or written.
    """
    folder.refuse_run()
    identity = folder.identity()
    num_samples = identity["sampling"]["num_samples"]
    ks = settings.pass_at_k or default_ks(num_samples)
    check_ks(ks, num_samples, folder.path)
    format = settings.format or identity["prompt"]["format"]
    verifier = Verifier(format=format, num_workers=settings.num_workers, timeout_seconds=settings.timeout_seconds)
    with folder.locked(), verifier:
        problems = folder.problems()
        lines = folder.all_responses(problems, num_samples)
        graded = grade(problems, [[_response(line) for line in group] for group in lines], verifier, ks)
        name = identity["benchmark"]["name"]
        folder.write_result(graded.samples(name), {"sets": {name: asdict(graded.numbers)}})
        return graded.numbers


def _response(line: Line) -> Response:
    sequence, truncated = TokenSequence(ids=tuple(line["tokens"])), line["stop"] == "length"
    return Response(sequence=sequence, text=line["text"], truncated=truncated, prefilled=line["prefilled_think"])


def judged_groups(verifier: ResponseVerifier, problems: Sequence[Problem], groups: Groups) -> list[list[Response]]:
    """The responses to each problem with their verdicts."""
    rows = [(response, problem) for problem, group in zip(problems, groups, strict=True) for response in group]
    judged = iter(judge(verifier, [response for response, _ in rows], [problem for _, problem in rows]))
    return [list(itertools.islice(judged, len(group))) for group in groups]


def num_correct(group: Sequence[Response]) -> int:
    """How many responses are verified and well formatted."""
    return sum(response.is_correct for response in group)


def pass_rates(groups: Groups, ks: Sequence[int]) -> dict[int, float]:
    """pass@k of judged responses for each k, the mean over problems."""
    return {k: mean(pass_at_k(len(group), num_correct(group), k) for group in groups) for k in ks}


def _numbers(
    problems: Sequence[Problem],
    groups: Groups,
    votes: Sequence[Sequence[int]],
    verifier: Verifier,
    ks: Sequence[int],
) -> EvaluatedSet:
    """The numbers of judged responses. An interval is None if all values are equal."""
    # Counts of each problem come first: all rates follow from them, here and in every later table.
    responses = list(itertools.chain.from_iterable(groups))
    statuses = Counter(response.verdict.status for response in responses)
    counts = [
        ProblemCount(id=problem.id, num_correct=num_correct(group), wrong_votes=wrong)
        for problem, group, wrong in zip(problems, groups, votes, strict=True)
    ]
    num_samples = len(groups[0])
    rates = {k: [pass_at_k(num_samples, each.num_correct, k) for each in counts] for k in ks}
    majorities = {
        k: [rate("majority", k, num_samples, each.num_correct, each.wrong_votes or ()) for each in counts] for k in ks
    }
    # Rates over responses need no votes or k: they say why responses are not correct.
    return EvaluatedSet(
        problems_hash=canonical_hash([[problem.id, problem.prompt, problem.answer] for problem in problems]),
        num_samples=num_samples,
        format=verifier.format,
        pass_at={str(k): mean(values) for k, values in rates.items()},
        majority_at={str(k): mean(values) for k, values in majorities.items()},
        interval_95={
            str(k): None if len(set(values)) == 1 else bootstrap_interval(np.array([values]))
            for k, values in rates.items()
        },
        mean_response_tokens=mean(response.num_tokens for response in responses),
        truncated_fraction=mean(response.truncated for response in responses),
        well_formatted_fraction=mean(response.verdict.well_formatted for response in responses),
        verified_fraction=mean(response.verdict.verified for response in responses),
        status_counts={status.value: statuses[status] for status in Status},
        problems=counts,
    )


def equal_answers(verifier: Verifier, answers: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """For each problem, every answer with the first answer of equal value. Timeouts count as different.

    Equality of answers need not be transitive. An answer joins the first class with an equal first answer.
    """
    waiting = [list(dict.fromkeys(group)) for group in answers]
    classes: list[dict[str, str]] = [{} for _ in answers]
    # Each round completes one class of every problem, so that the workers get many comparisons at a time.
    while any(waiting):
        for known, group in zip(classes, waiting, strict=True):
            known |= {answer: answer for answer in group[:1]}
        pairs = [(known, other, group[0]) for known, group in zip(classes, waiting, strict=True) for other in group[1:]]
        others, firsts = [other for _, other, _ in pairs], [first for *_, first in pairs]
        grades = verifier.grade_answers(others, firsts, [""] * len(pairs))
        for (known, other, first), graded in zip(pairs, grades, strict=True):
            if graded.status is Status.OK:
                known[other] = first
        waiting = [[each for each in group if each not in known] for known, group in zip(classes, waiting, strict=True)]
    return classes


def _wrong_votes(verifier: Verifier, problems: Sequence[Problem], groups: Groups) -> list[list[int]]:
    """Votes for each wrong answer to each problem, most frequent first. An incomparable answer votes for its text."""
    # Answers of equal value share the first one's name, then names are counted.
    ballots = [_ballot(problem, group) for problem, group in zip(problems, groups, strict=True)]
    classes = equal_answers(verifier, [[answer for answer, graded in ballot if graded] for ballot in ballots])
    counts = [
        Counter(first_of.get(answer, answer) for answer, _ in ballot)
        for first_of, ballot in zip(classes, ballots, strict=True)
    ]
    return [sorted(votes.values(), reverse=True) for votes in counts]


def _ballot(problem: Problem, group: Sequence[Response]) -> list[tuple[str, bool]]:
    """The wrong answers to a problem, and whether each was graded. Of a choice only the letter counts."""
    verdicts = [response.verdict for response in group]
    ballot = [
        (each.answer, each.status is Status.WRONG)
        for each in verdicts
        if each.well_formatted and each.answer is not None and not each.verified
    ]
    if not is_choice(problem.answer):
        return ballot
    text = problem_text(problem)
    return [(chosen_letter(answer, text) if graded else answer, graded) for answer, graded in ballot]
