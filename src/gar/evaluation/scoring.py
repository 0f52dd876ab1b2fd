"""`gar eval score`: a verdict for every response, and the numbers of the set. Needs no model.

As in training, a sample is *correct* if its answer is right and it keeps the required format. Every sample that keeps
the format and has an answer *votes* for the value of its answer: `1/2` and `\\frac{1}{2}` vote for the same value. The
others abstain.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from gar.errors import ConfigError, RecordError
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.grading import Group, SetResult, graded_groups
from gar.evaluation.job import ScoreSettings
from gar.evaluation.metrics import default_ks, mean, rate
from gar.evaluation.statistics import bootstrap_interval
from gar.records.resumable import Line
from gar.rollouts.generate import Response
from gar.types import Problem, Status
from gar.verify import Verifier
from gar.verify.answers import WARM_UP, grade_answer, grade_exactly
from gar.verify.workers import WorkerPool

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
    if too_large := [k for k in ks if k > num_samples]:
        raise ConfigError(
            f"pass@{too_large[0]} needs {too_large[0]} samples per problem, and {folder.path} has {num_samples}. "
            "Generate more, with another --out, or drop it from --pass-at-k."
        )
    format = settings.format or identity["prompt"]["format"]
    limits: dict[str, Any] = {"num_workers": settings.num_workers, "timeout_seconds": settings.timeout_seconds}
    with folder.alone():
        lines = folder.problems()
        responses = _responses(folder, lines, num_samples)
        groups: list[Group] = []
        votes: list[list[int]] = []
        size = max(1, _RESPONSES_PER_WINDOW // num_samples)
        bar = tqdm(total=len(lines), desc="grading", unit=" problems", disable=None)
        with bar, Verifier(format=format, **limits) as verifier, vote_pool(**limits) as pool:
            for window in (lines[start : start + size] for start in range(0, len(lines), size)):
                graded = _graded(verifier, window, [responses[line["id"]] for line in window])
                groups += graded
                votes += _wrong_votes(pool, graded, window)
                bar.update(len(window))
        result = SetResult(groups=tuple(groups), ks=ks, format=format)
        name = identity["benchmark"]["name"]
        numbers = _numbers(result, votes, [line["category"] for line in lines])
        folder.write_result(result.samples(name), {"sets": {name: numbers}})
        return numbers


def _responses(folder: EvaluationFolder, problems: Sequence[Line], num_samples: int) -> dict[str, list[Line]]:
    """The lines of the responses to each problem, in the order of the samples: all that there should be, once."""
    manifest = folder.manifest()
    if folder.responses.path.name in manifest.entries:
        manifest.check(folder.responses.path)
    found: dict[str, dict[int, Line]] = {problem["id"]: {} for problem in problems}
    for line in folder.responses:
        found[line["problem"]][line["sample"]] = line
    number, expected = sum(map(len, found.values())), num_samples * len(problems)
    if number < expected:
        raise RecordError(
            f"{folder.path}: {number:,} of {expected:,} responses are there. Run the same `gar eval generate` again "
            "for the rest."
        )
    manifest.check(folder.responses.path)
    return {name: [samples[number] for number in range(num_samples)] for name, samples in found.items()}


def _graded(verifier: Verifier, problems: Sequence[Line], responses: Sequence[Sequence[Line]]) -> tuple[Group, ...]:
    written = [
        [Response(ids=tuple(each["tokens"]), text=each["text"], truncated=each["stop"] == "length") for each in group]
        for group in responses
    ]
    return graded_groups(
        verifier,
        [Problem(id=line["id"], prompt=line["prompt"], answer=line["answer"]) for line in problems],
        written,
        prefilled=[group[0]["prefilled_think"] for group in responses],
        num_choices=[line["num_choices"] for line in problems],
    )


def _numbers(result: SetResult, votes: Sequence[Sequence[int]], categories: Sequence[str]) -> dict[str, Any]:
    """The numbers of a set as in training, with votes, intervals and, if there are several, pass@1 by category."""
    numbers = result.to_json()
    problems = [
        {"category": category, "wrong_votes": wrong, **problem}
        for problem, wrong, category in zip(numbers["problems"], votes, categories, strict=True)
    ]
    counts = [(numbers["num_samples"], each["num_correct"], each["wrong_votes"]) for each in problems]
    rates = {str(k): [rate("pass", k, *count) for count in counts] for k in result.ks}
    by_category: dict[str, list[float]] = {}
    for name, count in zip(categories, counts, strict=True):
        by_category.setdefault(name, []).append(rate("pass", 1, *count))
    return numbers | {
        "majority_at": {str(k): mean(rate("majority", k, *count) for count in counts) for k in result.ks},
        # Of the mean over problems. None if all values are equal.
        "interval_95": {
            k: None if len(set(values)) == 1 else bootstrap_interval(np.array([values])) for k, values in rates.items()
        },
        "categories": {
            name: {"num_problems": len(values), "pass_at_1": mean(values)}
            for name, values in sorted(by_category.items())
            if len(by_category) > 1
        },
        "problems": problems,
    }


def vote_pool(*, num_workers: int = 2, timeout_seconds: float = 5.0) -> WorkerPool:
    """Worker processes for `equal_answers`. Answers whose comparison reaches the time limit count as different."""
    return WorkerPool(grade_answer, num_workers=num_workers, timeout_seconds=timeout_seconds, warm_up=WARM_UP)


def equal_answers(pool: WorkerPool, answers: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """For each problem, every answer with the first answer of equal value.

    math-verify's equality need not be transitive: an answer joins the first class whose first answer it equals.
    """
    waiting = [list(dict.fromkeys(group)) for group in answers]
    classes: list[dict[str, str]] = [{} for _ in answers]
    # Each round completes one class of every problem, so that the pool gets many comparisons at a time.
    while any(waiting):
        pairs = [(i, other, group[0]) for i, group in enumerate(waiting) for other in group[1:]]
        for i, group in enumerate(waiting):
            classes[i] |= {answer: answer for answer in group[:1]}
        grades = [grade_exactly(other, first) for _, other, first in pairs]
        hard = [place for place, graded in enumerate(grades) if graded is None]
        for place, graded in zip(hard, pool.run([pairs[place][1:] for place in hard]), strict=True):
            grades[place] = graded
        for (i, other, first), graded in zip(pairs, grades, strict=True):
            if graded is not None and graded.status is Status.OK:
                classes[i][other] = first
        waiting = [[answer for answer in group if answer not in classes[i]] for i, group in enumerate(waiting)]
    return classes


def _wrong_votes(pool: WorkerPool, groups: Sequence[Group], problems: Sequence[Line]) -> list[list[int]]:
    """Votes for each wrong answer to each problem, most frequent first. An incomparable answer votes for its text."""
    voters = [
        [each for each in group.verdicts if each.well_formatted and each.answer is not None and not each.verified]
        for group in groups
    ]
    compared = [
        [] if line["num_choices"] else [each.answer or "" for each in group if each.status is Status.WRONG]
        for group, line in zip(voters, problems, strict=True)
    ]
    classes = equal_answers(pool, compared)
    votes = [
        Counter(same.get(each.answer or "", each.answer) for each in group)
        for group, same in zip(voters, classes, strict=True)
    ]
    return [sorted(counts.values(), reverse=True) for counts in votes]
