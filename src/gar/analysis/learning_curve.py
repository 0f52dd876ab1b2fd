"""The learning curve of a run: reward, alignment and zero-std groups over the steps, pass@k before and after.

It reads `metrics.jsonl` and `evaluation/*.json` of the run folder. A panel says "not recorded" where its metric is
missing. `gar report` shows several runs on one page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gar.analysis.style import COLORS, INK, MUTED, STYLE, bare_rows, save_figure, say_not_recorded
from gar.records import Run, open_run

Floats = NDArray[np.float64]
Metrics = Sequence[Mapping[str, Any]]

_COLOR = COLORS[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Curve:
    """One line of a panel. A reference is dashed, and only its running mean is drawn."""

    metric: str
    label: str = ""
    reference: bool = False

    @property
    def color(self) -> str:
        return INK if self.reference else _COLOR


def learning_curve(run: str | Path, stem: str | Path) -> list[Path]:
    """Draw a run as `STEM.png` (200 dpi) and `STEM.svg`.

    Equal runs give equal files, byte for byte with the same version of Matplotlib.

    Args:
        run: A run folder.
        stem: Path of the pictures without their ending.

    Returns:
        The files written.

    Raises:
        RecordError: The folder does not exist, one of its files is damaged, or a picture cannot be written.
    """
    return save_figure(learning_curve_figure(run), stem)


def learning_curve_figure(run: str | Path) -> Figure:
    """The figure that `learning_curve` writes, for a notebook.

    Raises:
        RecordError: The folder does not exist, or one of its files is damaged.
    """
    opened = open_run(run)
    metrics = opened.metrics
    window = 2 * (len(metrics) // 20) + 1  # odd, about a tenth of the run
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 6.6))
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
        panels = figure.subplots(2, 2)
        _draw_rewards(panels[0, 0], metrics, window)
        _draw_alignment(panels[0, 1], metrics, window)
        _draw_zero_std_groups(panels[1, 0], metrics, window)
        _draw_pass_rates(panels[1, 1], _pass_rates(opened))
        figure.suptitle(opened.name, x=0.012, ha="left", weight="bold")
        if window > 1:
            note = (
                f"Thick and dashed lines: centered mean over {window} logged steps. Thin lines: the steps themselves."
            )
            figure.supxlabel(note, x=0.988, ha="right", size=8, color=MUTED)
    return figure


# ------------------------------------------------------------------------------------------------------------- panels


def _draw_rewards(axes: Axes, metrics: Metrics, window: int) -> None:
    axes.set_title("Training reward and its outcome part")
    axes.set_ylabel("mean over responses")
    curves = [
        _Curve(metric="gar/eligible_fraction", label="correct,\nin format"),
        _Curve(metric="reward", label="reward", reference=True),
    ]
    _draw_curves(axes, curves, metrics, window, from_zero=True)


def _draw_alignment(axes: Axes, metrics: Metrics, window: int) -> None:
    axes.set_title("Alignment of correct responses")
    axes.set_ylabel("cosine with the expert solution")
    _draw_curves(axes, [_Curve(metric="gar/alignment_mean")], metrics, window, from_zero=False)


def _draw_zero_std_groups(axes: Axes, metrics: Metrics, window: int) -> None:
    axes.set_title("Zero-std groups: every advantage is zero")
    axes.set_ylabel("share of groups")
    curves = [
        _Curve(metric="gar/zero_std_group_fraction_outcome", label="outcome\nalone", reference=True),
        _Curve(metric="gar/zero_std_group_fraction_shaped", label="with the\nbonus"),
    ]
    _draw_curves(axes, curves, metrics, window, from_zero=True)


def _draw_pass_rates(axes: Axes, rates: Mapping[tuple[str, int], tuple[float | None, float | None]]) -> None:
    axes.set_title("Problems solved before and after training")
    if not rates:
        say_not_recorded(axes)
        return
    for y, (before, after) in enumerate(rates.values()):
        _draw_before_and_after(axes, y, before, after)
    axes.set_yticks(range(len(rates)), [f"{name}, pass@{k}" for name, k in rates])
    axes.set_ylim(len(rates) - 0.4, -0.85)
    axes.set_xlim(-0.12, 1.12)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_xlabel("share of problems")
    bare_rows(axes)
    axes.spines["bottom"].set_bounds(0, 1)


# ----------------------------------------------------------------------------------------------------------- elements


def _draw_curves(axes: Axes, curves: Sequence[_Curve], metrics: Metrics, window: int, *, from_zero: bool) -> None:
    """Draw each curve thin as it was logged and thick as a running mean, with its label at the end."""
    ends = []
    for curve in curves:
        steps, values = _series(metrics, curve.metric)
        smooth = running_mean(values, window)
        known = np.flatnonzero(np.isfinite(smooth))
        if not len(known):
            continue
        if window > 1 and not curve.reference:
            axes.plot(steps, values, color=curve.color, alpha=0.35, linewidth=0.8)
        marked = None if window == 1 else [] if curve.reference else known[-1:].tolist()
        # `markevery` at once: a line of over 1,000 points may be cut to what is visible when it is set later.
        style: dict[str, Any] = {"marker": "o", "markersize": 4.5, "linewidth": 2.2, "markevery": marked}
        (line,) = axes.plot(steps, smooth, color=curve.color, **style)
        if curve.reference:
            line.set(linestyle=(0, (4, 1.5)), linewidth=1.6)
        ends.append((float(smooth[known[-1]]), curve))
    if not ends:
        say_not_recorded(axes)
        return
    axes.set_xlabel("training step")
    low, high = axes.dataLim.intervalx
    margin = max(0.02 * (high - low), 0.5)
    axes.set_xlim(low - margin, high + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    if from_zero:
        low, high = axes.dataLim.intervaly
        axes.set_ylim(1.08 * min(0, low), max(0.1, 1.08 * high))
    _label_ends(axes, ends)


def _label_ends(axes: Axes, ends: Sequence[tuple[float, _Curve]]) -> None:
    """Write each label to the right of its line, moved up where it would cover the one below."""
    low, high = axes.get_ylim()
    taken = -np.inf
    for value, curve in sorted(ends, key=lambda end: end[0]):
        if curve.label:
            half = 0.037 * (curve.label.count("\n") + 1)
            y = max((value - low) / (high - low), taken + half)
            axes.text(1.02, y, curve.label, color=curve.color, va="center", transform=axes.transAxes)
            taken = y + half


def _draw_before_and_after(axes: Axes, y: int, before: float | None, after: float | None) -> None:
    """Draw a hollow mark for before and a full one for after, with a line between them and their numbers outside."""
    if before is not None and after is not None:
        axes.plot([before, after], [y, y], color=_COLOR, linewidth=2, alpha=0.5)
    rising = before is None or after is None or before <= after
    for value, word, fill, left in ((before, "before", "white", rising), (after, "after", _COLOR, not rising)):
        if value is None:
            continue
        axes.plot([value], [y], "o", color=_COLOR, markerfacecolor=fill, markersize=6.5, markeredgewidth=1.6)
        side = {"textcoords": "offset points", "ha": "right" if left else "left", "size": 8}
        axes.annotate(f"{value:.2f}", (value, y), (-7 if left else 7, 0), va="center", **side)
        if y == 0:
            axes.annotate(word, (value, y), (4 if left else -4, 8), color=MUTED, **side)


# ------------------------------------------------------------------------------------------------------------ numbers


def _series(metrics: Metrics, name: str) -> tuple[Floats, Floats]:
    """Steps and values of the rows that have `name`; null is NaN."""
    rows = [row for row in metrics if name in row]
    values = [np.nan if row[name] is None else float(row[name]) for row in rows]
    return np.array([row["step"] for row in rows], dtype=float), np.array(values, dtype=float)


def running_mean(values: Floats, window: int) -> Floats:
    """Mean over the finite values of a window around each point, cut off at the ends; NaN where there are none."""
    half = window // 2
    means = np.full(len(values), np.nan)
    for i in range(len(values)):
        near = values[max(0, i - half) : i + half + 1]
        near = near[np.isfinite(near)]
        if len(near):
            means[i] = near.mean()
    return means


def _pass_rates(run: Run) -> dict[tuple[str, int], tuple[float | None, float | None]]:
    """(set, k) -> pass@k before and after; sets in the order they were recorded, k ascending."""
    moments = [
        {name: part.known_rates for name, part in sets.items()}
        for sets in (run.evaluations["before"], run.evaluations["after"])
    ]
    names = dict.fromkeys(name for sets in moments for name in sets)
    ks = {name: sorted({k for sets in moments for k in sets.get(name, {})}) for name in names}
    return {
        (name, k): (moments[0].get(name, {}).get(k), moments[1].get(name, {}).get(k))
        for name in names
        for k in ks[name]
    }
