"""How the alignment of correct responses changes over training: histograms of some steps, the mean of every step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import MaxNLocator

from gar.analysis.intervals import ClusteredMean, clustered_mean
from gar.analysis.style import COLORS, INK, add_caption, paper_figure
from gar.records import Run

_BINS = 25
_NUM_WINDOWS = 4
_WINDOW_FRACTION = 0.1


def alignment_figure(run: Run, at_steps: Sequence[int] = ()) -> Figure | None:
    """Histograms of the recorded alignments above, the mean of every step below. None if there is no alignment.

    Each histogram is of a tenth of the run from one of `at_steps` on. By default there are four, spread evenly.
    """
    table = run.rollouts(["step", "group_index", "eligible", "alignment"]).to_pandas()
    table["cluster"] = table.groupby(["step", "group_index"]).ngroup()
    scored = table[table["eligible"] & table["alignment"].notna()]
    if scored.empty:
        return None
    windows = _windows([*run.num_rows], at_steps)
    with paper_figure(3.5) as figure:
        rows = GridSpec(2, 1, figure, height_ratios=(1.15, 1))
        above, below = figure.add_subfigure(rows[0]), figure.add_subfigure(rows[1])
        panels = np.atleast_1d(above.subplots(1, len(windows), sharex=True, sharey=True))
        ends = np.floor(scored["alignment"].min() * 10) / 10, np.ceil(scored["alignment"].max() * 10) / 10 + 1e-9
        for axes, (first, last) in zip(panels, windows, strict=True):
            axes.set_title(f"step {first}" if first == last else f"steps {first} to {last}")
            _draw_histogram(axes, scored[scored["step"].between(first, last)], np.linspace(*ends, _BINS + 1))
        panels[0].set_ylabel("share of responses")
        panels[0].margins(y=0.28)
        above.supxlabel("alignment (cosine with the expert solution)", size=7.5, color=INK)
        _draw_course(below.subplots(), scored, windows)
        groups = scored["cluster"].nunique()
        add_caption(
            below,
            f"{run.name}: n = {len(scored):,} correct responses with an alignment, in {groups:,} groups. "
            "Band: 95% interval over groups.",
        )
    return figure


def _windows(steps: Sequence[int], at_steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last step of each histogram."""
    size = max(1, round(len(steps) * _WINDOW_FRACTION))
    starts = np.minimum(np.searchsorted(steps, at_steps), len(steps) - 1)
    if not at_steps:
        starts = np.unique(np.linspace(0, len(steps) - size, _NUM_WINDOWS).round().astype(int))
    return [(steps[start], steps[min(start + size, len(steps)) - 1]) for start in starts]


def _mean(scored: pd.DataFrame) -> ClusteredMean:
    """A group of one step is a cluster."""
    return clustered_mean(scored["alignment"], scored["cluster"])


def _draw_histogram(axes: Axes, scored: pd.DataFrame, edges: np.ndarray) -> None:
    if scored.empty:
        axes.text(0.5, 0.5, "none scored", ha="center", transform=axes.transAxes)
        return
    count, mean = len(scored), _mean(scored).mean
    axes.hist(
        scored["alignment"], edges.tolist(), weights=np.full(count, 1 / count), color=COLORS[5], edgecolor="white",
        linewidth=0.4,
    )  # fmt: skip
    axes.axvline(mean, color=INK, linewidth=1.2)
    text = f"mean {mean:.2f}\nn = {count:,}"
    axes.text(0.98, 0.97, text, size=6.5, ha="right", va="top", transform=axes.transAxes)
    axes.grid(axis="x", visible=False)


def _draw_course(axes: Axes, scored: pd.DataFrame, windows: Sequence[tuple[int, int]]) -> None:
    steps: dict[Any, ClusteredMean] = {step: _mean(part) for step, part in scored.groupby("step")}
    means = np.array([mean.mean for mean in steps.values()])
    low, high = [mean.low for mean in steps.values()], [mean.high for mean in steps.values()]
    axes.fill_between([*steps], low, high, color=COLORS[0], alpha=0.18, linewidth=0)
    axes.plot([*steps], means, ".-", markersize=2.5, color=COLORS[0])
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_ylim(max(-1, means.min() - 0.2), min(1, means.max() + 0.2))
    for first, last in windows:
        axes.axvspan(first - 0.5, last + 0.5, color=COLORS[5], alpha=0.3, linewidth=0)
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("training step")
    axes.set_ylabel("mean alignment")
