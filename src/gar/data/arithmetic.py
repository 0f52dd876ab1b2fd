"""The embedded task: chains of digit arithmetic, modulo 10, read from left to right.

`3+4*7-2=` has the running values 7, 9 and 7, so its answer is 7. A *method* is a form of the working. Each method
exists in two *wordings*, which differ token by token and never change the method:

    stepwise, symbols       [ 3 + 4 = 7 ; 7 * 7 = 9 ; 9 - 2 = 7 ]
    stepwise, words         ok 3 plus 4 is 7 then 7 times 7 is 9 then 9 minus 2 is 7 so
    running, symbols        [ = 7 ; = 9 ; = 7 ]
    guess, words            ok maybe is 7 so

Everything is drawn with a fixed seed: the same version of this file gives the same problems everywhere.
"""

import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal, get_args

from gar.errors import DataError
from gar.types import Anchor, Problem

Split = Literal["train", "test", "harder"]
SolutionMethod = Literal["stepwise", "running", "guess"]
Wording = Literal["symbols", "words"]
Form = tuple[str | None, str]
"""A method as it is written: every step before the last (None: not written), and the last step."""

METHODS: tuple[SolutionMethod, ...] = get_args(SolutionMethod)
WORDINGS: tuple[Wording, ...] = get_args(Wording)

NUM_PROBLEMS: dict[Split, int] = {"train": 2000, "test": 200, "harder": 200}
NUM_OPERATIONS: dict[Split, tuple[int, ...]] = {"train": (2, 3, 4), "test": (2, 3, 4), "harder": (5, 6)}
SEED = 17

WORD_OF = {"[": "ok", "]": "so", ";": "then", "=": "is", "?": "maybe", "+": "plus", "-": "minus", "*": "times"}
_STEP = "{left} {operator} {digit} = {value}"
FORMS: dict[str, Form] = {
    "stepwise": (_STEP, _STEP),
    "running": ("= {value}", "= {value}"),
    "guess": (None, "? = {value}"),
}
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_CHAIN = re.compile(r"\d(?:[-+*]\d)+=")


def load_arithmetic(split: Split, expert: SolutionMethod | None = None) -> list[Problem]:
    """The problems of one split: `train-0`, `train-1`, ... They never change, and none is in two splits.

    `train` (2,000 problems) and `test` (200) have 2 to 4 operations, `harder` (200) has 5 or 6. `expert` is the method
    of all expert solutions, None for stepwise. Their random wording does not depend on it.

    Raises:
        DataError: There is no such split or method.
    """
    if split not in NUM_PROBLEMS:
        raise DataError(f"the arithmetic task has no split {split!r}, expected one of {', '.join(NUM_PROBLEMS)}.")
    if expert not in (None, *METHODS):
        raise DataError(f"the arithmetic task has no expert {expert!r}, expected one of {', '.join(METHODS)}.")
    return list(_splits(expert or "stepwise")[split])


@cache
def _splits(expert: SolutionMethod) -> dict[Split, list[Problem]]:
    def solve(problem: Problem, rng: random.Random) -> str:
        return write_solution(problem, expert, rng.choice(WORDINGS))

    return draw_splits(SEED, lambda rng, num_operations: draw_problem(rng, num_operations, "arithmetic", solve))


def draw_splits(
    seed: int,
    draw: Callable[[random.Random, int], Problem],
    num_problems: Mapping[Any, int] = NUM_PROBLEMS,
    num_operations: Mapping[Any, Sequence[int]] = NUM_OPERATIONS,
) -> dict[Any, list[Problem]]:
    """Draw the problems of all splits. `draw` gets the number of operations. No prompt is drawn twice."""
    rng = random.Random(seed)
    seen: set[str] = set()
    problems: dict[Any, list[Problem]] = {split: [] for split in num_problems}
    for split, drawn in problems.items():
        while len(drawn) < num_problems[split]:
            problem = draw(rng, rng.choice(num_operations[split]))
            if problem.prompt not in seen:
                seen.add(str(problem.prompt))
                drawn.append(replace(problem, id=f"{split}-{len(drawn)}"))
    return problems


def draw_problem(
    rng: random.Random, num_operations: int, source: str, solve: Callable[[Problem, random.Random], str]
) -> Problem:
    """Draw a problem. Its answer is uniform over the digits, so that a guess is right one time in ten.

    `solve` writes its expert solution.
    """
    answer = rng.randrange(10)
    while True:
        value = rng.randrange(10)
        chain = str(value)
        for _ in range(num_operations):
            sign, digit = rng.choice("+-*"), rng.randrange(10)
            chain += f"{sign}{digit}"
            value = _OPERATIONS[sign](value, digit) % 10
        if value == answer:  # nine of ten chains have another value
            problem = Problem(id="drawn", prompt=f"{chain}=", answer=str(answer), source=source)
            return replace(problem, anchors=(Anchor(text=solve(problem, rng)),))


def running_values(problem: Problem) -> tuple[int, ...]:
    """The right value after each operation. The last one is the answer.

    Raises:
        DataError: The prompt is not a chain of digits and operators.
    """
    chain = _chain(problem)
    values = [int(chain[0])]
    for sign, digit in zip(chain[1:-1:2], chain[2:-1:2], strict=True):
        values.append(_OPERATIONS[sign](values[-1], int(digit)) % 10)
    return tuple(values[1:])


def write_solution(
    problem: Problem,
    method: str,
    wording: Wording,
    *,
    values: Sequence[int] | None = None,
    forms: Mapping[str, Form] = FORMS,
    words: Mapping[str, str] = WORD_OF,
) -> str:
    """Write a full response with tags: `<think> [ = 7 ; = 9 ; = 7 ] </think> <answer> 7 </answer>`.

    `values` has one value per operation, by default the right ones. The last one is the answer, all that a guess shows.
    `forms` and `words` spell methods and symbols. Single spaces separate the tokens, exactly as the embedded
    tokenizer decodes them.

    Raises:
        DataError: The prompt is not a chain, or there is not one value per operation.
    """
    chain = _chain(problem)
    right = running_values(problem)
    values = right if values is None else values
    if len(values) != len(right):
        raise DataError(f"problem {problem.id!r} has {len(right)} operations, got {len(values)} values.")
    # A form names what a step shows: only the value, or also the operation that gives it.
    earlier, last = forms[method]
    operations = zip((int(chain[0]), *values), chain[1:-1:2], chain[2:-1:2], values, strict=False)
    named = [dict(zip(("left", "operator", "digit", "value"), operation, strict=True)) for operation in operations]
    steps = [] if earlier is None else [earlier.format(**step) for step in named[:-1]]
    steps.append(last.format(**named[-1]))
    # The wording replaces symbols one by one, so that two wordings of a solution have equally many tokens.
    working = f"[ {' ; '.join(steps)} ]"
    if wording == "words":
        working = " ".join(words.get(token, token) for token in working.split())
    return f"<think> {working} </think> <answer> {values[-1]} </answer>"


def _chain(problem: Problem) -> str:
    if not isinstance(problem.prompt, str) or not _CHAIN.fullmatch(problem.prompt):
        raise DataError(
            f"problem {problem.id!r}: expected a prompt such as '3+4*7-2=', got {problem.prompt!r}. "
            "Is this a problem of another data set?"
        )
    return problem.prompt
