"""Figures of the rollouts of a run: the alignment of correct responses, and the groups that are equal in outcome."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from gar.analysis.curves import window_size
from gar.analysis.style import COLORS, INK, MUTED, add_caption, paper_figure
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
        ends = np.floor(scored["alignment"].min() * 10) / 10, np.ceil(scored["alignment"].max() * 10) / 10 + 1e-9
        for axes, (first, last) in zip(panels, windows, strict=True):
            axes.set_title(f"step {first}" if first == last else f"steps {first} to {last}")
            axes.set_xlabel("alignment")
            _draw_histogram(axes, scored[scored["step"].between(first, last)], np.linspace(*ends, _BINS + 1))
        panels[0].set_ylabel("share of responses")
        panels[0].margins(y=0.28)
        add_caption(figure, f"{run.name}: n = {len(scored):,} correct responses with an alignment.")
    return figure


def _windows(steps: Sequence[int], at_steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last step of each histogram."""
    size = max(1, round(len(steps) * _WINDOW_FRACTION))
    starts = np.minimum(np.searchsorted(steps, at_steps), len(steps) - 1)
    if not at_steps:
        starts = np.unique(np.linspace(0, len(steps) - size, _NUM_WINDOWS).round().astype(int))
    return [(steps[start], steps[min(start + size, len(steps)) - 1]) for start in starts]


def _draw_histogram(axes: Axes, scored: pd.DataFrame, edges: np.ndarray) -> None:
    if scored.empty:
        axes.text(0.5, 0.5, "none scored", ha="center", transform=axes.transAxes)
        return
    values, count = scored["alignment"].to_numpy(), len(scored)
    shares = np.full(count, 1 / count)
    axes.hist(values, edges.tolist(), weights=shares, color=COLORS[5], edgecolor="white", linewidth=0.4)
    axes.axvline(values.mean(), color=INK, linewidth=1.2)
    text = f"mean {values.mean():.2f}\nn = {count:,}"
    axes.text(0.98, 0.97, text, size=6.5, ha="right", va="top", transform=axes.transAxes)
    axes.grid(axis="x", visible=False)


def zero_std_groups(run: Run) -> pd.DataFrame:
    """Classify the groups of a run by outcome and bonus, from its rollouts, with one row per group.

    * `step`, `size`: of the group
    * `kind`: "mixed" (outcomes differ), else "all correct", "all wrong" or "equal otherwise" (some are correct)
      An all-wrong group is mixed if its responses differ in format.
    * `zero_std`: whether all rewards are equal, bonus included
    """
    table: Any = run.rollouts(["step", "group_index", "eligible", "bonus", "reward"]).to_pandas()
    groups = table.assign(outcome=table["reward"] - table["bonus"]).groupby(["step", "group_index"], as_index=False)
    low, high, correct = groups.min(), groups.max(), groups["eligible"].mean()["eligible"]
    return pd.DataFrame(
        {
            "step": low["step"],
            "size": groups.size()["size"],
            "kind": np.select(
                [high["outcome"] - low["outcome"] >= 1e-9, correct == 1, correct == 0],  # the outcome up to rounding
                ["mixed", "all correct", "all wrong"],
                "equal otherwise",
            ),
            "zero_std": high["reward"] - low["reward"] < 1e-12,
        }
    )


def zero_std_groups_figure(run: Run) -> Figure | None:
    """Shares of the groups that are equal in outcome, over the steps. None without rollouts."""
    groups: Any = zero_std_groups(run)
    if groups.empty:
        return None
    correct, equal = groups["kind"] == "all correct", groups["kind"].isin(["all wrong", "equal otherwise"])
    rescued = correct & ~groups["zero_std"]
    layers = (
        ("all correct, rescued", rescued, COLORS[0], None),
        ("all correct, zero std", correct & groups["zero_std"], COLORS[5], "////"),
        ("all wrong, zero std", equal & groups["zero_std"], MUTED, None),
    )
    low, window = 0.0, window_size(groups["step"].nunique())
    with paper_figure(2.5) as figure:
        axes = figure.subplots()
        for label, mask, color, hatch in layers:
            share = mask.groupby(groups["step"]).mean().rolling(window, center=True, min_periods=1).mean()
            looks: Any = {"facecolor": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5, "label": label}
            axes.fill_between(share.index, low, low + share, step=None if len(share) > 1 else "mid", **looks)
            low = low + share
        axes.set(ylim=(0, 1), ylabel="share of groups", title="Groups equal in outcome")
        axes.set_xlabel("training step" + (f" (mean over {window})" if window > 1 else ""))
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.margins(x=0)
        figure.legend(loc="outside upper right", ncols=3, frameon=False, handlelength=1.2)
        add_caption(
            figure,
            f"{run.name}: n = {len(groups):,} groups of {groups['size'].mode()[0]} responses, {rescued.sum():,} "
            "all-correct groups rescued by the bonus.",
        )
    return figure
