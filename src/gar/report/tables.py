"""Tables of the page: a line for each run, and how its responses ended. Cells are texts."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from gar.analysis.summary import edges, summarize
from gar.records import Run
from gar.records.run import MOMENTS
from gar.report.rollouts import verdict_word
from gar.report.runs import Groups
from gar.report.verdicts import NONE, measures


def runs_table(groups: Groups) -> pd.DataFrame:
    """One line for each run, with its course and its results. Runs of one name are told apart by their paths."""
    runs = [run for members in groups.values() for run in members]
    names = [run.name for run in runs]
    measured = [(name, k) for name, known in measures(groups).items() for _, k in known]
    rows = []
    for run in runs:
        known = summarize(run)
        rows.append(
            {
                "run": run.name if names.count(run.name) == 1 else str(run.path),
                "tags": ", ".join(tags(run)),
                "status": run.status,
                "method": run.settings.get("method"),
                "model": setting(run, "model", "path"),
                "data": setting(run, "data", "source"),
                "seed": run.seed,
                "steps": f"{run.last_step:,}",
                "rollouts": f"{sum(run.num_rows.values()):,}",
                "right": _arrow(edges(run.metrics, "gar/eligible_fraction"), ".0%"),
                "alignment": _arrow([*known["alignment_mean"].values()], ".2f"),
                "zero-std groups": _arrow([*known["zero_std_group_fraction"].values()], ".0%"),
                "seconds per step": _text(known["step_seconds"], ".2f"),
                "GAR’s share": _text(known["gar_time_fraction"], ".0%"),
                **{f"{name} pass@{k}": _arrow(_pass_rates(run, name, k), ".3f") for name, k in measured},
                "start": (run.record.get("start_time") or NONE)[:16].replace("T", " "),
            }
        )
    return pd.DataFrame([{name: NONE if cell is None else str(cell) for name, cell in row.items()} for row in rows])


def status_table(runs: Sequence[Run], counts: Sequence[Counter[str]]) -> pd.DataFrame:
    """How the responses ended, over all recorded rollouts. Without rows if there are none."""
    words = sorted({word for count in counts for word in count}, key=lambda word: (word != "right", word))
    rows = [
        [run.name, *(f"{count[word]:,} ({count[word] / count.total():.0%})" for word in words)]
        for run, count in zip(runs, counts, strict=True)
        if count
    ]
    return pd.DataFrame(rows, columns=["run", *words])


def verdict_counts(run: Run) -> Counter[str]:
    """Responses of all rollouts by how they ended."""
    counts: Counter[str] = Counter()
    columns = ["eligible", "verified", "status"]
    for row in run.rollouts(columns).group_by(columns).aggregate([([], "count_all")]).to_pylist():
        counts[verdict_word(row)] += row["count_all"]
    return counts


def tags(run: Run) -> list[str]:
    """Tags of a run, from its settings."""
    values = setting(run, "records", "tags")
    return [str(tag) for tag in values] if isinstance(values, list | tuple) else []


def setting(run: Run, section: str, name: str) -> Any:
    """A setting of a run as it was written. None if it has none."""
    values = run.settings.get(section)
    return values.get(name) if isinstance(values, dict) else None


def _pass_rates(run: Run, name: str, k: int) -> list[float | None]:
    parts = (run.evaluations[moment].get(name) for moment in MOMENTS)
    return [part.known_rates.get(k) if part else None for part in parts]


def _arrow(pair: Sequence[float | None], form: str) -> str:
    first, last = (_text(value, form) for value in pair)
    return NONE if first == last == NONE else f"{first} → {last}"


def _text(value: float | None, form: str) -> str:
    return NONE if value is None or math.isnan(value) else f"{value:{form}}".replace("-", "−")
