"""Charts of the metrics over the training steps, one line per group with a band, and figures as images."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gar.analysis.curves import window_size
from gar.analysis.style import STYLE
from gar.records import Run
from gar.report.groups import RunGroup
from gar.report.page import Chart, Picture, Series

_POINTS_OF_ALL_LINES = 8000
"""Points of one chart: enough to zoom into, few enough for forty lines."""
_MAX_POINTS = (160, 1000)
"""Limit of points per line: with many lines, and with few."""
_DIGITS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """A chart to draw if its metric was logged. The reference, if any, is dashed."""

    metric: str
    title: str
    unit: str
    from_zero: bool = False
    reference: str | None = None


_PLANS = (
    _Plan(metric="reward", title="Reward", unit="mean over responses"),
    _Plan(metric="gar/eligible_fraction", title="Right and in format", unit="share of responses", from_zero=True),
    _Plan(metric="gar/alignment_mean", title="Alignment of right responses", unit="cosine with the expert solution"),
    _Plan(
        metric="gar/zero_std_group_fraction_shaped",
        title="Zero-std groups",
        unit="share of groups, dashed by the outcome alone",
        from_zero=True,
        reference="gar/zero_std_group_fraction_outcome",
    ),
    _Plan(metric="gar/bonus_mean", title="Bonus", unit="mean over scored responses", from_zero=True),
    _Plan(metric="gar/advantage_abs_mean", title="Size of the advantages", unit="mean |advantage|", from_zero=True),
    _Plan(metric="completions/mean_length", title="Length of responses", unit="tokens", from_zero=True),
    _Plan(metric="entropy", title="Entropy", unit="nats per token", from_zero=True),
    _Plan(metric="grad_norm", title="Norm of the gradient", unit="before clipping", from_zero=True),
    _Plan(metric="time/step_seconds", title="Time of a step", unit="seconds", from_zero=True),
)


def charts(groups: Sequence[RunGroup]) -> list[Chart]:
    """A chart for each metric that any run has logged, including evaluations during training."""
    logged = {name for group in groups for run in group.runs for row in run.metrics for name in row}
    evaluations = [
        _Plan(metric=name, title=f"{name.removeprefix('eval/').replace('/', ', ')}", unit="share of problems")
        for name in sorted(logged)
        if name.startswith("eval/")
    ]
    plans = [plan for plan in (*_PLANS, *evaluations) if plan.metric in logged]
    return [chart for plan in plans if (chart := _chart(groups, plan)).series]


def chart_note(groups: Sequence[RunGroup]) -> str:
    """The explanation of lines and bands."""
    window = _window([run for group in groups for run in group.runs])
    smooth = f"the centered mean over {window} logged steps" if window > 1 else "the logged values"
    parts = [
        f"Lines of one run are {smooth}, of evaluations the values. The band reaches from the smallest to the largest "
        "of those values."
    ]
    if any(len(group.runs) > 1 for group in groups):
        parts.append(
            "Lines of several seeds are their mean, up to the last step that all of them have reached. The band "
            "reaches from the lowest to the highest seed."
        )
    return " ".join(parts)


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
    return Chart(term=plan.metric, title=plan.title, unit=plan.unit, from_zero=plan.from_zero, series=series)


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
    parts = {name: [values[i] for i in keep] for name in ("steps", "values", "low", "high")
             if (values := getattr(line, name))}  # fmt: skip
    return replace(line, **parts)


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
    """Alignment, with histograms from `steps` on, and zero-std groups of the first run of each group with rollouts."""
    from gar.analysis.alignment import alignment_figure
    from gar.analysis.zero_std_groups import zero_std_groups, zero_std_groups_figure  # loads torch

    shown = []
    for run in (group.runs[0] for group in groups if group.runs[0].num_rows):
        if figure := alignment_figure(run, steps):
            shown.append(_picture(f"Alignment of correct responses, {run.name}", figure))
        shown.append(_picture(f"Groups of {run.name}", zero_std_groups_figure(run.name, zero_std_groups(run))))
    return shown


def _picture(title: str, figure: Figure) -> Picture:
    """An SVG inside an image cannot run scripts or load anything."""
    file = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None})
    source = "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode("ascii")
    return Picture(title=title, caption=f"{title}. From all recorded rollouts.", source=source)
