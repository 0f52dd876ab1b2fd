"""The embedded task: chains of digit arithmetic, modulo 10, read from left to right.

`3+4*7-2=` has the running values 7, 9 and 7, so its answer is 7. A *method* is a form of the working. Each method
exists in two *wordings*, which differ token by token and never change the method:

    stepwise, symbols       [ 3 + 4 = 7 ; 7 * 7 = 9 ; 9 - 2 = 7 ]
    stepwise, words         ok 3 plus 4 is 7 then 7 times 7 is 9 then 9 minus 2 is 7 so
    running, symbols        [ = 7 ; = 9 ; = 7 ]
    guess, words            ok maybe is 7 so

Everything is drawn with a fixed seed: the same version of this file gives the same problems everywhere. A task of your
own on such chains is an `EmbeddedTask`, with a `Notation` if it has other methods.
"""

import operator
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal, get_args

from gar.errors import DataError
from gar.types import Anchor, Problem

Split = Literal["train", "test", "harder"]
SolutionMethod = Literal["stepwise", "running", "guess"]
Wording = Literal["symbols", "words"]

METHODS: tuple[SolutionMethod, ...] = get_args(SolutionMethod)
WORDINGS: tuple[Wording, ...] = get_args(Wording)

NUM_PROBLEMS: dict[Split, int] = {"train": 2000, "test": 200, "harder": 200}
NUM_OPERATIONS: dict[Split, tuple[int, ...]] = {"train": (2, 3, 4), "test": (2, 3, 4), "harder": (5, 6)}

WORD_OF = {"[": "ok", "]": "so", ";": "then", "=": "is", "?": "maybe", "+": "plus", "-": "minus", "*": "times"}
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_STEP = "{left} {operator} {digit} = {value}"
_CHAIN = re.compile(r"\d(?:[-+*]\d)+=")
_TOKEN = re.compile(r"</?[a-z]+>|[a-z]+|\S")


def _pattern(earlier: str | None, last: str) -> re.Pattern[str]:
    """Pattern of a working in this form, without spaces."""

    def step(form: str) -> str:
        escaped = re.escape(form.replace(" ", "")).replace(r"\{operator\}", "[-+*]")
        return re.sub(r"\\\{\w+\\\}", r"\\d", escaped)

    before = "" if earlier is None else f"(?:{step(earlier)};)*"
    return re.compile(rf"\[?{before}{step(last)}\]?")


@dataclass(frozen=True, kw_only=True, eq=False)
class Notation:
    """How methods are written down.

    Attributes:
        forms: For each method the form of every step before the last (None: not written), and that of the last step.
        words: The word for each symbol.
    """

    forms: Mapping[str, tuple[str | None, str]]
    words: Mapping[str, str]

    @cached_property
    def symbols(self) -> Mapping[str, str]:
        """The symbol for each word."""
        return {word: symbol for symbol, word in self.words.items()}

    @cached_property
    def patterns(self) -> Mapping[str, re.Pattern[str]]:
        """What a working of each method looks like in symbols, without spaces."""
        return {method: _pattern(*form) for method, form in self.forms.items()}


NOTATION = Notation(
    forms={"stepwise": (_STEP, _STEP), "running": ("= {value}", "= {value}"), "guess": (None, "? = {value}")},
    words=WORD_OF,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedTask:
    """A task on chains. `paper/tasks/embedded.md` has the habits of the base model.

    Attributes:
        name: Its name, the source of its problems.
        methods: The expert's method, the base model's habit, and a guess.
        expert_wordings: Wordings to draw from for the expert solutions.
        notation: How its methods are written.
        seed: Seed of the problems.
    """

    name: str
    methods: tuple[str, str, str]
    expert_wordings: tuple[Wording, ...] = WORDINGS
    notation: Notation = NOTATION
    seed: int

    def expert_method(self, problem: Problem) -> str:
        """The expert's method for a problem."""
        return self.methods[0]


ARITHMETIC = EmbeddedTask(name="arithmetic", methods=("stepwise", "running", "guess"), seed=17)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedSolution:
    """The method, wording and values of a solution. None for a method or wording that does not fit or is mixed.

    `values` are the values after each `=` or `is`, one per step, whatever the method.
    """

    method: str | None
    wording: Wording | None
    values: tuple[int, ...]
    answer: str | None


def load_arithmetic(split: Split, expert: SolutionMethod | None = None) -> list[Problem]:
    """Load the problems of one split of the embedded task. As `task_problems`."""
    return task_problems(ARITHMETIC, split, expert)


def task_problems(task: EmbeddedTask, split: Split, expert: str | None = None) -> list[Problem]:
    """The problems of one split of a task: `train-0`, `train-1`, ... They never change, and none is in two splits.

    `train` (2,000 problems) and `test` (200) have 2 to 4 operations, `harder` (200) has 5 or 6. `expert` is the method
    of all expert solutions, None for the task's own. Their random wording does not depend on it.

    Raises:
        DataError: There is no such split or method.
    """
    if split not in NUM_PROBLEMS:
        raise DataError(f"the {task.name} task has no split {split!r}, expected one of {', '.join(NUM_PROBLEMS)}.")
    if expert is not None and expert not in task.methods:
        raise DataError(f"the {task.name} task has no expert {expert!r}, expected one of {', '.join(task.methods)}.")
    problems = _all_splits(task)[split]
    return list(problems) if expert is None else [_rewritten(problem, expert, task.notation) for problem in problems]


def _rewritten(problem: Problem, expert: str, notation: Notation) -> Problem:
    wording = parse_solution(problem.anchors[0].text, notation).wording or "symbols"
    return replace(problem, anchors=(Anchor(text=write_solution(problem, expert, wording, notation=notation)),))


@cache
def _all_splits(task: EmbeddedTask) -> dict[Split, list[Problem]]:
    rng = random.Random(task.seed)
    seen: set[str] = set()
    problems: dict[Split, list[Problem]] = {split: [] for split in NUM_PROBLEMS}
    for split, drawn in problems.items():
        while len(drawn) < NUM_PROBLEMS[split]:
            problem = draw_problem(rng, rng.choice(NUM_OPERATIONS[split]), task)
            if problem.prompt not in seen:
                seen.add(str(problem.prompt))
                drawn.append(replace(problem, id=f"{split}-{len(drawn)}"))
    return problems


def draw_problem(rng: random.Random, num_operations: int, task: EmbeddedTask = ARITHMETIC) -> Problem:
    """Draw a problem whose answer is uniform over the digits, so that a guess is right one time in ten."""
    answer = rng.randrange(10)
    while True:
        chain = str(rng.randrange(10))
        for _ in range(num_operations):
            chain += rng.choice("+-*") + str(rng.randrange(10))
        problem = Problem(id="drawn", prompt=f"{chain}=", answer=str(answer), source=task.name)
        if running_values(problem)[-1] == answer:
            wording = rng.choice(task.expert_wordings)
            expert = write_solution(problem, task.expert_method(problem), wording, notation=task.notation)
            return replace(problem, anchors=(Anchor(text=expert),))


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
    notation: Notation = NOTATION,
) -> str:
    """Write a full response with tags: `<think> [ = 7 ; = 9 ; = 7 ] </think> <answer> 7 </answer>`.

    `values` has one value per operation, by default the right ones. The last one is the answer. A guess shows it alone.
    The tokens stand between single spaces, exactly as the embedded tokenizer decodes them.

    Raises:
        DataError: The prompt is not a chain, or there is not one value per operation.
    """
    chain = _chain(problem)
    right = running_values(problem)
    values = right if values is None else values
    if len(values) != len(right):
        raise DataError(f"problem {problem.id!r} has {len(right)} operations, got {len(values)} values.")
    earlier, last = notation.forms[method]
    operations = zip((int(chain[0]), *values), chain[1:-1:2], chain[2:-1:2], values, strict=False)
    named = [dict(zip(("left", "operator", "digit", "value"), operation, strict=True)) for operation in operations]
    steps = [] if earlier is None else [earlier.format(**step) for step in named[:-1]]
    steps.append(last.format(**named[-1]))
    working = f"[ {' ; '.join(steps)} ]"
    if wording == "words":
        working = " ".join(notation.words.get(token, token) for token in working.split())
    return f"<think> {working} </think> <answer> {values[-1]} </answer>"


def parse_solution(text: str, notation: Notation = NOTATION) -> ParsedSolution:
    """Find the method and the wording of any response, even one that breaks the format.

    The working is the text outside the answer tags, without thinking tags and special tokens. A wrong value does not
    change the method. A working that is cut off in the middle of a step has no method.

    Example:
        >>> parse_solution("<think> ok is 7 then is 9 so </think> <answer> 9 </answer>")
        ParsedSolution(method='running', wording='words', values=(7, 9), answer='9')
    """
    before, _, after = text.partition("<answer>")
    answer_text, closed, rest = after.partition("</answer>")
    pieces: list[str] = _TOKEN.findall(before + rest)
    tokens = [piece for piece in pieces if not piece.startswith("<")]
    working = "".join(notation.symbols.get(token, token) for token in tokens)
    words, symbols = (any(token in known for token in tokens) for known in (notation.symbols, notation.words))
    wording: Wording | None = None if words == symbols else "words" if words else "symbols"
    return ParsedSolution(
        method=next((method for method, form in notation.patterns.items() if form.fullmatch(working)), None),
        wording=wording,
        values=tuple(int(digit) for digit in re.findall(r"=(\d)", working)),
        answer=(answer_text.strip() or None) if closed else None,
    )


def _chain(problem: Problem) -> str:
    if not isinstance(problem.prompt, str) or not _CHAIN.fullmatch(problem.prompt):
        raise DataError(
            f"problem {problem.id!r}: expected a prompt such as '3+4*7-2=', got {problem.prompt!r}. "
            "Is this a problem of another data set?"
        )
    return problem.prompt
