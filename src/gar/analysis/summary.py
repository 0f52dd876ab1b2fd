"""A summary of a run in a few numbers."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from gar.records import Run

NONE = "–"
"""The text of an unknown value."""
_EDGE_FRACTION = 0.1


def summarize(run: Run) -> dict[str, Any]:
    """Right responses, evaluations before and after, alignment, zero-std groups and seconds per step.

    Plain values, None if the run recorded nothing. Beginning and end are means over the first and the last tenth of the
    steps that have the metric.
    """
    rows = [row for row in run.metrics if "time/step_seconds" in row]
    seconds = _logged(rows, "time/step_seconds")
    return {
        "steps": rows[-1]["step"] if rows else 0,
        "pass_at": {
            moment: {name: dict(part.pass_at) for name, part in sets.items()}
            for moment, sets in run.evaluations.items()
            if sets
        },
        "right_fraction": _edges(run.metrics, "gar/eligible_fraction"),
        "alignment_mean": _edges(rows, "gar/alignment_mean"),
        "zero_std_group_fraction": {
            kind: _mean(_logged(rows, f"gar/zero_std_group_fraction_{kind}")) for kind in ("outcome", "shaped")
        },
        "step_seconds": statistics.median(seconds) if seconds else None,
        "gar_time_fraction": _gar_time_fraction(rows, seconds),
    }


def summary_texts(summary: Mapping[str, Any]) -> dict[str, str]:
    """The summary by label, as texts. Rates are before and after training."""
    before, after = (summary["pass_at"].get(moment, {}) for moment in ("before", "after"))
    rates = {
        f"{name} pass@{k}": _text([before.get(name, {}).get(k), after.get(name, {}).get(k)], ".3f")
        for name in before | after
        for k in (before.get(name, {}) | after.get(name, {}))
    }
    return {
        "right": _text(summary["right_fraction"].values(), ".0%"),
        "alignment": _text(summary["alignment_mean"].values(), ".2f"),
        "zero-std groups": _text(summary["zero_std_group_fraction"].values(), ".1%"),
        "seconds per step": _text([summary["step_seconds"]], ".2f"),
        "GAR’s share": _text([summary["gar_time_fraction"]], ".1%"),
        **{label: rate for label, rate in rates.items() if rate != NONE},
    }


def render_summary(summary: Mapping[str, Any]) -> Table:
    """The summary as a small table for a terminal."""
    table = Table("", "", title=f"After {summary['steps']} steps", title_justify="left", show_header=False)
    for label, text in summary_texts(summary).items():
        table.add_row(label, text)
    return table


def _edges(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, float | None]:
    having = [row for row in rows if name in row]
    size = max(1, round(len(having) * _EDGE_FRACTION))
    return {"beginning": _mean(_logged(having[:size], name)), "end": _mean(_logged(having[-size:], name))}


def _gar_time_fraction(rows: Sequence[Mapping[str, Any]], seconds: Sequence[float]) -> float | None:
    """GAR's share of the time of all steps. None if times were not recorded, or no response was ever scored."""
    gar_seconds, scored = _logged(rows, "time/gar_seconds"), _logged(rows, "gar/scored_fraction")
    if not sum(seconds) or not gar_seconds or (scored and not any(scored)):
        return None
    return sum(gar_seconds) / sum(seconds)


def _logged(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows if row.get(name) is not None]


def _mean(known: Sequence[float]) -> float | None:
    return statistics.fmean(known) if known else None


def _text(values: Any, form: str) -> str:
    texts = [NONE if each is None or math.isnan(each) else f"{each:{form}}".replace("-", "−") for each in values]
    return NONE if {*texts} == {NONE} else " → ".join(texts)
