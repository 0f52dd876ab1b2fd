"""Figures of a comparison: curves with bands over seeds, and what a step costs."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gar.analysis.intervals import clustered_mean
from gar.analysis.learning_curve import running_mean
from gar.analysis.style import COLORS, INK, MUTED, STYLE, bare_rows, save_figure, say_not_recorded
from gar.comparison.result import RunResult
from gar.comparison.tables import Cost

Floats = NDArray[np.float64]
ResultsByLabel = Mapping[str, Sequence[RunResult]]
"""The results of every seed of each row that ran; at least one row."""

# The first row, the reference, is dark and neutral. The other colors are Okabe and Ito's, then Tol's.
_PALETTE = (INK, *COLORS, "#882255", "#999933", "#44AA99", "#332288")
_PANELS = (
    ("gar/eligible_fraction", "Correct responses in the right format", "share of responses", 0),
    ("gar/alignment_mean", "Alignment of correct responses", "cosine with the expert solution", -1),
    ("gar/zero_std_group_fraction_shaped", "Zero-std groups: every advantage is zero", "share of groups", 0),
)
"""Metric, title, unit and smallest possible value; the largest is 1."""

_PARTS = {"generation": "#56B4E9", "verification": "#CC79A7", "update": "#999999", "gar": "#E69F00"}
_OTHER_PART = "#009E73"


def curves_figure(methods: ResultsByLabel, stem: str | Path) -> list[Path]:
    """Draw training curves and final pass@1 of all methods as `STEM.png` and `STEM.svg`.

    Lines are means over seeds of a running mean over steps. Bands and bars are 95% intervals of the mean, by Student's
    t. Dots are seeds.

    Returns:
        The files written.

    Raises:
        RecordError: A picture cannot be written.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.4, 7.2))
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
        panels = figure.subplots(2, 2)
        for axes, (metric, title, unit, smallest) in zip(panels.flat, _PANELS, strict=False):
            axes.set_title(title)
            axes.set_ylabel(unit)
            _draw_bands(axes, list(methods.values()), metric, smallest)
        _draw_pass_rates(panels[1, 1], methods)
        key = [
            Line2D([], [], color=_color(i), linestyle=_dashes(i), linewidth=2.4, label=label)
            for i, label in enumerate(methods)
        ]
        figure.legend(
            handles=key, loc="outside upper left", ncols=min(len(key), 7), frameon=False, handlelength=1.7,
            columnspacing=1.4, handletextpad=0.6,
        )  # fmt: skip
        seeds = sorted({len(results) for results in methods.values()})
        count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        note = f"Mean over {count} {'seed' if seeds == [1] else 'seeds'} and its 95% interval; dots are seeds."
        figure.supxlabel(note, x=0.988, ha="right", size=8, color=MUTED)
    return save_figure(figure, stem)


def cost_figure(costs: Sequence[Cost], stem: str | Path) -> list[Path]:
    """Draw seconds per step by part, and peak memory, as `STEM.png` and `STEM.svg`.

    Returns:
        The files written, none where there are no costs.

    Raises:
        RecordError: A picture cannot be written.
    """
    if not costs:
        return []
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.4, 1.5 + 0.42 * len(costs)))
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)
        time_axes, memory_axes = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        _draw_step_times(time_axes, costs)
        _draw_memory(memory_axes, costs)
        time_axes.set_yticks(range(len(costs)), [cost.label for cost in costs])
        time_axes.set_ylim(len(costs) - 0.4, -0.6)
        parts = [Line2D([], [], color=_part_color(p), linewidth=7, label=p) for p in _parts(costs)]
        figure.legend(handles=parts, loc="outside upper left", ncols=len(parts), frameon=False)
    return save_figure(figure, stem)


# ------------------------------------------------------------------------------------------------------------- curves


def _draw_bands(axes: Axes, methods: Sequence[Sequence[RunResult]], metric: str, smallest: float) -> None:
    """Draw a mean with its band, cut to the metric's range: with few seeds an interval may be wider than that."""
    drawn = False
    for i, results in enumerate(methods):
        steps, values = _table(results, metric)
        if not np.isfinite(values).any():
            continue
        window = 2 * (len(steps) // 20) + 1
        means = [clustered_mean(column) for column in np.transpose([running_mean(row, window) for row in values])]
        low, high = np.clip([(mean.low, mean.high) for mean in means], smallest, 1).T
        axes.fill_between(steps, low, high, color=_color(i), alpha=0.14, linewidth=0)
        axes.plot(
            steps,
            [mean.mean for mean in means],
            color=_color(i),
            linestyle=_dashes(i),
            linewidth=2.0,
            zorder=2.5 if i else 2.2,
        )
        drawn = True
    if not drawn:
        say_not_recorded(axes)
        return
    axes.set_xlabel("training step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.margins(x=0.015)
    if metric.endswith("_fraction_shaped"):
        axes.set_ylim(bottom=0)


def _table(results: Sequence[RunResult], metric: str) -> tuple[Floats, Floats]:
    """Steps, and values [seeds, steps] with NaN where there is none."""
    curves = [result.curves[metric] for result in results if metric in result.curves]
    steps = sorted({step for curve in curves for step in curve["step"] if step is not None})
    values = np.full((len(curves), len(steps)), np.nan)
    for row, curve in zip(values, curves, strict=True):
        known = {step: value for step, value in zip(curve["step"], curve["value"], strict=True) if value is not None}
        row[:] = [known.get(step, np.nan) for step in steps]
    return np.array(steps, dtype=float), values


def _draw_pass_rates(axes: Axes, methods: ResultsByLabel) -> None:
    """Draw a row for each method, with its sets below each other: the first filled, the others hollow."""
    axes.set_title("pass@1 after training")
    names = list(next(iter(methods.values()))[0].sets)
    gap = 0.72 / len(names)
    for y, results in enumerate(methods.values()):
        for j, name in enumerate(names):
            values = [statistics.fmean(result.sets[name].pass_at(1)) for result in results]
            height = y + (j - (len(names) - 1) / 2) * gap
            mean = clustered_mean(values)
            axes.plot(values, np.full(len(values), height), "o", color=_color(y), markersize=5,
                      markeredgecolor="white", markeredgewidth=0.8, zorder=2.5)  # fmt: skip
            if math.isfinite(mean.low):
                ends = [max(mean.low, 0), min(mean.high, 1)]
                axes.plot(ends, [height] * 2, color=_color(y), linestyle=_dashes(y), linewidth=1.8)
            axes.plot(mean.mean, height, "o" if j == 0 else "D", color=_color(y), markersize=7.5 if j == 0 else 6.5,
                      markerfacecolor=_color(y) if j == 0 else "white", markeredgewidth=1.6, zorder=3)  # fmt: skip
            if y == 0:
                axes.annotate(name, (mean.mean, height), (0, 7), textcoords="offset points", ha="center", va="bottom",
                              color=MUTED, size=8)  # fmt: skip
    axes.set_yticks(range(len(methods)), list(methods))
    for i, tick in enumerate(axes.get_yticklabels()):
        tick.set_color(_color(i))
    axes.set_ylim(len(methods) - 0.35, -0.85)
    axes.set_xlabel("mean over problems")
    bare_rows(axes)


# --------------------------------------------------------------------------------------------------------------- cost


def _draw_step_times(axes: Axes, costs: Sequence[Cost]) -> None:
    axes.set_title("Seconds per optimizer step")
    widest = max(cost.seconds_per_step["step"] for cost in costs)
    for y, cost in enumerate(costs):
        left = 0.0
        for part in _parts([cost]):
            width = cost.seconds_per_step[part]
            axes.barh(y, width, left=left, height=0.62, color=_part_color(part), edgecolor="white", linewidth=0.6)
            left += width
        words = f"{cost.seconds_per_step['step']:.2f} s"
        if cost.step_ratio is not None and y > 0:
            words += f"  ({100 * (cost.step_ratio[0] - 1):+.0f}%)"
        axes.text(left + 0.012 * widest, y, words, va="center", size=8.5)
    axes.set_xlim(0, 1.28 * widest)
    bare_rows(axes)
    axes.grid(visible=False)


def _draw_memory(axes: Axes, costs: Sequence[Cost]) -> None:
    axes.set_title("Peak memory of the process, MiB")
    peaks = [cost.peak_memory_bytes / 2**20 for cost in costs]
    axes.barh(range(len(costs)), peaks, height=0.62, color="#B8C4CE")
    for y, (peak, cost) in enumerate(zip(peaks, costs, strict=True)):
        words = f"{peak:.0f}"
        if cost.memory_ratio is not None and y > 0:
            words += f"  ({100 * (cost.memory_ratio[0] - 1):+.0f}%)"
        axes.text(peak + 0.012 * max(peaks), y, words, va="center", size=8.5)
    axes.set_xlim(0, 1.32 * max(peaks))
    bare_rows(axes)
    axes.grid(visible=False)


def _parts(costs: Sequence[Cost]) -> list[str]:
    """Parts of a step in the order of a step."""
    order = [*_PARTS]
    measured = {part for cost in costs for part in cost.seconds_per_step if part != "step"}
    return sorted(measured, key=lambda part: (order.index(part) if part in order else len(order), part))


def _part_color(part: str) -> str:
    return _PARTS.get(part, _OTHER_PART)


def _color(number: int) -> str:
    return _PALETTE[number % len(_PALETTE)]


def _dashes(number: int) -> Any:
    """Solid; dashed where the colors repeat."""
    return "-" if number < len(_PALETTE) else (0, (2.2, 0.8))
