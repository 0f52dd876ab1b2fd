"""Zero-std groups: how many there are, how many the bonus rescues, and how large the rescued groups' advantages are."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter

from gar.analysis.curves import window_size
from gar.analysis.style import COLORS, INK, MUTED, add_caption, paper_figure, say_not_recorded
from gar.core import group_advantages, group_standard_deviations
from gar.errors import RecordError
from gar.records import Run
from gar.settings import GROUP_DDOF, GROUP_EPS

MIN_STDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
_COLUMNS = ("step", "group_index", "eligible", "bonus", "reward")


def zero_std_groups(run: Run) -> pd.DataFrame:
    """Classify the groups of a run by outcome and bonus, from its rollouts, a row for each.

    * `step`, `size`: of the group
    * `kind`: "all correct", "all wrong", "equal otherwise" (neither, and yet all outcomes are equal) or "mixed"
      (the outcome alone tells responses apart, and an all-wrong group whose responses differ in format is mixed)
    * `zero_std`, `reward_std`: with the bonus
    * for each of `MIN_STDS`: the mean absolute advantage, normalized in the group with the run's ddof and eps
    """
    table: Any = run.rollouts(_COLUMNS).to_pandas()
    if table.empty:
        raise RecordError(f"{run.path}: no rollouts, so there is nothing to analyze. Has its first step not ended yet?")
    index = table.groupby(["step", "group_index"]).ngroup()
    groups = table.assign(outcome=table["reward"] - table["bonus"]).groupby(index)
    low, high, correct = groups.min(), groups.max(), groups["eligible"].mean()
    advantage = run.config.advantage if run.config else None
    ddof = GROUP_DDOF if advantage is None or advantage.ddof is None else advantage.ddof
    eps = GROUP_EPS if advantage is None or advantage.eps is None else advantage.eps
    rewards, of_group = torch.tensor(table["reward"].to_numpy()), torch.tensor(index.to_numpy())

    def sizes(min_std: float) -> Any:
        advantages = group_advantages(rewards, of_group, scale="std", ddof=ddof, eps=eps, min_std=min_std)
        return pd.Series(advantages.abs().numpy()).groupby(index).mean()

    std = group_standard_deviations(rewards, of_group, ddof=ddof)
    return pd.DataFrame(
        {
            "step": low["step"],
            "size": groups.size(),
            "kind": np.select(
                [high["outcome"] - low["outcome"] >= 1e-9, correct == 1, correct == 0],  # the outcome up to rounding
                ["mixed", "all correct", "all wrong"],
                "equal otherwise",
            ),
            "zero_std": high["reward"] - low["reward"] < 1e-12,
            "reward_std": pd.Series(std.numpy()).groupby(index).first(),
            **{min_std: sizes(min_std) for min_std in MIN_STDS},
        }
    )


def zero_std_groups_figure(name: str, groups: Any) -> Figure:
    """Shares over steps, the spread of rewards in rescued groups, what `min_std` does to their advantages."""
    rescued = (groups["kind"] == "all correct") & ~groups["zero_std"]
    shown = {"rescued": groups[rescued], "mixed": groups[groups["kind"] == "mixed"]}
    shown = {kind: part for kind, part in shown.items() if len(part)}
    with paper_figure(2.5) as figure:
        shares, spread, floors = figure.subplots(1, 3, width_ratios=(1.35, 1, 1))
        _draw_shares(shares, groups, rescued)
        spread.set_title("Spread of rewards in a group")
        floors.set_title("What min_std does")
        if shown:
            _draw_spread(spread, shown, groups["reward_std"])
            _draw_floors(floors, shown)
        else:
            say_not_recorded(spread)
            say_not_recorded(floors)
        figure.legend(
            *shares.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False, handlelength=1.2
        )
        add_caption(
            figure,
            f"{name}: n = {len(groups):,} groups of {groups['size'].mode()[0]} responses, {rescued.sum():,} "
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
        axes.fill_between(
            share.index, low, low + share, facecolor=color, hatch=hatch, edgecolor="white", linewidth=0.5, label=label,
            step=None if len(share) > 1 else "mid",
        )  # fmt: skip
        low = low + share
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.margins(x=0)
    axes.set_xlabel("training step" + (f" (mean over {window})" if window > 1 else ""))
    axes.set_ylabel("share of groups")


_STYLES: dict[str, Any] = {"rescued": (COLORS[0], "stepfilled", "o-"), "mixed": (INK, "step", "s--")}


def _draw_spread(axes: Axes, shown: dict[str, Any], std: Any) -> None:
    edges = np.geomspace(max(std[std > 0].min(), 1e-4) if (std > 0).any() else 1e-4, max(std.max(), 1e-4) * 1.05, 25)
    for kind, part in shown.items():
        color, histtype, _ = _STYLES[kind]
        axes.hist(
            part["reward_std"], edges.tolist(), weights=np.full(len(part), 1 / len(part)), color=color,
            histtype=histtype, alpha=0.75, label=f"{kind}, n = {len(part):,}",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("standard deviation of the rewards")
    axes.set_ylabel("share of groups")
    axes.margins(y=0.3)
    axes.legend(loc="upper left", frameon=False, handlelength=1.2, labelspacing=0.2)


def _draw_floors(axes: Axes, shown: dict[str, Any]) -> None:
    for kind, part in shown.items():
        color, _, line = _STYLES[kind]
        axes.plot(range(len(MIN_STDS)), part[[*MIN_STDS]].mean(), line, color=color, markersize=3.5, label=kind)
    axes.set_xticks(range(len(MIN_STDS)), [f"{floor:g}" for floor in MIN_STDS])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("min_std")
    axes.set_ylabel("mean size of advantages")
    axes.legend(loc="lower left", frameon=False)
