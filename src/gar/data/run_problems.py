"""The problems that the data section of a run's settings names: for training, analyses and reports alike."""

from collections.abc import Collection
from typing import cast

from gar.data.arithmetic import Method, Split, load_arithmetic
from gar.data.layouts import LayoutName
from gar.data.problems import LoadedProblems, ProblemReader, SourceOptions, load_problems
from gar.errors import DataError
from gar.settings import DataSettings
from gar.types import Problem

EMBEDDED = "arithmetic"
"""The source that is the task inside the package."""


def load_run_problems(settings: DataSettings) -> LoadedProblems:
    """The first `max_problems` of a run's problems, as their source has them: not yet rendered as prompts.

    Raises:
        DataError: As `load_problems`; or the embedded task has no such split or expert.
    """
    if settings.source == EMBEDDED:
        problems = _embedded(settings)[: settings.max_problems]
        return LoadedProblems(problems=problems, dropped=[], layout=EMBEDDED, notes=[])
    return load_problems(settings.source, options=_options(settings), max_problems=settings.max_problems)


def find_run_problems(settings: DataSettings, ids: Collection[str]) -> dict[str, Problem]:
    """Some of a run's problems, by id, read only as far as needed; bad rows elsewhere in the source do not matter.

    Returns:
        Those that were found.

    Raises:
        DataError: The source cannot be read at all.
    """
    found: dict[str, Problem] = {}
    if settings.source == EMBEDDED:
        return {problem.id: problem for problem in _embedded(settings) if problem.id in ids}
    for _, item in ProblemReader(settings.source, _options(settings), on_error=_skip):
        if isinstance(item, Problem) and item.id in ids:
            found[item.id] = item
            if len(found) == len(ids):
                break
    return found


def _embedded(settings: DataSettings) -> list[Problem]:
    return load_arithmetic(cast(Split, settings.split), cast(Method, settings.subset or "stepwise"))


def _options(settings: DataSettings) -> SourceOptions:
    return SourceOptions(
        layout=cast(LayoutName | None, settings.layout),
        prompt_field=settings.prompt_field,
        answer_field=settings.answer_field,
        anchor_fields=settings.anchor_fields,
        split=settings.split,
        subset=settings.subset,
        revision=settings.revision,
    )


def _skip(error: DataError) -> None:
    """The row is not asked for, or is counted as not found."""
