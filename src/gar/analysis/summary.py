"""A summary of a run in a few numbers."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from gar.records import Run

_EDGE_FRACTION = 0.1


def summarize(run: Run) -> dict[str, Any]:
    """Evaluations before and after, alignment, zero-std groups and seconds per step.

    Plain values, None if the run recorded nothing. Beginning and end are `edges`.
    """
    rows = [row for row in run.metrics if "time/step_seconds" in row]
    seconds = _logged(rows, "time/step_seconds")
    first, last = edges(rows, "gar/alignment_mean")
    return {
        "steps": rows[-1]["step"] if rows else 0,
        "pass_at": {
            moment: {name: dict(part.pass_at) for name, part in sets.items()}
            for moment, sets in run.evaluations.items()
            if sets
        },
        "alignment_mean": {"beginning": first, "end": last},
        "zero_std_group_fraction": {
            kind: _mean(_logged(rows, f"gar/zero_std_group_fraction_{kind}")) for kind in ("outcome", "shaped")
        },
        "step_seconds": statistics.median(seconds) if seconds else None,
        "gar_time_fraction": _gar_time_fraction(rows, seconds),
    }


def edges(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Mean of a metric over the first and over the last tenth of the rows that have it. None if nothing is known."""
    having = [row for row in rows if name in row]
    size = max(1, round(len(having) * _EDGE_FRACTION))
    return _mean(_logged(having[:size], name)), _mean(_logged(having[-size:], name))


def _gar_time_fraction(rows: Sequence[Mapping[str, Any]], seconds: Sequence[float]) -> float | None:
    """GAR's share of the time of all steps. None if times were not recorded, or no response was ever scored."""
    gar_seconds, scored = _logged(rows, "time/gar_seconds"), _logged(rows, "gar/scored_fraction")
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


def _logged(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows if row.get(name) is not None]


def _mean(known: Sequence[float]) -> float | None:
    return statistics.fmean(known) if known else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"
