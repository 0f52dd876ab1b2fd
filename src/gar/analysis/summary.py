"""A summary of a run in a few numbers."""

import math
import statistics
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from gar.analysis.panels import logged
from gar.config import foreign_problems
from gar.metrics import (
    ALIGNMENT,
    ELIGIBLE,
    EMPTY,
    SCORED,
    TRUNCATED,
    WELL_FORMATTED,
    ZERO_STD_OUTCOME,
    ZERO_STD_SHAPED,
    seconds_of,
    with_status,
)
from gar.records import Run
from gar.types import Status

NONE = "–"
"""The text of an unknown value."""
_EDGE_FRACTION = 0.1


def summarize(run: Run) -> dict[str, Any]:
    """Right responses, evaluations before and after, alignment, zero-std groups and seconds per step.

    Plain values, None if the run recorded nothing. Beginning and end are means over the first and the last tenth of the
    steps that have the metric.
    """
    # A step that did not log a metric does not count for it.
    seconds, gar_seconds, scored = (
        logged(run, name).dropna() for name in (seconds_of("step"), seconds_of("gar"), SCORED)
    )
    # GAR has no share if no response was ever scored.
    charged = sum(seconds) and len(gar_seconds) and (scored.empty or scored.any())
    return {
        "steps": int(seconds.index[-1]) if len(seconds) else 0,
        "pass_at": {
            moment: {name: dict(part.pass_at) for name, part in sets.items()}
            for moment, sets in run.evaluations.items()
            if sets
        },
        "right_fraction": _edges(logged(run, ELIGIBLE)),
        "alignment_mean": _edges(logged(run, ALIGNMENT)),
        "zero_std_group_fraction": {
            "outcome": _mean(logged(run, ZERO_STD_OUTCOME)),
            "shaped": _mean(logged(run, ZERO_STD_SHAPED)),
        },
        "step_seconds": float(statistics.median(seconds)) if len(seconds) else None,
        "gar_time_fraction": float(sum(gar_seconds) / sum(seconds)) if charged else None,
    }


_BADLY_FORMATTED = "badly formatted"
_CAUSES = {
    TRUNCATED: "most responses were cut off. Raise --trl.max_completion_length",
    EMPTY: "most responses were empty. An instruction-tuned model needs --data.template chat",
    _BADLY_FORMATTED: "most responses were badly formatted. --verify.format none accepts any text",
    with_status(Status.UNPARSED): "in most responses no answer could be read. Name your own --verify.verifier",
    with_status(Status.ERROR): "most answers could not be graded. gar data check lists unreadable gold answers",
    with_status(Status.TIMEOUT): "most answers reached the time limit. Raise --verify.timeout_seconds",
}
"""Why no response was right, by the metric that is then above one half."""


def nothing_learned(run: Run) -> str:
    """A sentence about a run if its rewards held no signal in any step, with the likeliest cause. Otherwise ""."""
    metrics = {name: logged(run, name).dropna() for name in (ELIGIBLE, *_CAUSES)}
    metrics[_BADLY_FORMATTED] = 1 - logged(run, WELL_FORMATTED).dropna()
    right, equal = metrics[ELIGIBLE], logged(run, ZERO_STD_SHAPED).dropna()
    if len(right) and right.max() == 0:
        foreign = [note] if run.config and (note := foreign_problems(run.config)) else []
        causes = foreign + [cause for name, cause in _CAUSES.items() if (_mean(metrics[name]) or 0) > 0.5]
        otherwise = "the problems are too hard for this model. Take easier ones or a stronger model"
        return f"Nothing was learned: no response was right in any step. Likeliest cause: {[*causes, otherwise][0]}."
    if len(equal) and equal.min() == 1:
        return (
            "Nothing was learned: in every group all rewards were equal. Likeliest cause: the problems are too easy "
            "for this model. Take harder ones, or sample more: --trl.num_generations."
        )
    return ""


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
        "zero-std groups": _zero_std_text(**summary["zero_std_group_fraction"]),
        "seconds per step": _text([summary["step_seconds"]], ".2f"),
        "GAR’s share": _text([summary["gar_time_fraction"]], ".1%"),
        **{label: rate for label, rate in rates.items() if rate != NONE},
    }


def _zero_std_text(*, outcome: float | None, shaped: float | None) -> str:
    """Both shares of a method with a bonus, one share of another."""
    by_outcome, with_bonus = _text([outcome], ".1%"), _text([shaped], ".1%")
    return by_outcome if with_bonus in (by_outcome, NONE) else f"{by_outcome} by outcome, {with_bonus} with the bonus"


def render_summary(summary: Mapping[str, Any]) -> Table:
    """The summary as a small table for a terminal."""
    table = Table("", "", title=f"After {summary['steps']} steps", title_justify="left", show_header=False)
    for label, text in summary_texts(summary).items():
        table.add_row(label, text)
    return table


def _edges(values: Any) -> dict[str, float | None]:
    size = max(1, round(len(values) * _EDGE_FRACTION))
    return {"beginning": _mean(values.iloc[:size]), "end": _mean(values.iloc[-size:])}


def _mean(values: Any) -> float | None:
    known = values.dropna()
    return statistics.fmean(known) if len(known) else None


def _text(values: Any, form: str) -> str:
    texts = [NONE if each is None or math.isnan(each) else f"{each:{form}}".replace("-", "−") for each in values]
    return NONE if {*texts} == {NONE} else " → ".join(texts)
