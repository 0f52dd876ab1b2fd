"""The problems that the data section of a run's settings names, for training, analyses and reports."""

from collections.abc import Collection
from pathlib import Path
from typing import cast, get_args

from gar.data.arithmetic import SolutionMethod, Split, load_arithmetic
from gar.data.problems import LoadedProblems, iter_problems, load_problems
from gar.settings import EMBEDDED_TASKS, DataSettings
from gar.types import Problem

GENERATED = EMBEDDED_TASKS
"""Sources that the package generates: they need no file."""


def load_run_problems(settings: DataSettings) -> LoadedProblems:
    """The first `max_problems` problems of a run, not yet rendered as prompts.

    Raises:
        DataError: As `load_problems`, or a generated task has no such split or expert.
    """
    if settings.source in GENERATED:
        problems = _generated(settings)[: settings.max_problems]
        return LoadedProblems(problems=problems, notes=[])
    return load_problems(settings.source, options=settings, max_problems=settings.max_problems)


def find_run_problems(settings: DataSettings, ids: Collection[str]) -> dict[str, Problem]:
    """Problems of a run by id, those that the source has. Reading stops when all are found. Bad rows are ignored."""
    by_id: dict[str, Problem] = {}
    if settings.source in GENERATED:
        return {problem.id: problem for problem in _generated(settings) if problem.id in ids}
    for _, item in iter_problems(settings.source, settings, on_error=lambda error: None):
        if isinstance(item, Problem) and item.id in ids:
            by_id[item.id] = item
            if len(by_id) == len(ids):
                break
    return by_id


def evaluation_data(data: DataSettings, source: str) -> DataSettings:
    """Data settings of an evaluation set: the run's, with another source or another split of a generated task."""
    if source not in get_args(Split) or Path(source).exists():
        return data.model_copy(update={"source": source})
    return data.model_copy(
        update={"source": data.source if data.source in GENERATED else EMBEDDED_TASKS[0], "split": source}
    )


def _generated(settings: DataSettings) -> list[Problem]:
    return load_arithmetic(cast(Split, settings.split), cast("SolutionMethod | None", settings.subset))
