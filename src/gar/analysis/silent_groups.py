"""Silent groups: how many there are, how many the bonus rescues, and how large the rescued groups' advantages are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from gar.analysis.learning_curve import running_mean
from gar.analysis.style import COLOURS, INK, MUTED, add_caption, paper_figure, say_not_recorded
from gar.core import group_advantages, group_standard_deviations
from gar.methods import METHODS
from gar.records.contents import RunContents, read_rollouts, read_run
from gar.settings import GROUP_DDOF, GROUP_EPS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
GroupKind = Literal["all correct", "all wrong", "equal otherwise", "mixed"]

STD_FLOORS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
KINDS: tuple[GroupKind, ...] = ("all correct", "all wrong", "equal otherwise", "mixed")

_COLUMNS = ("step", "group_index", "eligible", "bonus", "reward")


@dataclass(frozen=True, kw_only=True, slots=True)
class Normalisation:
    """How a run normalises rewards within groups; `std_floor` is None where its settings cannot be read."""

    ddof: int = GROUP_DDOF
    eps: float = GROUP_EPS
    std_floor: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SilentGroups:
    """The groups of a run.

    "All correct": every response is correct and in format. "All wrong": none is. "Equal otherwise": neither, and yet
    all outcomes are equal. "Mixed": the outcome alone already tells responses apart. An all-wrong group whose responses
    differ in format is mixed.

    Attributes:
        run: Name of the run.
        group_size: Responses in a group; the most frequent count.
        counts: Groups by kind.
        num_rescued: By kind, groups that are silent under the outcome and not with the bonus.
        advantages: Mean absolute advantage at each of `STD_FLOORS`, of the rescued all-correct groups and of the mixed
            ones, under `normalisation`; NaN where there is no such group.
        normalisation: The run's, or the variant `paper`.
        data: A row per group: step, kind, silent_shaped, reward_std.
        notes: What the data cannot show.
    """

    run: str
    group_size: int
    counts: dict[GroupKind, int]
    num_rescued: dict[GroupKind, int]
    advantages: dict[str, list[float]]
    normalisation: Normalisation
    data: pa.Table
    notes: Sequence[str]

    @property
    def num_groups(self) -> int:
        """All groups."""
        return sum(self.counts.values())


def silent_groups(run: str | Path) -> SilentGroups:
    """Classify the groups of a run by outcome and bonus, from its rollouts.

    Raises:
        RecordError: The folder does not exist, or has no rollouts.
    """
    opened = read_run(run)
    rollouts = read_rollouts(opened, _COLUMNS)
    columns = {name: rollouts.table[name].to_numpy() for name in _COLUMNS}
    normalisation, notes = _normalisation(opened)
    key = columns["step"] * (int(columns["group_index"].max(initial=0)) + 1) + columns["group_index"]
    _, first, index, sizes = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    rewards = columns["reward"]
    num_correct = np.bincount(index, weights=columns["eligible"], minlength=len(sizes))
    silent_outcome = _ranges(rewards - columns["bonus"], index) < 1e-9  # the outcome up to rounding
    silent_shaped = _ranges(rewards, index) < 1e-12
    kinds = np.select(
        [~silent_outcome, num_correct == sizes, num_correct == 0],
        ["mixed", "all correct", "all wrong"],
        "equal otherwise",
    )
    rescued = silent_outcome & ~silent_shaped
    chosen = {"rescued": rescued & (kinds == "all correct"), "mixed": kinds == "mixed"}
    by_floor = [_mean_sizes(rewards, index, replace(normalisation, std_floor=floor)) for floor in STD_FLOORS]
    if not num_correct.any():
        notes.append("No response is correct: GAR has nothing to compare, and every bonus is 0.")
    std = group_standard_deviations(torch.tensor(rewards), torch.tensor(index), ddof=normalisation.ddof)
    return SilentGroups(
        run=opened.name,
        group_size=int(np.bincount(sizes).argmax()),
        counts={kind: int((kinds == kind).sum()) for kind in KINDS},
        num_rescued={kind: int((rescued & (kinds == kind)).sum()) for kind in KINDS},
        advantages={
            name: [float(values[mask].mean()) if mask.any() else np.nan for values in by_floor]
            for name, mask in chosen.items()
        },
        normalisation=normalisation,
        data=pa.table(
            {
                "step": columns["step"][first],
                "kind": kinds.tolist(),
                "silent_shaped": silent_shaped,
                "reward_std": std.numpy()[first],
            }
        ),
        notes=[*opened.notes, *rollouts.notes, *notes],
    )


def _normalisation(run: RunContents) -> tuple[Normalisation, list[str]]:
    """How the run normalises, and notes where the advantages shown are not its own."""
    if run.config is None:
        return Normalisation(), ["Advantages are those of the variant `paper`."]
    settings = run.config.advantage
    estimator = settings.estimator or METHODS[run.config.method].estimator
    notes = []
    if estimator != "group":
        notes.append(
            f"The run does not normalise within groups ({estimator}): advantages here are what normalisation within "
            "groups would have made of its rewards."
        )
    normalisation = Normalisation(
        ddof=GROUP_DDOF if settings.ddof is None else settings.ddof,
        eps=GROUP_EPS if settings.eps is None else settings.eps,
        std_floor=settings.std_floor,
    )
    return normalisation, notes


def _ranges(values: Floats, index: Ints) -> Floats:
    """Largest minus smallest value of each group."""
    low, high = np.full(index.max() + 1, np.inf), np.full(index.max() + 1, -np.inf)
    np.minimum.at(low, index, values)
    np.maximum.at(high, index, values)
    return high - low


def _mean_sizes(rewards: Floats, index: Ints, normalisation: Normalisation) -> Floats:
    """Mean absolute advantage of each group."""
    advantages = group_advantages(
        torch.tensor(rewards), torch.tensor(index), scale="std", ddof=normalisation.ddof, eps=normalisation.eps,
        std_floor=normalisation.std_floor or 0.0,
    )  # fmt: skip
    return np.bincount(index, advantages.abs().numpy()) / np.bincount(index)


# ------------------------------------------------------------------------------------------------------------- figure


def silent_groups_figure(groups: SilentGroups) -> Figure:
    """Shares over steps; the spread of rewards in rescued groups; what `std_floor` does to their advantages."""
    with paper_figure(2.5) as figure:
        shares, spread, floors = figure.subplots(1, 3, width_ratios=(1.35, 1, 1))
        _draw_shares(shares, groups)
        _draw_spread(spread, groups)
        _draw_floors(floors, groups)
        figure.legend(
            *shares.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False, handlelength=1.2
        )
        add_caption(
            figure,
            f"{groups.run}: n = {groups.num_groups:,} groups of {groups.group_size} responses, "
            f"{sum(groups.num_rescued.values()):,} rescued from silence by the bonus.",
        )
    return figure


def _draw_shares(axes: Axes, groups: SilentGroups) -> None:
    axes.set_title("Groups equal in outcome")
    kind, silent = _kinds(groups)
    steps, index = np.unique(groups.data["step"].to_numpy(), return_inverse=True)
    totals = np.bincount(index)
    window = 2 * (len(steps) // 20) + 1
    layers = (
        ("all correct, rescued", (kind == "all correct") & ~silent, COLOURS[0], None),
        ("all correct, silent", (kind == "all correct") & silent, COLOURS[5], "////"),
        ("all wrong, silent", ((kind == "all wrong") | (kind == "equal otherwise")) & silent, MUTED, None),
    )
    low = np.zeros(len(steps))
    for label, mask, colour, hatch in layers:
        high = low + running_mean(np.bincount(index, mask, len(steps)) / totals, window)
        axes.fill_between(
            steps, low, high, facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0.5, label=label,
            step=None if len(steps) > 1 else "mid",
        )  # fmt: skip
        low = high
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0)
    axes.set_xlabel("training step" + (f" (mean over {window})" if window > 1 else ""))
    axes.set_ylabel("share of groups")


def _kinds(groups: SilentGroups) -> tuple[NDArray[np.str_], NDArray[np.bool_]]:
    """Kind of each group, and whether it is silent with the bonus."""
    return np.array(groups.data["kind"].to_pylist()), groups.data["silent_shaped"].to_numpy()


def _draw_spread(axes: Axes, groups: SilentGroups) -> None:
    axes.set_title("Spread of rewards in a group")
    std, (kind, silent) = groups.data["reward_std"].to_numpy(), _kinds(groups)
    rescued, mixed = (kind == "all correct") & ~silent, kind == "mixed"
    if not (rescued | mixed).any():
        say_not_recorded(axes)
        return
    edges = np.geomspace(max(std[std > 0].min(initial=1), 1e-4), max(std.max(), 1e-4) * 1.05, 25)
    styles: tuple[dict[str, Any], ...] = (
        {"label": "rescued", "color": COLOURS[0], "histtype": "stepfilled", "alpha": 0.75},
        {"label": "mixed", "color": INK, "histtype": "step"},
    )
    for mask, style in zip((rescued, mixed), styles, strict=True):
        if count := mask.sum():
            style["label"] += f", n = {count:,}"
            axes.hist(std[mask], edges.tolist(), weights=np.full(count, 1 / count), **style)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("standard deviation of the rewards")
    axes.set_ylabel("share of groups")
    axes.margins(y=0.3)
    axes.legend(loc="upper left", frameon=False, handlelength=1.2, labelspacing=0.2)


def _draw_floors(axes: Axes, groups: SilentGroups) -> None:
    axes.set_title("What std_floor does")
    shown = {name: values for name, values in groups.advantages.items() if np.isfinite(values).any()}
    if not shown:
        say_not_recorded(axes)
        return
    styles = {"rescued": (COLOURS[0], "o-"), "mixed": (INK, "s--")}
    for name, values in shown.items():
        colour, line = styles[name]
        axes.plot(range(len(STD_FLOORS)), values, line, color=colour, markersize=3.5, label=name)
    axes.set_xticks(range(len(STD_FLOORS)), [f"{floor:g}" for floor in STD_FLOORS])
    axes.set_ylim(0, 1.15 * np.nanmax(list(shown.values())))
    axes.set_xlabel("std_floor")
    axes.set_ylabel("mean size of advantages")
    axes.legend(loc="lower left", frameon=False)
