"""Expert solutions for the browser. Rollouts do not hold them: they are read again from where the run had them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gar.data.run_problems import EMBEDDED, find_run_problems
from gar.errors import DataError
from gar.report.read import ReadRun
from gar.report.sample import DrawnGroup
from gar.settings import DataSettings
from gar.types import Problem

Experts = Mapping[tuple[int, str], Problem]
"""By run and problem id."""


def expert_problems(
    runs: Sequence[ReadRun], groups: Sequence[DrawnGroup], problems: str | None, notes: list[str]
) -> dict[tuple[int, str], Problem]:
    """The problems of the drawn groups, with their anchors, as far as they can be found.

    Args:
        runs: The runs.
        groups: What was drawn from them.
        problems: A file to read in place of the runs' own source.
        notes: Receives what could not be found, and why.

    Returns:
        Problems with the recorded answer; one whose answer is another is not the one of the run and is left out.
    """
    found: dict[tuple[int, str], Problem] = {}
    for number, run in enumerate(runs):
        golds = {str(group.first["problem_id"]): group.first["gold"] for group in groups if group.run == number}
        if not golds:
            continue
        if run.config is None:
            notes.append(f"{run.name}: the source of its problems is unknown, so expert solutions are not shown.")
            continue
        try:
            loaded = _find(run.config.data, set(golds), problems)
        except DataError as error:
            notes.append(f"{run.name}: expert solutions are not shown, since its problems cannot be read: {error}")
            continue
        same = {key: problem for key, problem in loaded.items() if golds[key] in (None, problem.answer)}
        found |= {(number, key): problem for key, problem in same.items()}
        if len(same) < len(golds):
            notes.append(
                f"{run.name}: {len(golds) - len(same)} of {len(golds)} drawn problems were not found in their source "
                "with the recorded answer; their expert solutions are not shown."
            )
    return found


def _find(data: DataSettings, wanted: set[str], problems: str | None) -> dict[str, Problem]:
    source = problems or data.source
    if source != EMBEDDED and not Path(source).exists():
        raise DataError(f"there is no '{source}' here, and a report fetches nothing. Name a file with --problems.")
    return find_run_problems(data.model_copy(update={"source": source}), wanted)
