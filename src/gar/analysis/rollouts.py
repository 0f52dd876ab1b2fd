"""Figures of the rollouts of a run: the alignment of correct responses, and the groups that are equal in outcome."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from gar.analysis.curves import window_size
from gar.analysis.style import COLORS, INK, MUTED, paper_figure
from gar.records import Run

_BINS = 25
_NUM_WINDOWS = 4
_WINDOW_FRACTION = 0.1


def alignment_figure(run: Run, at_steps: Sequence[int] = ()) -> Figure | None:
    """Histograms of the recorded alignments. None if there is no alignment.

    Each histogram is of a tenth of the run from one of `at_steps` on. By default there are four, spread evenly.
    """
    table = run.rollouts(["step", "eligible", "alignment"]).to_pandas()
    scored = table[table["eligible"] & table["alignment"].notna()]
    if scored.empty:
        return None
    windows = _windows([*run.num_rows], at_steps)
    with paper_figure(2.0) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(windows), sharex=True, sharey=True))
        bins = np.histogram_bin_edges(scored["alignment"], _BINS).tolist()
        for axes, (first, last) in zip(panels, windows, strict=True):
            axes.set_title(f"step {first}" if first == last else f"steps {first} to {last}")
            axes.set_xlabel("alignment")
            values = scored["alignment"][scored["step"].between(first, last)].to_numpy()
            count = len(values)
            text = f"mean {values.mean():.2f}\nn = {count:,}" if count else "none scored"
            axes.text(0.98, 0.97, text, size=6.5, ha="right", va="top", transform=axes.transAxes)
            if count:
                axes.hist(values, bins, weights=np.full(count, 1 / count), color=COLORS[5])
                axes.axvline(values.mean(), color=INK, linewidth=1.2)
            axes.grid(axis="x", visible=False)
        panels[0].set_ylabel("share of responses")
        panels[0].margins(y=0.28)
    return figure


def _windows(steps: Sequence[int], at_steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last step of each histogram."""
    size = max(1, round(len(steps) * _WINDOW_FRACTION))
    starts = np.minimum(np.searchsorted(steps, at_steps), len(steps) - 1)
    if not at_steps:
        starts = np.unique(np.linspace(0, len(steps) - size, _NUM_WINDOWS).round().astype(int))
    return [(steps[start], steps[min(start + size, len(steps)) - 1]) for start in starts]


def zero_std_groups(run: Run) -> pd.DataFrame:
    """Which groups of a run are equal in outcome, a row for each group. Rescued: the rewards differ by the bonus."""
    table: Any = run.rollouts(["step", "group_index", "eligible", "bonus", "reward"]).to_pandas()
    groups = table.assign(outcome=table["reward"] - table["bonus"]).groupby(["step", "group_index"])
    low, high = groups.min(), groups.max()
    equal, zero_std = high["outcome"] - low["outcome"] < 1e-9, high["reward"] - low["reward"] < 1e-12
    correct = equal & low["eligible"]
    return pd.DataFrame(
        {
            "all correct, rescued": correct & ~zero_std,
            "all correct, zero std": correct & zero_std,
            "all wrong, zero std": equal & zero_std & ~correct,
        }
    )


def zero_std_groups_figure(run: Run) -> Figure | None:
    """Shares of the groups that are equal in outcome, over the steps. None without rollouts."""
    groups: Any = zero_std_groups(run)
    if groups.empty:
        return None
    shares = groups.groupby("step").mean()
    window = window_size(len(shares))
    layers = shares.rolling(window, center=True, min_periods=1).mean()
    looks: Any = {"colors": (COLORS[0], COLORS[5], MUTED), "hatch": ("", "////", ""), "edgecolor": "white"}
    with paper_figure(2.5) as figure:
        axes = figure.subplots()
        axes.stackplot(layers.index, layers.T, labels=layers.columns, linewidth=0.5, **looks)
        axes.set(ylim=(0, 1), ylabel="share of groups", title="Groups equal in outcome")
        axes.set_xlabel("training step" + (f" (mean over {window})" if window > 1 else ""))
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.margins(x=0)
        figure.legend(loc="outside upper right", ncols=3, frameon=False, handlelength=1.2)
        caption = f"{len(groups):,} groups, {groups['all correct, rescued'].sum():,} of them rescued by the bonus"
        figure.supxlabel(caption, x=0.995, ha="right", size=6.5, color=MUTED)
    return figure
