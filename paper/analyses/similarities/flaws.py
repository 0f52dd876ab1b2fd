"""Sound solutions with one planted flaw each, of five kinds. All of them still end in the right answer."""

import random
import re
from collections.abc import Sequence

from gar import Problem
from gar.data import arithmetic
from paper.tasks.chains import WORD_OF, task_of, write_solution

FLAWS = ("wrong value", "dropped step", "swapped steps", "other problem's work", "answer only")

_ANNOTATION = re.compile(r"<<[^<>]*>>")
_ANSWER_LINE = re.compile(r"(?:A:|####)\s*\S")
_RESULT = re.compile(r"=\s*\$?\s*(?P<value>\d+(?:,\d{3})*(?:\.\d+)?)")
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def chain_flaws(problem: Problem, other: Problem, wording: arithmetic.Wording, rng: random.Random) -> dict[str, str]:
    """Flawed solutions of a problem of an embedded task in the expert's method, by flaw.

    Args:
        problem: The problem.
        other: A problem with as many operations. Its work is shown instead.
        wording: Wording of all solutions.
        rng: Source of wrong digits and places.
    """
    right, foreign = arithmetic.running_values(problem), arithmetic.running_values(other)
    task = task_of(problem)
    method = task.method_of("expert", problem)
    steps = _steps(write_solution(problem, method, wording))
    wrong, place = list(steps), rng.randrange(len(steps) - 1)
    wrong[place] = f"{steps[place][:-1]}{(right[place] + rng.randrange(1, 10)) % 10}"
    dropped, swapped, first = rng.randrange(len(steps) - 1), list(steps), rng.randrange(len(steps) - 1)
    swapped[first : first + 2] = reversed(swapped[first : first + 2])
    work = _steps(write_solution(other, method, wording, values=(*foreign[:-1], right[-1])))
    written = {
        "wrong value": wrong,
        "dropped step": [*steps[:dropped], *steps[dropped + 1 :]],
        "swapped steps": swapped,
        "other problem's work": work,
    }
    texts = {name: _chain_text(lines, wording, right[-1]) for name, lines in written.items()}
    return texts | {"answer only": write_solution(problem, task.method_of("guess", problem), wording)}


def _steps(solution: str) -> list[str]:
    """`3 + 4 = 7`, `7 * 7 = 9`, ... in the solution's own words."""
    working = solution.removeprefix("<think> ").split(" </think>")[0].split()[1:-1]
    return [step.strip() for step in re.split(r" ; | then ", " ".join(working))]


def _chain_text(steps: Sequence[str], wording: arithmetic.Wording, answer: int) -> str:
    opening, between, end = (WORD_OF[mark] if wording == "words" else mark for mark in "[;]")
    return f"<think> {opening} {f' {between} '.join(steps)} {end} </think> <answer> {answer} </answer>"


def without_annotations(text: str) -> str:
    """The text without the calculator's notes `<<3+4=7>>` of GSM8K."""
    return _ANNOTATION.sub("", text).strip()


def split_answer(text: str) -> tuple[list[str], str]:
    """The lines of a solution, and its last line `A: 7` or `#### 7`. "" if there is none."""
    lines = [line.strip() for line in without_annotations(text).splitlines() if line.strip()]
    return (lines[:-1], lines[-1]) if lines and _ANSWER_LINE.match(lines[-1]) else (lines, "")


def text_flaws(text: str, other: str, rng: random.Random) -> dict[str, str]:
    """Flawed versions of a right solution in lines of text, by flaw, as far as its lines allow them.

    A value is intermediate if a later line has a result too. Two lines are dependent if the second one computes with
    the result of the first.

    Args:
        text: The solution, with a last line `A: 7` or `#### 7`.
        other: A solution to another problem. Its lines are shown instead.
        rng: Source of wrong digits and places.
    """
    lines, answer = split_answer(text)
    results = [_RESULT.search(line) for line in lines]
    with_results = [i for i, result in enumerate(results) if result]
    flawed: dict[str, list[str]] = {}
    if len(with_results) > 1:
        wrong, place = list(lines), rng.choice(with_results[:-1])
        result = results[place]
        assert result is not None
        start, end = result.span("value")
        wrong[place] = lines[place][:start] + _other_value(result["value"], rng) + lines[place][end:]
        dropped = rng.choice(with_results[:-1])
        flawed = {"wrong value": wrong, "dropped step": [*lines[:dropped], *lines[dropped + 1 :]]}
    dependent = [i for i, result in enumerate(results[:-1]) if result and _computes_with(lines[i + 1], result["value"])]
    if dependent:
        first, swapped = rng.choice(dependent), list(lines)
        swapped[first : first + 2] = reversed(swapped[first : first + 2])
        flawed["swapped steps"] = swapped
    if answer:
        flawed |= {"other problem's work": split_answer(other)[0], "answer only": []}
    return {name: "\n".join([*kept, answer] if answer else kept) for name, kept in flawed.items()}


def _other_value(value: str, rng: random.Random) -> str:
    """The number with another last digit."""
    return value[:-1] + str((int(value[-1]) + rng.randrange(1, 10)) % 10)


def _computes_with(line: str, value: str) -> bool:
    return value in _NUMBER.findall(line.split("=")[0])
