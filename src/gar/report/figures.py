"""Charts of the metrics over the training steps, one line per group with a band, and figures as images."""

import base64
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gar.analysis.alignment import alignment_figure
from gar.analysis.curves import window_size
from gar.analysis.style import STYLE
from gar.analysis.zero_std_groups import zero_std_groups_figure
from gar.records import Run
from gar.report.groups import RunGroup
from gar.report.page import Chart, Picture, Series

_POINTS_OF_ALL_LINES = 8000
"""Points of one chart: enough to zoom into, few enough for forty lines."""
_MAX_POINTS = (160, 1000)
"""Limit of points per line: with many lines, and with few."""
_DIGITS = 5


class _Plan(NamedTuple):
    """A chart to draw if its metric was logged. The reference, if any, is dashed. `term` names the definition."""

    metric: str
    term: str
    title: str
    unit: str
    from_zero: bool = True
    reference: str | None = None


_PLANS = (
    _Plan("reward", "reward", "Reward", "mean over responses", False),
    _Plan("gar/eligible_fraction", "right", "Right and in format", "share of responses"),
    _Plan("gar/alignment_mean", "alignment", "Alignment of right responses", "cosine with the expert solution", False),
    _Plan(
        "gar/zero_std_group_fraction_shaped",
        "zero std",
        "Zero-std groups",
        "share of groups, dashed by the outcome alone",
        reference="gar/zero_std_group_fraction_outcome",
    ),
    _Plan("gar/bonus_mean", "bonus", "Bonus", "mean over scored responses"),
    _Plan("gar/advantage_abs_mean", "advantage", "Size of the advantages", "mean |advantage|"),
    _Plan("completions/mean_length", "num_tokens", "Length of responses", "tokens"),
    _Plan("entropy", "entropy", "Entropy", "nats per token"),
    _Plan("grad_norm", "grad_norm", "Norm of the gradient", "before clipping"),
    _Plan("time/step_seconds", "step time", "Time of a step", "seconds"),
)


def charts(groups: Sequence[RunGroup]) -> list[Chart]:
    """A chart for each metric that any run has logged, including evaluations during training."""
    logged = {name for group in groups for run in group.runs for row in run.metrics for name in row}
    evaluations = [
        _Plan(name, "eval", name.removeprefix("eval/").replace("/", ", "), "share of problems", False)
        for name in sorted(logged)
        if name.startswith("eval/")
    ]
    plans = [plan for plan in (*_PLANS, *evaluations) if plan.metric in logged]
    return [chart for plan in plans if (chart := _chart(groups, plan)).series]


def _chart(groups: Sequence[RunGroup], plan: _Plan) -> Chart:
    window = 1 if plan.metric.startswith("eval/") else _window([run for group in groups for run in group.runs])
    series = []
    for group in groups:
        for metric in (plan.reference, plan.metric):
            if metric is not None and (line := _series(group, metric, window, dashed=metric == plan.reference)):
                series.append(line)
    fewest, most = _MAX_POINTS
    num_points = max(fewest, min(most, _POINTS_OF_ALL_LINES // max(1, len(series))))
    series = [_thinned(line, num_points) for line in series]
    return Chart(term=plan.term, title=plan.title, unit=plan.unit, from_zero=plan.from_zero, series=series)


def _series(group: RunGroup, metric: str, window: int, *, dashed: bool) -> Series | None:
    lines = [line for run in group.runs if len(line := _line(run, metric, window))]
    if not lines:
        return None
    line: Any = lines[0]
    if len(lines) > 1:
        means = pd.concat([line["values"] for line in lines], axis=1, join="inner").sort_index()
        line = pd.DataFrame({"values": means.mean(axis=1), "low": means.min(axis=1), "high": means.max(axis=1)})
        line[means.isna().any(axis=1)] = np.nan
    if not len(line):
        return None
    return Series(
        label=group.label if len(group.runs) == 1 else f"{group.label}, {len(lines)} seeds",
        color=group.color,
        dashed=dashed,
        steps=[*map(int, line.index)],
        values=_plain(line["values"]),
        low=[] if dashed else _plain(line["low"]),
        high=[] if dashed else _plain(line["high"]),
    )


def _thinned(line: Series, num_points: int) -> Series:
    """At most `num_points` points of a line, spread evenly, including the first and the last."""
    if len(line.steps) <= num_points:
        return line
    keep = np.linspace(0, len(line.steps) - 1, num_points).round().astype(int)
    parts = {name: getattr(line, name) for name in ("steps", "values", "low", "high")}
    return replace(line, **{name: [values[i] for i in keep] for name, values in parts.items() if values})


def _line(run: Run, metric: str, window: int) -> pd.DataFrame:
    """Running mean, and smallest and largest value of each window, by step. Empty if nothing is known."""
    logged = {row["step"]: row[metric] for row in run.metrics if metric in row}
    values: Any = pd.Series([v if isinstance(v, int | float) else np.nan for v in logged.values()], [*logged], float)
    if not values.notna().any():
        return pd.DataFrame()
    near = values.rolling(window, center=True, min_periods=1)
    return pd.DataFrame({"values": near.mean(), "low": near.min(), "high": near.max()})


def _window(runs: Sequence[Run]) -> int:
    """Width of the running mean, for the longest run."""
    return window_size(max((len(run.metrics) for run in runs), default=0))


def _plain(values: Any) -> list[float | None]:
    return [round(float(value), _DIGITS) if np.isfinite(value) else None for value in values]


def pictures(groups: Sequence[RunGroup], steps: Sequence[int] = ()) -> list[Picture]:
    """Histograms of the alignment from `steps` on, and zero-std groups, of the first run of each group."""
    shown = []
    for run in (group.runs[0] for group in groups if group.runs[0].num_rows):
        if figure := alignment_figure(run, steps):
            shown.append(_picture(f"Alignment of correct responses, {run.name}", figure))
        if figure := zero_std_groups_figure(run):
            shown.append(_picture(f"Groups of {run.name}", figure))
    return shown


def _picture(title: str, figure: Figure) -> Picture:
    """An SVG inside an image cannot run scripts or load anything."""
    file = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None})
    source = "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode("ascii")
    return Picture(title=title, source=source)
