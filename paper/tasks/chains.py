"""The tasks on chains of digits: the embedded one, and two fairer ones. README.md shows their methods."""

import operator
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
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
FORMS: dict[str, arithmetic.Form] = {
    **arithmetic.FORMS,
    "prefix": (_PREFIX, _PREFIX),
    "padded": ("= {value} _ _ _", "= {value} _ _ _"),
    "padded-guess": ("? ? ? = ?", "? ? ? = {value}"),
}
WORD_OF = arithmetic.WORD_OF | {PLACEHOLDER: "hm"}
_SYMBOL_OF = {word: symbol for symbol, word in WORD_OF.items()}
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_TOKEN = re.compile(r"</?[a-z]+>|[a-z]+|\S")


def _pattern(earlier: str | None, last: str) -> re.Pattern[str]:
    """Pattern of a working in this form, in symbols without spaces."""

    def step(form: str) -> str:
        escaped = re.escape(form.replace(" ", "")).replace(r"\{operator\}", "[-+*]")
        return re.sub(r"\\\{\w+\\\}", r"\\d", escaped)

    before = "" if earlier is None else f"(?:{step(earlier)};)*"
    return re.compile(rf"\[?{before}{step(last)}\]?")


_PATTERNS = {method: _pattern(*form) for method, form in FORMS.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainTask:
    """A task on chains. `embedded.md` has the habits of the base models.

    Attributes:
        name: Its name, the source of its problems.
        methods: The expert's method, the base model's habit, and a guess.
        expert_wordings: Wordings to draw from for the expert solutions.
        swaps: Expert's method and habit change places after an even first digit.
        seed: Seed of the problems.
    """

    name: str
    methods: tuple[str, str, str]
    expert_wordings: tuple[arithmetic.Wording, ...] = arithmetic.WORDINGS
    swaps: bool = False
    seed: int

    def method_of(self, role: Role, problem: Problem) -> str:
        """The method that has this role in a problem."""
        expert, habit, guess = self.methods
        if self.swaps and int(prompt_text(problem.prompt)[0]) % 2 == 0:
            expert, habit = habit, expert
        return expert if role == "expert" else habit if role == "habit" else guess

    def role_of(self, method: str | None, problem: Problem) -> Role | None:
        """The role of a method in a problem. None for a method of another task, or none at all."""
        return next((role for role in ROLES if self.method_of(role, problem) == method), None)

    def expert_method(self, problem: Problem) -> str:
        """The expert's method for a problem."""
        return self.method_of("expert", problem)

    def draw(self, rng: random.Random, num_operations: int, expert: str | None = None) -> Problem:
        """Draw a problem. `expert` is the method of its expert solution, None for the task's own."""

        def solve(problem: Problem, rng: random.Random) -> str:
            return write_solution(problem, expert or self.expert_method(problem), rng.choice(self.expert_wordings))

        return arithmetic.draw_problem(rng, num_operations, self.name, solve)


ARITHMETIC = ChainTask(name="arithmetic", methods=("stepwise", "running", "guess"), seed=arithmetic.SEED)
# The first digit decides which of two equally long methods is reliable.
WHICH_WAY = ChainTask(name="which-way", methods=("stepwise", "prefix", "padded-guess"), swaps=True, seed=18)
# The expert writes in the words that the policy uses for its worse method, which is as long.
WHOSE_VOICE = ChainTask(
    name="whose-voice", methods=("stepwise", "padded", "padded-guess"), expert_wordings=("words",), seed=19
)
TASKS: Mapping[str, ChainTask] = {task.name: task for task in (ARITHMETIC, WHICH_WAY, WHOSE_VOICE)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedSolution:
    """The method, wording and values of a solution. None for a method or wording that does not fit or is mixed.

    `values` are the values after each `=` or `is`, one per step, whatever the method.
    """

    method: str | None
    wording: arithmetic.Wording | None
    values: tuple[int, ...]
    answer: str | None


def write_solution(
    problem: Problem, method: str, wording: arithmetic.Wording, *, values: Sequence[int] | None = None
) -> str:
    """As `gar.data.arithmetic.write_solution`, by the methods of all tasks."""
    return arithmetic.write_solution(problem, method, wording, values=values, forms=FORMS, words=WORD_OF)


def parse_solution(text: str) -> ParsedSolution:
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
    working = "".join(_SYMBOL_OF.get(token, token) for token in tokens)
    words, symbols = (any(token in known for token in tokens) for known in (_SYMBOL_OF, WORD_OF))
    wording: arithmetic.Wording | None = None if words == symbols else "words" if words else "symbols"
    return ParsedSolution(
        method=next((method for method, form in _PATTERNS.items() if form.fullmatch(working)), None),
        wording=wording,
        values=tuple(int(digit) for digit in re.findall(r"=(\d)", working)),
        answer=(answer_text.strip() or None) if closed else None,
    )


def task_of(problem: Problem) -> ChainTask:
    """The task that the problem's source names, or else the embedded one."""
    return TASKS.get(problem.source, ARITHMETIC)


def load_task(name: str, split: arithmetic.Split, expert: str | None = None) -> list[Problem]:
    """The problems of one split of a task. As `gar.data.load_arithmetic`.

    Raises:
        DataError: There is no such task, split or method.
    """
    methods = TASKS[name].methods if name in TASKS else ()
    for kind, value, known in (
        ("task", name, TASKS), ("split", split, arithmetic.NUM_PROBLEMS), ("expert", expert, (None, *methods)),
    ):  # fmt: skip
        if value not in known:
            raise DataError(f"{name}: there is no {kind} {value!r}, expected one of {', '.join(filter(None, known))}.")
    return list(_splits(TASKS[name], expert)[split])


@cache
def _splits(task: ChainTask, expert: str | None) -> dict[arithmetic.Split, list[Problem]]:
    return arithmetic.draw_splits(task.seed, lambda rng, num_operations: task.draw(rng, num_operations, expert))


def task_of_all(problems: Iterable[Problem]) -> str | None:
    """The chain task that every problem names as its source. None for problems of another kind, or none at all."""
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
