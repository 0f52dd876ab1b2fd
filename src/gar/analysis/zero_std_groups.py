"""Zero-std groups: how many there are, how many the bonus rescues, and the spread of rewards in the rescued ones."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter

from gar.analysis.curves import window_size
from gar.analysis.style import COLORS, INK, MUTED, add_caption, paper_figure, say_not_recorded
from gar.records import Run
from gar.settings import GROUP_DDOF

_COLUMNS = ("step", "group_index", "eligible", "bonus", "reward")


def zero_std_groups(run: Run) -> pd.DataFrame:
    """Classify the groups of a run by outcome and bonus, from its rollouts, a row for each.

    * `step`, `size`: of the group
    * `kind`: "all correct", "all wrong", "equal otherwise" (neither, and yet all outcomes are equal) or "mixed"
      (the outcome alone tells responses apart, and an all-wrong group whose responses differ in format is mixed)
    * `zero_std`, `reward_std`: with the bonus, and the run's `advantage.ddof`
    """
    table: Any = run.rollouts(_COLUMNS).to_pandas()
    groups = table.assign(outcome=table["reward"] - table["bonus"]).groupby(["step", "group_index"], as_index=False)
    low, high, correct = groups.min(), groups.max(), groups["eligible"].mean()["eligible"]
    ddof = run.config.advantage.ddof if run.config else None
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
            "reward_std": groups["reward"].std(ddof=GROUP_DDOF if ddof is None else ddof)["reward"].fillna(0.0),
        }
    )


def zero_std_groups_figure(run: Run) -> Figure | None:
    """Shares of groups over steps, and the spread of rewards in rescued and mixed groups. None without rollouts."""
    groups: Any = zero_std_groups(run)
    if groups.empty:
        return None
    rescued = (groups["kind"] == "all correct") & ~groups["zero_std"]
    with paper_figure(2.5) as figure:
        shares, spread = figure.subplots(1, 2, width_ratios=(1.35, 1))
        _draw_shares(shares, groups, rescued)
        _draw_spread(spread, {"rescued": groups[rescued], "mixed": groups[groups["kind"] == "mixed"]})
        figure.legend(
            *shares.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False, handlelength=1.2
        )
        add_caption(
            figure,
            f"{run.name}: n = {len(groups):,} groups of {groups['size'].mode()[0]} responses, {rescued.sum():,} "
            "all-correct groups rescued by the bonus.",
        )
    return figure


def _draw_shares(axes: Axes, groups: Any, rescued: Any) -> None:
    axes.set_title("Groups equal in outcome")
    correct, equal = groups["kind"] == "all correct", groups["kind"].isin(["all wrong", "equal otherwise"])
    layers = (
        ("all correct, rescued", rescued, COLORS[0], None),
        ("all correct, zero std", correct & groups["zero_std"], COLORS[5], "////"),
        ("all wrong, zero std", equal & groups["zero_std"], MUTED, None),
    )
    low, window = 0.0, window_size(groups["step"].nunique())
    for label, mask, color, hatch in layers:
        share = mask.groupby(groups["step"]).mean().rolling(window, center=True, min_periods=1).mean()
        looks: Any = {"facecolor": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5, "label": label}
        axes.fill_between(share.index, low, low + share, step=None if len(share) > 1 else "mid", **looks)
        low = low + share
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.margins(x=0)
    axes.set_xlabel("training step" + (f" (mean over {window})" if window > 1 else ""))
    axes.set_ylabel("share of groups")


def _draw_spread(axes: Axes, shown: dict[str, Any]) -> None:
    axes.set_title("Spread of rewards in a group")
    std: Any = pd.concat([part["reward_std"] for part in shown.values()])
    if std.empty:
        say_not_recorded(axes)
        return
    edges = np.geomspace(max(std[std > 0].min(), 1e-4) if (std > 0).any() else 1e-4, max(std.max(), 1e-4) * 1.05, 25)
    for (kind, part), color, histtype in zip(shown.items(), (COLORS[0], INK), ("stepfilled", "step"), strict=True):
        looks: Any = {"color": color, "histtype": histtype, "alpha": 0.75, "label": f"{kind}, n = {len(part):,}"}
        axes.hist(part["reward_std"], edges.tolist(), weights=np.full(len(part), 1 / max(1, len(part))), **looks)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("standard deviation of the rewards")
    axes.set_ylabel("share of groups")
    axes.margins(y=0.3)
    axes.legend(loc="upper left", frameon=False, handlelength=1.2, labelspacing=0.2)
