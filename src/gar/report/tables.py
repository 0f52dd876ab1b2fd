"""Tables of the page: each run, how its responses ended, and each problem before and after. Cells are texts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gar.analysis.summary import NONE, summarize, summary_texts
from gar.evaluation.text_tables import NUMBER_HEADINGS, number_rows
from gar.records import Run, leaves
from gar.report.reasons import verdict_word
from gar.report.runs import Groups

_MOST = 5000
"""Rows of the table."""
_OUTCOMES = ("lost", "never solved", "gained", "unchanged", "unsolved", "solved")
"""In the order of the table. The last two are of sets that were measured only once."""

_Count = tuple[int, int]
"""Right samples of a problem, and all of them."""


def runs_table(runs: Sequence[Run]) -> pd.DataFrame:
    """One line for each run, with its course and its results. Runs of one name are told apart by their paths."""
    names = [run.name for run in runs]
    rows = [
        {
            "run": run.name if names.count(run.name) == 1 else str(run.path),
            "status": run.status,
            "method": run.settings.get("method"),
            "model": setting(run, "model.path"),
            "data": setting(run, "data.source"),
            "seed": run.seed,
            "start": run.record.start_time[:16].replace("T", " ") if run.record else NONE,
            **_course(run),
        }
        for run in runs
    ]
    return pd.DataFrame(rows, dtype=object).fillna(NONE).astype(str)


def _course(run: Run) -> dict[str, str]:
    """How far a run came, and its numbers before and after. An evaluation by `gar eval` has only one moment."""
    numbers = summary_texts(summarize(run))
    if not run.trained:
        return {"steps": NONE, "rollouts": NONE} | {name: text.split(" → ")[-1] for name, text in numbers.items()}
    return {"steps": f"{run.last_step:,}", "rollouts": f"{sum(run.num_rows.values()):,}", **numbers}


def status_table(runs: Sequence[Run], counts: Sequence[Counter[str]]) -> pd.DataFrame:
    """How the responses ended, over all recorded rollouts. Without rows if there are none."""
    words = sorted({word for count in counts for word in count}, key=lambda word: (word != "right", word))
    rows = [
        [run.name, *(_share_text(count[word], count.total()) for word in words)]
        for run, count in zip(runs, counts, strict=True)
        if count
    ]
    return pd.DataFrame(rows, columns=["run", *words])


def _share_text(count: int, total: int) -> str:
    """A count and its share. A few of many are not 0%, and most of many not 100%."""
    rounded = f"{count / total:.0%}"
    if rounded in ("0%", "100%") and 0 < count < total:
        rounded = "<1%" if rounded == "0%" else ">99%"
    return f"{count:,} ({rounded})"


def measured_tables(runs: Sequence[Run]) -> dict[str, pd.DataFrame]:
    """The numbers of each evaluation by `gar eval`, as the command prints them, by title."""
    tables: dict[str, pd.DataFrame] = {}
    for run in [each for each in runs if not each.trained]:
        for part in run.evaluations["after"].values():
            title, rows = number_rows(run.settings, part)
            title = title if len(runs) == 1 else f"{run.name}, {title}"
            tables[title] = pd.DataFrame(filter(None, rows), columns=[*NUMBER_HEADINGS])
    return tables


def verdict_counts(run: Run) -> Counter[str]:
    """Responses of all rollouts by how they ended."""
    counts: Counter[str] = Counter()
    columns = ["eligible", "verified", "status"]
    for row in run.rollouts(columns).group_by(columns).aggregate([([], "count_all")]).to_pylist():
        counts[verdict_word(row)] += row["count_all"]
    return counts


def setting(run: Run, name: str) -> Any:
    """A setting of a run as it was written, by its dotted name. None if it has none."""
    return dict(leaves(run.settings)).get(name)


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
