"""The tasks on chains of digits: the embedded one, and two fairer ones. README.md shows their methods."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from gar import DataError, Problem
from gar.data import arithmetic
from gar.models import embedded_path

# The first digit decides which of two equally long methods is reliable.
WHICH_WAY = arithmetic.EmbeddedTask(
    name="which-way", methods=("stepwise", "prefix", "padded-guess"), swaps=True, seed=18
)
# The expert writes in the words that the policy uses for its worse method, which is as long.
WHOSE_VOICE = arithmetic.EmbeddedTask(
    name="whose-voice", methods=("stepwise", "padded", "padded-guess"), expert_wordings=("words",), seed=19
)
TASKS: Mapping[str, arithmetic.EmbeddedTask] = {
    task.name: task for task in (arithmetic.ARITHMETIC, WHICH_WAY, WHOSE_VOICE)
}


def task_of(problem: Problem) -> arithmetic.EmbeddedTask:
    """The task that the problem's source names; the embedded one where it names none."""
    return TASKS.get(problem.source, arithmetic.ARITHMETIC)


def load_task(name: str, split: arithmetic.Split, expert: arithmetic.SolutionMethod | None = None) -> list[Problem]:
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
    return name if name in TASKS else arithmetic.ARITHMETIC.name


def model_path(name: str) -> Path:
    """The folder of the model that was trained for a task."""
    return embedded_path() if name == arithmetic.ARITHMETIC.name else Path(__file__).parent / "models" / f"{name}-qwen3"
