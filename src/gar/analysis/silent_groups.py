"""Groups that teach nothing: how many there are, how many the bonus rescues, and how hard the rescued ones train."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import matplotlib
import numpy as np
import pyarrow as pa
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from gar.analysis.learning_curve import running_mean
from gar.analysis.outputs import Output
from gar.analysis.style import COLOURS, INK, MUTED, PAGE_WIDTH, PAPER, add_caption, say_not_recorded
from gar.core import group_advantages
from gar.methods import METHODS
from gar.records.contents import RunContents, read_rollouts, read_run
from gar.settings import GROUP_DDOF, GROUP_EPS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Kind = Literal["all correct", "all wrong", "equal otherwise", "mixed"]

STD_FLOORS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
KINDS: tuple[Kind, ...] = ("all correct", "all wrong", "equal otherwise", "mixed")

_COLUMNS = ("step", "group_index", "eligible", "bonus", "reward")


@dataclass(frozen=True, kw_only=True, slots=True)
class SilentGroups:
    """The groups of a run.

    "All correct": every response is correct and in format. "All wrong": none is. "Equal otherwise": neither, and yet
    all outcomes are equal. "Mixed": the outcome alone already tells responses apart. An all-wrong group whose responses
    differ in format is mixed.

    Attributes:
        run: Name of the run.
        group_size: Responses in a group; the most frequent count.
        num_rescued: By kind, groups that are silent under the outcome and not with the bonus.
        counts: By kind, all groups.
        advantages: Mean size of the advantages by `STD_FLOORS`, of the rescued all-correct groups and of the mixed
            ones, under group normalisation with this `ddof` and `eps`; NaN where there is no such group.
        std_floor: That of the run; None where its settings cannot be read.
        ddof: Of the standard deviation.
        eps: Added to it.
        data: A row per group: step, group_index, kind, silent_outcome, silent_shaped, reward_std, advantage_mean_abs.
        notes: What it cannot show.
    """

    run: str
    group_size: int
    counts: dict[Kind, int]
    num_rescued: dict[Kind, int]
    advantages: dict[str, list[float]]
    std_floor: float | None
    ddof: int
    eps: float
    data: pa.Table
    notes: Sequence[str]

    @property
    def num_groups(self) -> int:
        """All groups."""
        return sum(self.counts.values())


def silent_groups(run: str | Path) -> SilentGroups:
    """The groups of a run by what the outcome and the bonus say of them, from its rollouts.

    Raises:
        RecordError: No such folder, or no rollouts in it.
    """
    opened = read_run(run)
    rollouts = read_rollouts(opened, _COLUMNS)
    columns = {name: rollouts.table[name].to_numpy() for name in _COLUMNS}
    ddof, eps, floor, notes = _normalisation(opened)
    key = columns["step"] * (int(columns["group_index"].max(initial=0)) + 1) + columns["group_index"]
    keys, first, index, sizes = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    num_correct = np.bincount(index, weights=columns["eligible"], minlength=len(keys))
    outcome_range = _ranges(columns["reward"] - columns["bonus"], index, len(keys))
    reward_range = _ranges(columns["reward"], index, len(keys))
    equal = outcome_range < 1e-9  # reward minus bonus is the outcome but for rounding
    kinds = np.select(
        [~equal, num_correct == sizes, num_correct == 0], ["mixed", "all correct", "all wrong"], "equal otherwise"
    )
    silent = reward_range < 1e-12
    sizes_by_floor = np.stack([_mean_sizes(columns["reward"], index, len(keys), ddof, eps, f) for f in STD_FLOORS])
    rescued = equal & ~silent
    chosen = {"rescued": rescued & (kinds == "all correct"), "mixed": kinds == "mixed"}
    if not (num_correct > 0).any():
        notes = [*notes, "No response is correct: GAR has nothing to compare, and every bonus is 0."]
    return SilentGroups(
        run=opened.name,
        group_size=int(np.bincount(sizes).argmax()),
        counts={kind: int((kinds == kind).sum()) for kind in KINDS},
        num_rescued={kind: int((rescued & (kinds == kind)).sum()) for kind in KINDS},
        advantages={
            name: [float(row[mask].mean()) if mask.any() else np.nan for row in sizes_by_floor]
            for name, mask in chosen.items()
        },
        std_floor=floor,
        ddof=ddof,
        eps=eps,
        data=pa.table(
            {
                "step": columns["step"][first],
                "group_index": columns["group_index"][first],
                "num_responses": sizes,
                "num_correct": num_correct.astype(np.int64),
                "kind": kinds.tolist(),
                "silent_outcome": equal,
                "silent_shaped": silent,
                "reward_std": _standard_deviations(columns["reward"], index, len(keys), ddof),
                "advantage_mean_abs": _mean_sizes(columns["reward"], index, len(keys), ddof, eps, floor or 0.0),
            }
        ),
        notes=[*opened.notes, *rollouts.notes, *notes],
    )


def _normalisation(run: RunContents) -> tuple[int, float, float | None, list[str]]:
    """ddof, eps and std_floor of a run, and what to say where they are not its own."""
    if run.config is None:
        return GROUP_DDOF, GROUP_EPS, None, ["Advantages are those of the variant `paper`."]
    settings = run.config.advantage
    estimator = settings.estimator or METHODS[run.config.method].estimator
    notes = []
    if estimator != "group" or settings.baseline == "none":
        notes.append(
            f"The run does not normalise within groups ({estimator}, baseline {settings.baseline}): advantages here "
            "are what normalisation within groups would have made of its rewards."
        )
    return (
        GROUP_DDOF if settings.ddof is None else settings.ddof,
        GROUP_EPS if settings.eps is None else settings.eps,
        settings.std_floor,
        notes,
    )


def _ranges(values: Floats, index: Ints, count: int) -> Floats:
    """Largest minus smallest value of each group."""
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, index, values)
    np.maximum.at(high, index, values)
    return high - low


def _standard_deviations(values: Floats, index: Ints, count: int, ddof: int) -> Floats:
    size = np.bincount(index, minlength=count)
    deviations = values - (np.bincount(index, values, count) / size)[index]
    return np.sqrt(np.bincount(index, deviations**2, count) / np.maximum(size - ddof, 1))


def _mean_sizes(rewards: Floats, index: Ints, count: int, ddof: int, eps: float, std_floor: float) -> Floats:
    """Mean size of the advantages of each group."""
    advantages = group_advantages(
        torch.from_numpy(np.array(rewards)), torch.from_numpy(index), scale="std", ddof=ddof, eps=eps,
        std_floor=std_floor,
    )  # fmt: skip
    return np.bincount(index, advantages.abs().numpy(), count) / np.bincount(index, minlength=count)


# ------------------------------------------------------------------------------------------------------------- figure


def silent_groups_figure(groups: SilentGroups) -> Figure:
    """Shares over steps; the spread of rewards in rescued groups; what `std_floor` does to their advantages."""
    with matplotlib.rc_context(PAPER):
        figure = Figure(figsize=(PAGE_WIDTH, 2.5))
        figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.05)
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
    step, kind = groups.data["step"].to_numpy(), np.array(groups.data["kind"].to_pylist())
    silent = groups.data["silent_shaped"].to_numpy()
    steps, index = np.unique(step, return_inverse=True)
    totals = np.bincount(index)
    window = 2 * (len(steps) // 20) + 1
    layers = (
        ("all correct, rescued", (kind == "all correct") & ~silent, COLOURS[0], None),
        ("all correct, silent", (kind == "all correct") & silent, COLOURS[5], "////"),
        ("all wrong, silent", ((kind == "all wrong") | (kind == "equal otherwise")) & silent, MUTED, None),
    )
    heights = [running_mean(np.bincount(index, mask, len(steps)) / totals, window) for _, mask, _, _ in layers]
    bottoms = np.cumsum([np.zeros(len(steps)), *heights], axis=0)
    for (label, _, colour, hatch), low, high in zip(layers, bottoms, bottoms[1:], strict=False):
        axes.fill_between(
            steps, low, high, facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0.5, label=label,
            step=None if len(steps) > 1 else "mid",
        )  # fmt: skip
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0)
    axes.set_xlabel("training step" + (f" (mean over {window})" if window > 1 else ""))
    axes.set_ylabel("share of groups")


def _draw_spread(axes: Axes, groups: SilentGroups) -> None:
    axes.set_title("Spread of rewards in a group")
    std, kind = groups.data["reward_std"].to_numpy(), np.array(groups.data["kind"].to_pylist())
    silent = groups.data["silent_shaped"].to_numpy()
    chosen = (("rescued", (kind == "all correct") & ~silent, COLOURS[0]), ("mixed", kind == "mixed", INK))
    edges = np.geomspace(max(std[std > 0].min(initial=1), 1e-4), max(std.max(), 1e-4) * 1.05, 25)
    drawn = False
    for label, mask, colour in chosen:
        if mask.any():
            axes.hist(
                std[mask], edges.tolist(), weights=np.full(mask.sum(), 1 / mask.sum()), color=colour,
                histtype="stepfilled" if label == "rescued" else "step", alpha=0.75 if label == "rescued" else 1.0,
                label=f"{label}, n = {mask.sum():,}",
            )  # fmt: skip
            drawn = True
    if not drawn:
        say_not_recorded(axes)
        return
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("standard deviation of the rewards")
    axes.set_ylabel("share of groups")
    axes.margins(y=0.3)
    axes.legend(loc="upper left", frameon=False, handlelength=1.2, labelspacing=0.2)


def _draw_floors(axes: Axes, groups: SilentGroups) -> None:
    axes.set_title("What std_floor does")
    styles = {"rescued": (COLOURS[0], "o-"), "mixed": (INK, "s--")}
    drawn = False
    for name, values in groups.advantages.items():
        if np.isfinite(values).any():
            colour, line = styles[name]
            axes.plot(range(len(STD_FLOORS)), values, line, color=colour, markersize=3.5, label=name)
            drawn = True
    if not drawn:
        say_not_recorded(axes)
        return
    axes.set_xticks(range(len(STD_FLOORS)), [f"{floor:g}" for floor in STD_FLOORS])
    axes.set_ylim(0, 1.15 * np.nanmax(list(groups.advantages.values())))
    axes.set_xlabel("std_floor")
    axes.set_ylabel("mean size of advantages")
    axes.legend(loc="lower left", frameon=False)


def silent_groups_output(groups: SilentGroups) -> Output:
    """What the command writes and shows."""
    by_kind = np.array(groups.data["kind"].to_pylist())
    sizes, std = (groups.data[name].to_numpy() for name in ("advantage_mean_abs", "reward_std"))
    rows: list[Sequence[str | int | float | None]] = []
    for kind in KINDS:
        mask = by_kind == kind
        count = int(mask.sum())
        rows.append(
            (
                kind, count, f"{count / max(1, groups.num_groups):.1%}", groups.num_rescued[kind],
                float(np.median(std[mask])) if count else None, float(sizes[mask].mean()) if count else None,
            )
        )  # fmt: skip
    notes = [*groups.notes]
    rescued, mixed = groups.advantages["rescued"], groups.advantages["mixed"]
    if np.isfinite(rescued[0]) and np.isfinite(mixed[0]):
        at = STD_FLOORS.index(0.05)
        notes.append(
            f"Rescued groups train with advantages of mean size {rescued[0]:.2f} at std_floor 0, mixed ones with "
            f"{mixed[0]:.2f}; at std_floor 0.05 it is {rescued[at]:.2f} and {mixed[at]:.2f}."
        )
    return Output(
        name="silent-groups",
        title=f"Groups of {groups.run}: n = {groups.num_groups:,} of {groups.group_size} responses",
        headings=("by the outcome", "groups", "share", "rescued", "median std of rewards", "mean |advantage|"),
        rows=rows,
        data=groups.data,
        figure=silent_groups_figure(groups),
        notes=notes,
    )
