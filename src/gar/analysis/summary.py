"""A summary of a run in a few numbers, from its run folder alone."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from gar.records import open_run

_EDGE_FRACTION = 0.1
"""Share of the steps that counts as the beginning of a run, and as its end."""


def summarize(path: str | Path) -> dict[str, Any]:
    """Evaluations before and after, alignment, zero-std groups and seconds per step.

    Plain values, None if the run recorded nothing. Beginning and end are the first and last tenth of the steps.
    """
    run = open_run(path)
    rows = [row for row in run.metrics if "time/step_seconds" in row]
    edge = max(1, round(len(rows) * _EDGE_FRACTION))
    step_seconds = logged(rows, "time/step_seconds")
    evaluations = {name: sets for name, sets in run.evaluations.items() if sets}
    return {
        "steps": rows[-1]["step"] if rows else 0,
        "pass_at": {
            name: {set_name: dict(part.pass_at) for set_name, part in sets.items()}
            for name, sets in evaluations.items()
        },
        "alignment_mean": {
            "beginning": mean_of(logged(rows[:edge], "gar/alignment_mean")),
            "end": mean_of(logged(rows[-edge:], "gar/alignment_mean")),
        },
        "zero_std_group_fraction": {
            "outcome": mean_of(logged(rows, "gar/zero_std_group_fraction_outcome")),
            "shaped": mean_of(logged(rows, "gar/zero_std_group_fraction_shaped")),
        },
        "step_seconds": statistics.median(step_seconds) if step_seconds else None,
        "gar_time_fraction": gar_time_fraction(rows),
    }


def gar_time_fraction(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """GAR's share of the time of all steps. None if times were not recorded, or no response was ever scored."""
    seconds, gar_seconds = (logged(rows, f"time/{part}_seconds") for part in ("step", "gar"))
    scored = logged(rows, "gar/scored_fraction")
    if not sum(seconds) or not gar_seconds or (scored and not any(scored)):
        return None
    return sum(gar_seconds) / sum(seconds)


def render_summary(summary: Mapping[str, Any]) -> Table:
    """The summary as a small table for a terminal."""
    table = Table(title=f"After {summary['steps']} steps", title_justify="left")
    for heading in ("", "before", "after"):
        table.add_column(heading, justify="right" if heading else "left")
    before, after = (summary["pass_at"].get(name, {}) for name in ("before", "after"))
    for set_name in before | after:
        for k in (before | after)[set_name]:
            numbers = (_number(moment.get(set_name, {}).get(k)) for moment in (before, after))
            table.add_row(f"pass@{k}, {set_name}", *numbers)
    alignment = summary["alignment_mean"]
    table.add_row(
        "alignment of correct responses, first and last tenth of steps",
        _number(alignment["beginning"]),
        _number(alignment["end"]),
    )
    zero_std = summary["zero_std_group_fraction"]
    table.add_row(
        "zero-std groups, before and after shaping", _percent(zero_std["outcome"]), _percent(zero_std["shaped"])
    )
    table.add_section()
    seconds = summary["step_seconds"]
    table.add_row("seconds per step (median)", "", "-" if seconds is None else f"{seconds:.2f}")
    if summary["gar_time_fraction"] is not None:
        table.add_row("GAR's share of them", "", _percent(summary["gar_time_fraction"]))
    return table


def logged(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """The known values of a metric."""
    return [row[name] for row in rows if row.get(name) is not None]


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean of the known values. None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"
