"""The problems that the data section of a run's settings names, for training, analyses and reports."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast, get_args

from gar.data.arithmetic import SolutionMethod, Split, load_arithmetic
from gar.data.problems import LoadedProblems, iter_problems, load_problems
from gar.settings import EMBEDDED_TASKS, DataSettings
from gar.types import Problem


def load_run_problems(settings: DataSettings) -> LoadedProblems:
    """The first `max_problems` problems of a run, not yet rendered as prompts.

    Raises:
        DataError: As `load_problems`, or a generated task has no such split or expert.
    """
    if settings.source in EMBEDDED_TASKS:
        problems = _generated(settings)[: settings.max_problems]
        return LoadedProblems(problems=problems, notes=[])
    return load_problems(settings.source, options=settings, max_problems=settings.max_problems)


def iter_run_problems(settings: DataSettings) -> Iterator[Problem]:
    """The problems of a run one at a time, in bounded memory. More than `max_problems`."""
    if settings.source in EMBEDDED_TASKS:
        yield from _generated(settings)
    else:
        yield from (problem for _, problem in iter_problems(settings.source, settings))


def evaluation_data(data: DataSettings, source: str) -> DataSettings:
    """Data settings of an evaluation set: the run's, with another source or another split of a generated task."""
    if source not in get_args(Split) or Path(source).exists():
        return data.model_copy(update={"source": source})
    return data.model_copy(
        update={"source": data.source if data.source in EMBEDDED_TASKS else EMBEDDED_TASKS[0], "split": source}
    )


def _generated(settings: DataSettings) -> list[Problem]:
    return load_arithmetic(cast(Split, settings.split), cast("SolutionMethod | None", settings.subset))
