"""Zero-std groups: how many there are, how many the bonus rescues, and how large the rescued groups' advantages are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from gar.analysis.learning_curve import running_mean
from gar.analysis.style import COLORS, INK, MUTED, add_caption, paper_figure, say_not_recorded
from gar.core import group_advantages, group_standard_deviations
from gar.errors import RecordError
from gar.methods import METHODS
from gar.records import Run
from gar.settings import GROUP_DDOF, GROUP_EPS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
GroupKind = Literal["all correct", "all wrong", "equal otherwise", "mixed"]

MIN_STDS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
KINDS: tuple[GroupKind, ...] = ("all correct", "all wrong", "equal otherwise", "mixed")

_COLUMNS = ("step", "group_index", "eligible", "bonus", "reward")


@dataclass(frozen=True, kw_only=True, slots=True)
class Normalization:
    """How a run normalizes rewards within groups; `min_std` is None where its settings cannot be read."""

    ddof: int = GROUP_DDOF
    eps: float = GROUP_EPS
    min_std: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ZeroStdGroups:
    """The groups of a run.

    "All correct": every response is correct and in format. "All wrong": none is. "Equal otherwise": neither, and yet
    all outcomes are equal. "Mixed": the outcome alone already tells responses apart. An all-wrong group whose responses
    differ in format is mixed.

    Attributes:
        run: Name of the run.
        group_size: Responses in a group; the most frequent count.
        counts: Groups by kind.
        num_rescued: By kind, zero-std groups under the outcome that are none with the bonus.
        advantages: Mean absolute advantage at each of `MIN_STDS`, of the rescued all-correct groups and of the mixed
            ones, under `normalization`; NaN where there is no such group.
        normalization: The run's, or the variant `paper`.
        data: A row per group: step, kind, zero_std_shaped, reward_std.
        notes: What the data cannot show.
    """

    run: str
    group_size: int
    counts: dict[GroupKind, int]
    num_rescued: dict[GroupKind, int]
    advantages: dict[str, list[float]]
    normalization: Normalization
    data: pa.Table
    notes: Sequence[str]

    @property
    def num_groups(self) -> int:
        """All groups."""
        return sum(self.counts.values())


def zero_std_groups(run: Run) -> ZeroStdGroups:
    """Classify the groups of a run by outcome and bonus, from its rollouts.

    Raises:
        RecordError: The run has no rollouts, or, if it was opened strictly, they are damaged.
    """
    table = run.rollouts(_COLUMNS)
    if not len(table):
        raise RecordError(f"{run.path}: no rollouts, so there is nothing to analyze. Has its first step not ended yet?")
    columns = {name: table[name].to_numpy() for name in _COLUMNS}
    normalization, notes = _normalization(run)
    key = columns["step"] * (int(columns["group_index"].max(initial=0)) + 1) + columns["group_index"]
    _, first, index, sizes = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    rewards = columns["reward"]
    num_correct = np.bincount(index, weights=columns["eligible"], minlength=len(sizes))
    zero_std_outcome = _ranges(rewards - columns["bonus"], index) < 1e-9  # the outcome up to rounding
    zero_std_shaped = _ranges(rewards, index) < 1e-12
    kinds = np.select(
        [~zero_std_outcome, num_correct == sizes, num_correct == 0],
        ["mixed", "all correct", "all wrong"],
        "equal otherwise",
    )
    rescued = zero_std_outcome & ~zero_std_shaped
    chosen = {"rescued": rescued & (kinds == "all correct"), "mixed": kinds == "mixed"}
    by_floor = [_mean_sizes(rewards, index, replace(normalization, min_std=floor)) for floor in MIN_STDS]
    if not num_correct.any():
        notes.append("No response is correct: GAR has nothing to compare, and every bonus is 0.")
    std = group_standard_deviations(torch.tensor(rewards), torch.tensor(index), ddof=normalization.ddof)
    return ZeroStdGroups(
        run=run.name,
        group_size=int(np.bincount(sizes).argmax()),
        counts={kind: int((kinds == kind).sum()) for kind in KINDS},
        num_rescued={kind: int((rescued & (kinds == kind)).sum()) for kind in KINDS},
        advantages={
            name: [float(values[mask].mean()) if mask.any() else np.nan for values in by_floor]
            for name, mask in chosen.items()
        },
        normalization=normalization,
        data=pa.table(
            {
                "step": columns["step"][first],
                "kind": kinds.tolist(),
                "zero_std_shaped": zero_std_shaped,
                "reward_std": std.numpy()[first],
            }
        ),
        notes=[*run.notes, *notes],
    )


def _normalization(run: Run) -> tuple[Normalization, list[str]]:
    """How the run normalizes, and notes where the advantages shown are not its own."""
    if run.config is None:
        return Normalization(), ["Advantages are those of the variant `paper`."]
    settings = run.config.advantage
    estimator = settings.estimator or METHODS[run.config.method].estimator
    notes = []
    if estimator != "group":
        notes.append(
            f"The run does not normalize within groups ({estimator}): advantages here are what normalization within "
            "groups would have made of its rewards."
        )
    normalization = Normalization(
        ddof=GROUP_DDOF if settings.ddof is None else settings.ddof,
        eps=GROUP_EPS if settings.eps is None else settings.eps,
        min_std=settings.min_std,
    )
    return normalization, notes


def _ranges(values: Floats, index: Ints) -> Floats:
    """Largest minus smallest value of each group."""
    low, high = np.full(index.max() + 1, np.inf), np.full(index.max() + 1, -np.inf)
    np.minimum.at(low, index, values)
    np.maximum.at(high, index, values)
    return high - low


def _mean_sizes(rewards: Floats, index: Ints, normalization: Normalization) -> Floats:
    """Mean absolute advantage of each group."""
    advantages = group_advantages(
        torch.tensor(rewards), torch.tensor(index), scale="std", ddof=normalization.ddof, eps=normalization.eps,
        min_std=normalization.min_std or 0.0,
    )  # fmt: skip
    return np.bincount(index, advantages.abs().numpy()) / np.bincount(index)


# ------------------------------------------------------------------------------------------------------------- figure


def zero_std_groups_figure(groups: ZeroStdGroups) -> Figure:
    """Shares over steps; the spread of rewards in rescued groups; what `min_std` does to their advantages."""
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
            f"{sum(groups.num_rescued.values()):,} rescued by the bonus.",
        )
    return figure


def _draw_shares(axes: Axes, groups: ZeroStdGroups) -> None:
    axes.set_title("Groups equal in outcome")
    kind, zero_std = _kinds(groups)
    steps, index = np.unique(groups.data["step"].to_numpy(), return_inverse=True)
    totals = np.bincount(index)
    window = 2 * (len(steps) // 20) + 1
    layers = (
        ("all correct, rescued", (kind == "all correct") & ~zero_std, COLORS[0], None),
        ("all correct, zero std", (kind == "all correct") & zero_std, COLORS[5], "////"),
        ("all wrong, zero std", ((kind == "all wrong") | (kind == "equal otherwise")) & zero_std, MUTED, None),
    )
    low = np.zeros(len(steps))
    for label, mask, color, hatch in layers:
        high = low + running_mean(np.bincount(index, mask, len(steps)) / totals, window)
        axes.fill_between(
            steps, low, high, facecolor=color, hatch=hatch, edgecolor="white", linewidth=0.5, label=label,
            step=None if len(steps) > 1 else "mid",
        )  # fmt: skip
        low = high
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0)
    axes.set_xlabel("training step" + (f" (mean over {window})" if window > 1 else ""))
    axes.set_ylabel("share of groups")


def _kinds(groups: ZeroStdGroups) -> tuple[NDArray[np.str_], NDArray[np.bool_]]:
    """Kind of each group, and whether it is a zero-std group with the bonus."""
    return np.array(groups.data["kind"].to_pylist()), groups.data["zero_std_shaped"].to_numpy()


def _draw_spread(axes: Axes, groups: ZeroStdGroups) -> None:
    axes.set_title("Spread of rewards in a group")
    std, (kind, zero_std) = groups.data["reward_std"].to_numpy(), _kinds(groups)
    rescued, mixed = (kind == "all correct") & ~zero_std, kind == "mixed"
    if not (rescued | mixed).any():
        say_not_recorded(axes)
        return
    edges = np.geomspace(max(std[std > 0].min(initial=1), 1e-4), max(std.max(), 1e-4) * 1.05, 25)
    styles: tuple[dict[str, Any], ...] = (
        {"label": "rescued", "color": COLORS[0], "histtype": "stepfilled", "alpha": 0.75},
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


def _draw_floors(axes: Axes, groups: ZeroStdGroups) -> None:
    axes.set_title("What min_std does")
    shown = {name: values for name, values in groups.advantages.items() if np.isfinite(values).any()}
    if not shown:
        say_not_recorded(axes)
        return
    styles = {"rescued": (COLORS[0], "o-"), "mixed": (INK, "s--")}
    for name, values in shown.items():
        color, line = styles[name]
        axes.plot(range(len(MIN_STDS)), values, line, color=color, markersize=3.5, label=name)
    axes.set_xticks(range(len(MIN_STDS)), [f"{floor:g}" for floor in MIN_STDS])
    axes.set_ylim(0, 1.15 * np.nanmax(list(shown.values())))
    axes.set_xlabel("min_std")
    axes.set_ylabel("mean size of advantages")
    axes.legend(loc="lower left", frameon=False)
