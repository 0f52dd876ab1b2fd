"""Tables of the page: a line for each run, and how its responses ended. Cells are texts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gar.analysis.summary import NONE, summarize, summary_texts
from gar.evaluation.text_tables import NUMBER_HEADINGS, number_rows
from gar.records import Run, leaves
from gar.report.reasons import verdict_word


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
            "start": (run.record.get("start_time") or NONE)[:16].replace("T", " "),
            **_course(run),
        }
        for run in runs
    ]
    return pd.DataFrame(rows, dtype=object).fillna(NONE).astype(str)


def _course(run: Run) -> dict[str, str]:
    """How far a run came, and its numbers before and after. An evaluation by `gar eval` has one moment alone."""
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
