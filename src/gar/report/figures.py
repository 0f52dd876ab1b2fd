"""Charts of the metrics over the training steps, one line per group with a band; and figures as images.

The images are drawn from the rollouts, or are read from the run folders.
"""

import base64
import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gar.analysis.learning_curve import running_mean
from gar.analysis.style import STYLE
from gar.errors import RecordError
from gar.records import Run
from gar.report.groups import RunGroup
from gar.report.page import Chart, Picture, Series

Floats = NDArray[np.float64]

_POINTS_OF_ALL_LINES = 8000
"""Points of one chart: enough to zoom into, few enough for forty lines."""
_MAX_POINTS = (160, 1000)
"""Limit of points per line: with many lines, and with few."""
_DIGITS = 5
_MAX_BYTES = 600_000
_MAX_BYTES_IN_ALL = 1_500_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """A chart to draw where its metric was logged. The reference, if any, is dashed."""

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
        unit="share of groups; dashed: by the outcome alone",
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
        f"Lines of one run are {smooth}, of evaluations the values; the band reaches from the smallest to the largest "
        "of those values."
    ]
    if any(len(group.runs) > 1 for group in groups):
        parts.append(
            "Lines of several seeds are their mean, up to the last step that all of them have reached; the band "
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
    lines = [line for run in group.runs if (line := _line(run, metric, window)) is not None]
    if not lines:
        return None
    if len(lines) == 1:
        steps, values, low, high = lines[0]
    else:
        steps = sorted(set.intersection(*(set(line[0]) for line in lines)))
        stack = np.array([[dict(zip(line[0], line[1], strict=True))[step] for step in steps] for line in lines])
        known = np.isfinite(stack).all(axis=0)
        values, low, high = (np.where(known, line, np.nan) for line in (stack.mean(0), stack.min(0), stack.max(0)))
    if not len(steps):
        return None
    return Series(
        label=group.label if len(group.runs) == 1 else f"{group.label}, {len(lines)} seeds",
        color=group.color,
        dashed=dashed,
        steps=[int(step) for step in steps],
        values=_plain(values),
        low=[] if dashed else _plain(low),
        high=[] if dashed else _plain(high),
    )


def _thinned(line: Series, num_points: int) -> Series:
    """At most `num_points` points of a line, spread evenly, including the first and the last."""
    if len(line.steps) <= num_points:
        return line
    keep = np.linspace(0, len(line.steps) - 1, num_points).round().astype(int)
    parts = {name: [values[i] for i in keep] for name in ("steps", "values", "low", "high")
             if (values := getattr(line, name))}  # fmt: skip
    return replace(line, **parts)


def _line(run: Run, metric: str, window: int) -> tuple[Sequence[int], Floats, Floats, Floats] | None:
    """Steps, running mean, and smallest and largest value of each window."""
    rows = [row for row in run.metrics if metric in row]
    values = np.array([_number(row, metric) for row in rows])
    if not np.isfinite(values).any():
        return None
    half = window // 2
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    for i in range(len(values)):
        near = values[max(0, i - half) : i + half + 1]
        near = near[np.isfinite(near)]
        if len(near):
            low[i], high[i] = near.min(), near.max()
    return [row["step"] for row in rows], running_mean(values, window), low, high


def _number(row: Mapping[str, object], metric: str) -> float:
    value = row[metric]
    return float(value) if isinstance(value, int | float) else np.nan


def _window(runs: Sequence[Run]) -> int:
    """Width of the running mean: odd, about a tenth of the longest run."""
    return 2 * (max((len(run.metrics) for run in runs), default=0) // 20) + 1


def _plain(values: Floats) -> list[float | None]:
    return [round(float(value), _DIGITS) if np.isfinite(value) else None for value in values]


def pictures(groups: Sequence[RunGroup], notes: list[str], steps: Sequence[int] = ()) -> list[Picture]:
    """Alignment and zero-std groups of the first run of each group, then every SVG in `figures` and `analysis`.

    An SVG inside an image cannot run scripts or load anything.

    Args:
        groups: The groups.
        notes: Receives which figures were left out.
        steps: First steps of the histograms of alignment; empty: four, evenly over the run.
    """
    shown, used, left_out = [], 0, []
    for title, caption, content in _candidates(groups, steps):
        if len(content) > _MAX_BYTES or used + len(content) > _MAX_BYTES_IN_ALL:
            left_out.append(caption)
            continue
        used += len(content)
        source = "data:image/svg+xml;base64," + base64.b64encode(content).decode("ascii")
        shown.append(Picture(title=title, caption=caption, source=source))
    if left_out:
        notes.append(f"Figures left out, to keep the file small: {', '.join(left_out)}.")
    return shown


def _candidates(groups: Sequence[RunGroup], steps: Sequence[int]) -> Iterator[tuple[str, str, bytes]]:
    """Title, caption and SVG of each figure."""
    drawn = set()
    for group in groups:
        for name, title, figure in _figures(group.runs[0], steps):
            drawn.add((group.runs[0].name, name))
            yield title, f"{title}. From all recorded rollouts.", _svg(figure)
    for run in (run for group in groups for run in group.runs):
        folder = run.path
        for path in (*sorted(folder.glob("figures/*.svg")), *sorted(folder.glob("analysis/*/*.svg"))):
            if (run.name, path.stem) not in drawn:
                name = path.relative_to(folder).as_posix()
                yield path.stem.replace("-", " "), f"{run.name}/{name}", path.read_bytes()


def _figures(run: Run, steps: Sequence[int]) -> Iterator[tuple[str, str, Figure]]:
    """Name, title and figure of what the rollouts of a run allow. The summary already says what is missing."""
    from gar.analysis.alignment import alignment_course, alignment_figure
    from gar.analysis.zero_std_groups import zero_std_groups, zero_std_groups_figure  # these load torch

    with contextlib.suppress(RecordError):
        course = alignment_course(run, at_steps=steps or None)
        if course.num_scored:
            title = f"Alignment of correct responses, {course.run}: n = {course.num_scored:,}"
            yield "alignment", title, alignment_figure(course)
    with contextlib.suppress(RecordError):
        groups = zero_std_groups(run)
        title = f"Groups of {groups.run}: n = {groups.num_groups:,} of {groups.group_size} responses"
        yield "zero-std-groups", title, zero_std_groups_figure(groups)


def _svg(figure: Figure) -> bytes:
    file = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
