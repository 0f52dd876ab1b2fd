"""The tasks on chains of digits: the embedded one, and two fairer ones. README.md shows their methods."""

import operator
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from gar import DataError, Problem
from gar.data import arithmetic, prompt_text
from gar.models import embedded_path

Role = Literal["expert", "habit", "guess"]
"""Role of a method in a problem: the expert's method, the base model's habit, or a guess without work."""
ROLES: tuple[Role, ...] = get_args(Role)

SEPARATOR = "<sep>"
VERDICT_RIGHT, VERDICT_WRONG = "right", "wrong"
PLACEHOLDER = "_"
_PREFIX = "{operator} {left} {digit} = {value}"
NOTATION = arithmetic.Notation(
    forms=dict(arithmetic.NOTATION.forms)
    | {
        "prefix": (_PREFIX, _PREFIX),
        "padded": ("= {value} _ _ _", "= {value} _ _ _"),
        "padded-guess": ("? ? ? = ?", "? ? ? = {value}"),
    },
    words=dict(arithmetic.WORD_OF) | {PLACEHOLDER: "hm"},
)
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainTask(arithmetic.EmbeddedTask):
    """A task with the roles of its methods. `swaps`: the first two change places after an even first digit."""

    swaps: bool = False
    notation: arithmetic.Notation = NOTATION

    def method_of(self, role: Role, problem: Problem) -> str:
        """The method that has this role in a problem."""
        expert, habit, guess = self.methods
        if self.swaps and int(prompt_text(problem.prompt)[0]) % 2 == 0:
            expert, habit = habit, expert
        return expert if role == "expert" else habit if role == "habit" else guess

    def role_of(self, method: str | None, problem: Problem) -> Role | None:
        """The role of a method in a problem; None for a method of another task, or none at all."""
        return next((role for role in ROLES if self.method_of(role, problem) == method), None)

    def expert_method(self, problem: Problem) -> str:
        """The expert's method for a problem."""
        return self.method_of("expert", problem)


ARITHMETIC = ChainTask(name="arithmetic", methods=arithmetic.ARITHMETIC.methods, seed=arithmetic.ARITHMETIC.seed)
# The first digit decides which of two equally long methods is reliable.
WHICH_WAY = ChainTask(name="which-way", methods=("stepwise", "prefix", "padded-guess"), swaps=True, seed=18)
# The expert writes in the words that the policy uses for its worse method, which is as long.
WHOSE_VOICE = ChainTask(
    name="whose-voice", methods=("stepwise", "padded", "padded-guess"), expert_wordings=("words",), seed=19
)
TASKS: Mapping[str, ChainTask] = {task.name: task for task in (ARITHMETIC, WHICH_WAY, WHOSE_VOICE)}


def write_solution(
    problem: Problem, method: str, wording: arithmetic.Wording, *, values: Sequence[int] | None = None
) -> str:
    """As `gar.data.arithmetic.write_solution`, by the methods of all tasks."""
    return arithmetic.write_solution(problem, method, wording, values=values, notation=NOTATION)


def parse_solution(text: str) -> arithmetic.ParsedSolution:
    """As `gar.data.arithmetic.parse_solution`, by the methods of all tasks."""
    return arithmetic.parse_solution(text, NOTATION)


def task_of(problem: Problem) -> ChainTask:
    """The task that the problem's source names; the embedded one where it names none."""
    return TASKS.get(problem.source, ARITHMETIC)


def load_task(name: str, split: arithmetic.Split, expert: str | None = None) -> list[Problem]:
    """The problems of one split of a task. As `gar.data.arithmetic.task_problems`.

    Raises:
        DataError: There is no such task, split or method.
    """
    if name not in TASKS:
        raise DataError(f"there is no task {name!r}, expected one of {', '.join(TASKS)}.")
    return arithmetic.task_problems(TASKS[name], split, expert)


def task_of_all(problems: Iterable[Problem]) -> str | None:
    """The chain task that every problem names as its source; None for problems of another kind, or none at all."""
    names = {problem.source for problem in problems}
    return names.pop() if len(names) == 1 and names <= TASKS.keys() else None


def task_of_model(model: str) -> str:
    """The task that a model was trained for, by its folder: which-way for `models/which-way-qwen3` or `runs/which-way`.

    The embedded task where the folder names none.
    """
    name = Path(model).name.removesuffix("-qwen3")
    return name if name in TASKS else ARITHMETIC.name


def model_path(name: str) -> Path:
    """The folder of the model that was trained for a task."""
    return embedded_path() if name == ARITHMETIC.name else Path(__file__).parent / "models" / f"{name}-qwen3"


def draw_values(
    problem: Problem, rng: random.Random, *, slip_fraction: float = 0.0, habit_fraction: float = 0.0
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Draw running values with slips and with one bad habit. Later steps continue from the value that was written.

    Args:
        problem: A problem of one of the tasks.
        rng: Source of the draws.
        slip_fraction: Share of values that are replaced by another digit, drawn uniformly.
        habit_fraction: Share of subtractions below zero that are reversed: `3-7` becomes 4 instead of 6.

    Returns:
        One value per operation, and which of them are slips.
    """
    chain = str(problem.prompt)
    value, values, slips = int(chain[0]), [], []
    for sign, digit in zip(chain[1:-1:2], chain[2:-1:2], strict=True):
        is_reversed = sign == "-" and value < int(digit) and rng.random() < habit_fraction
        value = int(digit) - value if is_reversed else _OPERATIONS[sign](value, int(digit)) % 10
        slips.append(rng.random() < slip_fraction)
        if slips[-1]:
            value = (value + rng.randrange(1, 10)) % 10
        values.append(value)
    return tuple(values), tuple(slips)


def right_steps(problem: Problem, values: Sequence[int]) -> tuple[bool, ...]:
    """Which written values follow from the value before them.

    Example:
        >>> right_steps(Problem(id="p", prompt="3+4*7-2=", answer="7"), (8, 6, 5))
        (False, True, False)
    """
    chain = str(problem.prompt)
    steps = zip((int(chain[0]), *values), chain[1:-1:2], chain[2:-1:2], values, strict=False)
    return tuple(value == _OPERATIONS[sign](left, int(digit)) % 10 for left, sign, digit, value in steps)


def judge_prompt(problem: Problem, solution: str) -> str:
    """The prompt that the models were trained to answer with `right` or `wrong`: problem, solution, separator."""
    return f"{problem.prompt} {solution} {SEPARATOR}"


def privileged_prompt(problem: Problem) -> str:
    """The problem preceded by its expert solution, which the models were trained to follow."""
    return f"{problem.anchors[0].text} {SEPARATOR} {problem.prompt}"
