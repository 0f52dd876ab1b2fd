"""A verdict for every response in a folder of `gar eval`, and the numbers of the set. Needs no model.

As in training, a sample is *correct* if its answer is right and it keeps the required format. Every sample that keeps
the format and has an answer *votes* for the value of its answer: `1/2` and `\\frac{1}{2}` vote for the same value. The
others abstain.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from gar.evaluation.evaluate import SetResult, judged_groups
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.job import ScoreSettings
from gar.evaluation.metrics import check_ks, default_ks, mean, rate
from gar.evaluation.statistics import bootstrap_interval
from gar.records.resumable import Line
from gar.response import Response, TokenSequence
from gar.types import Problem, Status, problem_text
from gar.verify import Verifier
from gar.verify.choices import chosen_letter, is_choice

_RESPONSES_PER_WINDOW = 1024


def score(folder: EvaluationFolder, settings: ScoreSettings) -> dict[str, Any]:
    """Grade every response, write `samples.parquet` and `metrics.json`, and return the numbers of the set.

    Raises:
        ConfigError: A k is larger than the number of samples.
        RecordError: Responses are missing, or a file is not what was written, or cannot be read or written.
    """
    identity = folder.identity()
    num_samples = identity["sampling"]["num_samples"]
    ks = settings.pass_at_k or default_ks(num_samples)
    check_ks(ks, num_samples, folder.path)
    format = settings.format or identity["prompt"]["format"]
    verifier = Verifier(format=format, num_workers=settings.num_workers, timeout_seconds=settings.timeout_seconds)
    with folder.alone():
        problems = folder.problems()
        lines = folder.all_responses(problems, num_samples)
        groups, votes, size = list[list[Response]](), list[list[int]](), max(1, _RESPONSES_PER_WINDOW // num_samples)
        with verifier:
            # A window of problems at a time, so that memory does not grow with the set.
            for start in tqdm(range(0, len(problems), size), desc="grading", disable=None):
                window = slice(start, start + size)
                responses = [[_response(line) for line in group] for group in lines[window]]
                prefilled = [group[0]["prefilled_think"] for group in lines[window]]
                judged = judged_groups(verifier, problems[window], responses, prefilled=prefilled)
                groups += judged
                votes += _wrong_votes(verifier, problems[window], judged)
        result = SetResult(problems=problems, groups=groups, ks=ks, format=format)
        name, numbers = identity["benchmark"]["name"], _numbers(result, votes)
        folder.write_result(result.samples(name), {"sets": {name: numbers}})
        return numbers


def _response(line: Line) -> Response:
    sequence = TokenSequence(ids=tuple(line["tokens"]))
    return Response(sequence=sequence, text=line["text"], truncated=line["stop"] == "length")


def _numbers(result: SetResult, votes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The numbers of a set as in training, with votes and the 95% intervals of the mean over problems.

    An interval is None if all values are equal.
    """
    numbers = result.to_json()
    problems = [each | {"wrong_votes": wrong} for each, wrong in zip(numbers["problems"], votes, strict=True)]
    counts = [(numbers["num_samples"], each["num_correct"], each["wrong_votes"]) for each in problems]
    rates = {str(k): [rate("pass", k, *count) for count in counts] for k in result.ks}
    return numbers | {
        "majority_at": {str(k): mean(rate("majority", k, *count) for count in counts) for k in result.ks},
        "interval_95": {
            k: None if len(set(values)) == 1 else bootstrap_interval(np.array([values])) for k, values in rates.items()
        },
        "problems": problems,
    }


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


def _wrong_votes(
    verifier: Verifier, problems: Sequence[Problem], groups: Sequence[Sequence[Response]]
) -> list[list[int]]:
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
