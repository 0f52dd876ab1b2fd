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

from gar.data.problems import prompt_text
from gar.errors import ConfigError
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.grading import Group, SetResult, graded_groups
from gar.evaluation.job import ScoreSettings
from gar.evaluation.metrics import default_ks, mean, rate
from gar.evaluation.statistics import bootstrap_interval
from gar.records.resumable import Line
from gar.rollouts.generate import Response
from gar.types import Status
from gar.verify import Verifier
from gar.verify.choices import chosen_letters, is_choice

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
    verifier = Verifier(format=format, num_workers=settings.num_workers, timeout_seconds=settings.timeout_seconds)
    with folder.alone():
        problems = folder.problems()
        lines = folder.all_responses(problems, num_samples)
        written = [
            [
                Response(ids=tuple(each["tokens"]), text=each["text"], truncated=each["stop"] == "length")
                for each in group
            ]
            for group in lines
        ]
        prefilled = [group[0]["prefilled_think"] for group in lines]
        groups, votes, size = list[Group](), list[list[int]](), max(1, _RESPONSES_PER_WINDOW // num_samples)
        bar = tqdm(total=len(problems), desc="grading", unit=" problems", disable=None)
        with bar, verifier:
            for window in (slice(start, start + size) for start in range(0, len(problems), size)):
                graded = graded_groups(verifier, problems[window], written[window], prefilled=prefilled[window])
                groups += graded
                votes += _wrong_votes(verifier, graded)
                bar.update(len(graded))
        result = SetResult(groups=tuple(groups), ks=ks, format=format)
        name, numbers = identity["benchmark"]["name"], _numbers(result, votes)
        folder.write_result(result.samples(name), {"sets": {name: numbers}})
        return numbers


def _response(line: Line) -> Response:
    return Response(ids=tuple(line["tokens"]), text=line["text"], truncated=line["stop"] == "length")


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

    math-verify's equality need not be transitive. An answer joins the first class with an equal first answer.
    """
    waiting = [list(dict.fromkeys(group)) for group in answers]
    classes: list[dict[str, str]] = [{} for _ in answers]
    # Each round completes one class of every problem, so that the workers get many comparisons at a time.
    while any(waiting):
        pairs = [(i, other, group[0]) for i, group in enumerate(waiting) for other in group[1:]]
        for i, group in enumerate(waiting):
            classes[i] |= {answer: answer for answer in group[:1]}
        grades = verifier.grade_answers(
            [other for _, other, _ in pairs], [first for *_, first in pairs], [""] * len(pairs)
        )
        for (i, other, first), graded in zip(pairs, grades, strict=True):
            if graded.status is Status.OK:
                classes[i][other] = first
        waiting = [[answer for answer in group if answer not in classes[i]] for i, group in enumerate(waiting)]
    return classes


def _wrong_votes(verifier: Verifier, groups: Sequence[Group]) -> list[list[int]]:
    """Votes for each wrong answer to each problem, most frequent first. An incomparable answer votes for its text."""
    voters = [
        [each for each in group.verdicts if each.well_formatted and each.answer is not None and not each.verified]
        for group in groups
    ]
    answers = [
        [_vote(each.answer or "", group) for each in voting if each.status is Status.WRONG]
        for group, voting in zip(groups, voters, strict=True)
    ]
    others = [[each.answer for each in voting if each.status is not Status.WRONG] for voting in voters]
    votes = [
        Counter([*(same[answer] for answer in compared), *texts])
        for compared, same, texts in zip(answers, equal_answers(verifier, answers), others, strict=True)
    ]
    return [sorted(counts.values(), reverse=True) for counts in votes]


def _vote(answer: str, group: Group) -> str:
    """The answer, of which only the letter counts if the problem is multiple choice."""
    problem = group.problem
    return chosen_letters(answer, prompt_text(problem.prompt)) if is_choice(problem.answer) else answer
