"""Curves over training and pass@k: of one run, or of several rows with bands over their seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from gar.analysis.panels import COLORS, INK, MUTED, Panel, logged, window_size
from gar.analysis.style import STYLE
from gar.metrics import ALIGNMENT, ELIGIBLE, REWARD, ZERO_STD_OUTCOME, ZERO_STD_SHAPED
from gar.records import Run

Curves = Mapping[str, pd.Series]
"""The values of one run over its steps, by metric."""
Rates = Mapping[str, Mapping[str, Sequence[float]]]
"""A share of problems for every seed, by row and then by evaluation set."""

# The first row, the reference, is dark and neutral. The other colors are Okabe and Ito's, then Tol's.
_PALETTE = (INK, *COLORS, "#882255", "#999933", "#44AA99", "#332288")


_PANELS = (
    Panel(ELIGIBLE, "Correct responses in the right format", "share of responses", 0, REWARD),
    Panel(ALIGNMENT, "Alignment of correct responses", "cosine with the expert solution", -1),
    Panel(
        ZERO_STD_SHAPED,
        "Zero-std groups",
        "share of groups",
        0,
        ZERO_STD_OUTCOME,
    ),
)


def learning_curve_figure(run: Run) -> Figure:
    """Reward, alignment and zero-std groups of a run over its steps, and pass@k before and after training."""
    curves = {name: logged(run, name) for panel in _PANELS for name in (panel.metric, panel.reference)}
    rates = {
        moment: {
            f"{name} pass@{k}": [rate] for name, part in sets.items() for k, rate in sorted(part.known_rates.items())
        }
        for moment, sets in run.evaluations.items()
        if sets
    }
    return curves_figure({run.name: [curves]}, rates, title="pass@k before and after training")


def curves_figure(curves: Mapping[str, Sequence[Curves]], rates: Rates, *, title: str) -> Figure:
    """Curves of every seed by row, and pass@k by row and set under this title.

    Lines are means over seeds of a running mean over steps. Bands and bars are 95% intervals of the mean, by Student's
    t. Dots are seeds.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.4, 7.2))
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
        axes = figure.subplots(2, 2)
        for panel, place in zip(_PANELS, axes.flat, strict=False):
            _draw_curves(place, panel, [*curves.values()])
        _draw_rates(axes[1, 1], rates, title)
        key = [Line2D([], [], label=label, **_look(i)) for i, label in enumerate(curves)]
        figure.legend(handles=key, loc="outside upper left", ncols=min(len(key), 7), frameon=False, handlelength=1.7)
        if max(map(len, curves.values())) > 1:
            note = "Mean over seeds with its 95% interval. Dots are seeds."
            figure.supxlabel(note, x=0.988, ha="right", size=8, color=MUTED)
    return figure


def _draw_curves(axes: Axes, panel: Panel, rows: Sequence[Sequence[Curves]]) -> None:
    """Draw means with bands, cut to the metric's range: with few seeds an interval may be wider than that."""
    tables = [_table(seeds, panel.metric) for seeds in rows]
    reference = _table(rows[0], panel.reference) if len(rows) == 1 else pd.DataFrame()
    axes.set_title(panel.title + (f" (dashed: {panel.reference.rpartition('_')[2]})" if len(reference) else ""))
    if not any(map(len, tables)):
        _say_not_recorded(axes)
        return
    if len(reference):
        axes.plot(reference.index, reference.mean(axis=1), color=INK, linestyle="--", linewidth=1.6)
    for i, table in enumerate(tables):
        mean, *ends = _intervals(table)
        low, high = np.clip(ends, panel.smallest, 1)
        axes.fill_between(table.index, low, high, color=_look(i)["color"], alpha=0.14, linewidth=0)
        axes.plot(table.index, mean, marker="o" if len(table) == 1 else None, zorder=2.5 if i else 2.2, **_look(i))
    window = window_size(max(map(len, tables)))
    axes.set_xlabel("training step" + (f" (mean over {window} points)" if window > 1 else ""))
    axes.set_ylabel(panel.unit)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.margins(x=0.015)
    if panel.metric.endswith("_fraction_shaped"):
        axes.set_ylim(bottom=0)


def _table(seeds: Sequence[Curves], metric: str) -> Any:
    """Running means of a metric, a row for each step and a column for each seed. Empty if nothing is known."""
    columns = [curves[metric] for curves in seeds if metric in curves and curves[metric].notna().any()]
    table = pd.concat(columns, axis=1).sort_index() if columns else pd.DataFrame()
    return table.rolling(window_size(len(table)), center=True, min_periods=1).mean()


def _intervals(table: Any) -> tuple[Any, Any, Any]:
    """The mean of each row and its 95% interval by Student's t, NaN for fewer than two values."""
    from scipy.special import stdtrit  # takes half a second, which a report of one run need not wait for

    mean, half = table.mean(axis=1), stdtrit(table.count(axis=1) - 1, 0.975) * table.sem(axis=1)
    return mean, mean - half, mean + half


def _draw_rates(axes: Axes, rates: Rates, title: str) -> None:
    """Draw a line for each row, with its sets below each other: the first filled, the others hollow."""
    axes.set_title(title)
    names = list(dict.fromkeys(name for sets in rates.values() for name in sets))
    if not names:
        _say_not_recorded(axes)
        return
    # A row has 0.72 of its height for its sets, one below the other.
    gap = 0.72 / len(names)
    for y, sets in enumerate(rates.values()):
        for j, name in enumerate(names):
            height, look = y + (j - (len(names) - 1) / 2) * gap, _look(y)
            if not (values := sets.get(name)):
                continue
            # Dots are seeds, the line is the interval, and the large mark is the mean.
            mean, low, high = np.ravel(_intervals(pd.DataFrame([values])))
            axes.plot(values, [height] * len(values), "o", color=look["color"], markersize=5, markeredgecolor="white")
            axes.plot(np.clip([low, high], 0, 1), [height] * 2, **look)
            shape, filling = ("D", "white") if j else ("o", look["color"])
            axes.plot(mean, height, shape, color=look["color"], markersize=7, markerfacecolor=filling, zorder=3)
            if y == 0:
                at = (mean, height)
                axes.annotate(name, at, (0, 7), textcoords="offset points", ha="center", color=MUTED, size=8)
    axes.set_yticks(range(len(rates)), list(rates))
    axes.set_ylim(len(rates) - 0.35, -0.85)
    axes.margins(x=0.12)
    axes.set_xlabel("mean over problems")
    axes.tick_params(axis="y", length=0, grid_linewidth=0)
    axes.spines["left"].set_visible(False)


def _say_not_recorded(axes: Axes) -> None:
    axes.text(0.5, 0.5, "not recorded", color=MUTED, ha="center", va="center", transform=axes.transAxes)
    axes.set_axis_off()


def _look(number: int) -> dict[str, Any]:
    """Color and line of a row. Dashed if the colors repeat."""
    dashes = "-" if number < len(_PALETTE) else (0, (2.2, 0.8))
    return {"color": _PALETTE[number % len(_PALETTE)], "linestyle": dashes, "linewidth": 2.0}
