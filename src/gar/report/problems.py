"""The problems of the evaluation sets before and after training: lost, never solved, gained."""

from collections.abc import Sequence

import pandas as pd

from gar.analysis.summary import NONE
from gar.records import Run
from gar.report.runs import Groups

_MOST = 5000
"""Rows of the table."""
_OUTCOMES = ("lost", "never solved", "gained", "unchanged", "unsolved", "solved")
"""In the order of the table. The last two are of sets that were measured only once."""

_Count = tuple[int, int]
"""Right samples of a problem, and all of them."""


def problem_table(groups: Groups) -> tuple[pd.DataFrame, list[str]]:
    """A row for each problem, set and group of runs, by outcome, and a sentence about each set and group.

    Samples are summed over the seeds of a group.
    """
    rows, sentences = list[list[str]](), list[str]()
    for label, runs in groups.items():
        for name in dict.fromkeys(name for run in runs for sets in run.evaluations.values() for name in sets):
            found = _rows(_counts(runs, "before", name), _counts(runs, "after", name))
            outcomes = [outcome for *_, outcome in found]
            words = [f"{outcomes.count(each):,} {each}" for each in _OUTCOMES if each in outcomes]
            place = f"{label}, {name}" if len(groups) > 1 else name
            sentences.append(f"{place}, {len(found):,} problems: {', '.join(words)}.")
            rows += [[label, name, *row] for row in found]
    rows = sorted(rows, key=lambda row: _OUTCOMES.index(row[-1]))
    if len(rows) > _MOST:
        sentences.append(f"The table has the first {_MOST:,} of {len(rows):,} rows.")
    table = pd.DataFrame(rows[:_MOST], columns=["runs", "set", "problem", "before", "after", "outcome"])
    return (table if len(groups) > 1 else table.drop(columns="runs")), sentences


def _counts(runs: Sequence[Run], moment: str, name: str) -> dict[str, _Count]:
    """The counts of one set by problem, over the runs that measured it."""
    counts: dict[str, _Count] = {}
    for part in filter(None, (run.evaluations[moment].get(name) for run in runs)):
        for each in part.problems:
            right, samples = counts.get(each.id, (0, 0))
            counts[each.id] = (right + each.num_correct, samples + part.num_samples)
    return counts


def _rows(before: dict[str, _Count], after: dict[str, _Count]) -> list[list[str]]:
    """Problem, right samples before and after, and outcome. The largest change comes first."""
    changes = {id: _share(after.get(id)) - _share(before.get(id)) for id in {**before, **after}}
    return [
        [id, _text(before.get(id)), _text(after.get(id)), _outcome(before.get(id), after.get(id))]
        for id in sorted(changes, key=lambda id: -abs(changes[id]))
    ]


def _outcome(before: _Count | None, after: _Count | None) -> str:
    if before is None or after is None:
        return "solved" if _share(before) or _share(after) else "unsolved"
    if _share(before) == _share(after):
        return "unchanged" if after[0] else "never solved"
    return "lost" if _share(after) < _share(before) else "gained"


def _share(count: _Count | None) -> float:
    return count[0] / count[1] if count else 0.0


def _text(count: _Count | None) -> str:
    return f"{count[0]:,} of {count[1]:,}" if count else NONE
