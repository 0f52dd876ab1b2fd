"""The learning curve of a run: reward, alignment and silent groups over the steps, pass@k before and after.

Reads `metrics.jsonl` and `evaluation/*.json` of run folders and nothing else. What a run did not record is said in its
panel instead of drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gar.analysis.style import COLOURS, INK, MARKERS, MUTED, STYLE, bare_rows, save_figure, say_not_recorded
from gar.errors import RecordError
from gar.records import RunFolder

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """What the figure needs of one run: `evaluation` maps "before" and "after" to set -> k -> pass@k."""

    name: str
    colour: str
    marker: str
    metrics: Sequence[Mapping[str, Any]]
    evaluation: Mapping[str, Mapping[str, Mapping[int, float]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Curve:
    """One line of a panel. A reference is dashed, and shown by its running mean alone."""

    run: _Run
    metric: str
    colour: str
    label: str = ""
    reference: bool = False


def learning_curve(runs: str | Path | Sequence[str | Path], stem: str | Path) -> list[Path]:
    """Draw one run, or several on the same axes, as `STEM.png` (200 dpi) and `STEM.svg`.

    Equal runs give equal files, byte for byte with the same version of Matplotlib.

    Args:
        runs: A run folder or several. Several are told apart by colour and marker; a key above the panels
            has the names of their folders.
        stem: Path of the pictures without their ending.

    Returns:
        The files written.

    Raises:
        RecordError: A folder does not exist, one of its files is damaged, or a picture cannot be written.
        ValueError: `runs` is empty.
    """
    return save_figure(learning_curve_figure(runs), stem)


def learning_curve_figure(runs: str | Path | Sequence[str | Path]) -> Figure:
    """The figure that `learning_curve` writes, for a notebook.

    Raises:
        RecordError: A folder does not exist, or one of its files is damaged.
        ValueError: `runs` is empty.
    """
    folders = [Path(runs)] if isinstance(runs, str | Path) else [Path(run) for run in runs]
    if not folders:
        raise ValueError("a learning curve needs at least one run folder, got none")
    loaded = [_load(folder, number) for number, folder in enumerate(folders)]
    with matplotlib.rc_context(STYLE):
        return _draw_figure(loaded)


def _load(path: Path, number: int) -> _Run:
    if not path.is_dir():
        raise RecordError(f"{path}: no such run folder.")
    folder = RunFolder(path)
    evaluation = {
        moment: {
            name: {int(k): rate for k, rate in part.pass_at.items() if rate is not None}
            for name, part in folder.read_evaluation(moment).items()
        }
        for moment in ("before", "after")
    }
    return _Run(
        name=path.resolve().name,
        colour=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number % len(MARKERS)],
        metrics=folder.read_numbers(),
        evaluation=evaluation,
    )


def _draw_figure(runs: Sequence[_Run]) -> Figure:
    figure = Figure(figsize=(9.6, 6.6))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    window = 2 * (max(len(run.metrics) for run in runs) // 20) + 1  # odd, about a tenth of the longest run
    panels = figure.subplots(2, 2)
    _draw_rewards(panels[0, 0], runs, window)
    _draw_alignment(panels[0, 1], runs, window)
    _draw_silent_groups(panels[1, 0], runs, window)
    _draw_pass_rates(panels[1, 1], runs)
    if len(runs) == 1:
        figure.suptitle(runs[0].name, x=0.012, ha="left", weight="bold")
    else:
        key = [Line2D([], [], color=run.colour, marker=run.marker, linewidth=2, label=run.name) for run in runs]
        figure.legend(handles=key, loc="outside upper left", ncols=min(len(runs), 3), frameon=False)
    if window > 1:
        note = f"Thick and dashed lines: centred mean over {window} logged steps. Thin lines: the steps themselves."
        figure.supxlabel(note, x=0.988, ha="right", size=8, color=MUTED)
    return figure


# ------------------------------------------------------------------------------------------------------------- panels


def _draw_rewards(axes: Axes, runs: Sequence[_Run], window: int) -> None:
    curves = [_Curve(run=run, metric="gar/eligible_fraction", colour=run.colour) for run in runs]
    if len(runs) == 1:
        axes.set_title("Training reward and its outcome part")
        axes.set_ylabel("mean over responses")
        curves = [replace(curves[0], label="correct,\nin format")]
        curves.append(_Curve(run=runs[0], metric="reward", colour=INK, label="reward", reference=True))
    else:
        axes.set_title("Correct responses in the right format")
        axes.set_ylabel("share of responses")
    _draw_curves(axes, curves, window, from_zero=True)


def _draw_alignment(axes: Axes, runs: Sequence[_Run], window: int) -> None:
    axes.set_title("Alignment of correct responses")
    axes.set_ylabel("cosine with the expert solution")
    curves = [_Curve(run=run, metric="gar/alignment_mean", colour=run.colour) for run in runs]
    _draw_curves(axes, curves, window, from_zero=False)


def _draw_silent_groups(axes: Axes, runs: Sequence[_Run], window: int) -> None:
    axes.set_title("Silent groups: every advantage is zero")
    axes.set_ylabel("share of groups" if len(runs) == 1 else "share of groups (dashed: outcome alone)")
    outcome, shaped = "gar/silent_group_fraction_outcome", "gar/silent_group_fraction_shaped"
    curves = []
    for run in runs:
        colour, words = (INK, ("outcome\nalone", "with the\nbonus")) if len(runs) == 1 else (run.colour, ("", ""))
        curves.append(_Curve(run=run, metric=outcome, colour=colour, label=words[0], reference=True))
        curves.append(_Curve(run=run, metric=shaped, colour=run.colour, label=words[1]))
    _draw_curves(axes, curves, window, from_zero=True)


def _draw_pass_rates(axes: Axes, runs: Sequence[_Run]) -> None:
    axes.set_title("Problems solved before and after training")
    rows = _pass_rows(runs)
    if not rows:
        say_not_recorded(axes)
        return
    gap = 0.7 / len(runs)
    for y, (name, k) in enumerate(rows):
        for i, run in enumerate(runs):
            before, after = (run.evaluation[moment].get(name, {}).get(k) for moment in ("before", "after"))
            offset = (i - (len(runs) - 1) / 2) * gap
            _draw_before_and_after(
                axes, y + offset, before, after, run, named=y == 0 and i == 0, numbers=len(runs) <= 3
            )
    axes.set_yticks(range(len(rows)), [f"{name}, pass@{k}" for name, k in rows])
    axes.set_ylim(len(rows) - 0.4, -0.85)
    axes.set_xlim(-0.12, 1.12)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.set_xlabel("share of problems")
    bare_rows(axes)
    axes.spines["bottom"].set_bounds(0, 1)


# ----------------------------------------------------------------------------------------------------------- elements


def _draw_curves(axes: Axes, curves: Sequence[_Curve], window: int, *, from_zero: bool) -> None:
    """Each curve thin as it was logged and thick as a running mean, with its label at the end."""
    ends = []
    for curve in curves:
        steps, values = _series(curve.run.metrics, curve.metric)
        smooth = running_mean(values, window)
        known = np.flatnonzero(np.isfinite(smooth))
        if not len(known):
            continue
        if window > 1 and not curve.reference:
            axes.plot(steps, values, color=curve.colour, alpha=0.35, linewidth=0.8)
        marked = None if window == 1 else [] if curve.reference else known[-1:].tolist()
        # `markevery` at once: a line of over 1,000 points may be cut to what is visible when it is set later.
        style: dict[str, Any] = {"marker": curve.run.marker, "markersize": 4.5, "linewidth": 2.2, "markevery": marked}
        (line,) = axes.plot(steps, smooth, color=curve.colour, **style)
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
            axes.text(1.02, y, curve.label, color=curve.colour, va="center", transform=axes.transAxes)
            taken = y + half


def _draw_before_and_after(
    axes: Axes, y: float, before: float | None, after: float | None, run: _Run, *, named: bool, numbers: bool
) -> None:
    """A hollow mark for before, a full one for after, a line between them, and their numbers outside."""
    if before is not None and after is not None:
        axes.plot([before, after], [y, y], color=run.colour, linewidth=2, alpha=0.5)
    rising = before is None or after is None or before <= after
    for value, word, fill, left in ((before, "before", "white", rising), (after, "after", run.colour, not rising)):
        if value is None:
            continue
        axes.plot([value], [y], run.marker, color=run.colour, markerfacecolor=fill, markersize=6.5, markeredgewidth=1.6)
        side = {"textcoords": "offset points", "ha": "right" if left else "left", "size": 8}
        if numbers:
            axes.annotate(f"{value:.2f}", (value, y), (-7 if left else 7, 0), va="center", **side)
        if named:
            axes.annotate(word, (value, y), (4 if left else -4, 8), color=MUTED, **side)


# ------------------------------------------------------------------------------------------------------------ numbers


def _series(metrics: Sequence[Mapping[str, Any]], name: str) -> tuple[Floats, Floats]:
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


def _pass_rows(runs: Sequence[_Run]) -> list[tuple[str, int]]:
    """The (set, k) that any run has, sets in the order they were recorded, k ascending."""
    results = [sets for run in runs for sets in run.evaluation.values()]
    names = dict.fromkeys(name for sets in results for name in sets)
    return [(name, k) for name in names for k in sorted({k for sets in results for k in sets.get(name, {})})]
