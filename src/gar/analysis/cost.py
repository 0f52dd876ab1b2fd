"""Cost of a step by method: its seconds, the share of each part, and the counted share of the signal.

Counted (`gar.models.cost`): operations of the signal per operation of the step without generation and verification.
Measured: seconds of GAR per second of the update, log-prob pass included.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from gar.analysis.counted_cost import CountedCost, counted_cost, mean_group, model_of
from gar.analysis.finished_runs import read_finished_runs
from gar.analysis.outputs import Output
from gar.analysis.step_times import generation_times
from gar.analysis.style import INK, add_caption, method_colour, paper_figure
from gar.config import make_config
from gar.errors import GarError, RecordError
from gar.models.cost import GroupShape
from gar.records.contents import is_run_folder, read_run

PARTS = ("generation", "verification", "gar", "update")
LEFT_OUT = (
    "Not counted: softmax and everything else between matrix products, embeddings, padding, kernel launches, the "
    "optimiser, passes of a reference model."
)
_PART_COLOURS = dict(zip(PARTS, ("#56B4E9", "#CC79A7", "#E69F00", "#999999"), strict=True))
_HATCHES = dict(zip(PARTS, ("", "xx", "////", ""), strict=True))


@dataclass(kw_only=True, slots=True)
class StepTimes:
    """The steps of the runs of one method.

    Attributes:
        method: Name of the method.
        num_runs: Number of runs.
        seconds: A row per generation of rollouts: "step" and parts, means over its optimiser steps. From the results
            of a comparison, a row per run: medians over its generations.
        counts: One count for each run that could be counted.
    """

    method: str
    num_runs: int = 0
    seconds: list[Mapping[str, float]] = field(default_factory=list)
    counts: list[CountedCost] = field(default_factory=list)

    @property
    def steps(self) -> NDArray[np.float64]:
        """Seconds per optimiser step of each generation."""
        return np.array([row["step"] for row in self.seconds])

    @property
    def added(self) -> NDArray[np.float64]:
        """Seconds of GAR per second of the update, for each generation."""
        return np.array([row.get("gar", 0.0) / row["update"] for row in self.seconds if row.get("update")])

    @property
    def measured(self) -> float | None:
        """Median of `added`; None where parts were not timed."""
        return float(np.median(self.added)) if len(self.added) else None

    @property
    def counted(self) -> float | None:
        """The counted value of `measured`, averaged over runs; None where a run could not be counted."""
        return statistics.fmean(c.share for c in self.counts) if len(self.counts) == self.num_runs else None

    @property
    def ratio(self) -> float | None:
        """Measured over counted; None where nothing was counted."""
        return self.measured / self.counted if self.measured is not None and self.counted else None

    def share(self, part: str) -> float:
        """Median share of a part in the step."""
        return statistics.median(row.get(part, 0.0) / row["step"] for row in self.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCost:
    """Step times of all methods, with notes on what cannot be shown."""

    methods: Sequence[StepTimes]
    notes: Sequence[str]

    @property
    def unit(self) -> str:
        """The word for a row of `StepTimes.seconds`."""
        one_row_per_run = all(len(method.seconds) == method.num_runs for method in self.methods)
        return "medians" if one_row_per_run else "generations"


def measured_cost(folders: Sequence[str | Path]) -> MeasuredCost:
    """Step times by method, and the count of operations beside them.

    Args:
        folders: Run folders, and results folders of comparisons.

    Raises:
        RecordError: A folder is neither, or none has recorded times.
    """
    methods: dict[str, StepTimes] = {}
    notes: list[str] = []
    for path in folders:
        if is_run_folder(path) or not any(Path(path).glob("*-seed-*.json")):
            _add_run(path, methods, notes)
        else:
            _add_results(path, methods, notes)
    if not methods:
        raise RecordError(
            " ".join([f"none of {len(folders)} folders has recorded step times; the first is {folders[0]}.", *notes])
        )
    for method in methods.values():
        if method.counts:
            notes.append(f"{method.method}, counted: {method.counts[0]}.")
    notes.append("Wall time includes all other load on the machine. Compare only runs that had it to themselves.")
    return MeasuredCost(methods=list(methods.values()), notes=notes)


def _add_run(path: str | Path, methods: dict[str, StepTimes], notes: list[str]) -> None:
    run = read_run(path)
    notes += run.notes
    seconds = generation_times(run.metrics)
    if not seconds:
        notes.append(f"{run.name} has recorded no step times and is not shown.")
        return
    name = run.config.method if run.config else run.name
    method = methods.setdefault(name, StepTimes(method=name))
    method.num_runs += 1
    method.seconds += seconds
    try:
        group = mean_group(run)
        assert run.config is not None
        method.counts.append(counted_cost(model_of(run, run.config), run.config, group))
    except GarError as error:
        notes.append(f"{run.name} is measured but not counted: {error}")


def _add_results(path: str | Path, methods: dict[str, StepTimes], notes: list[str]) -> None:
    runs, faults = read_finished_runs(path)
    notes += faults
    notes.append(f"{Path(path).name} holds only the median of each run, not its generations.")
    uncounted = []
    for run in runs:
        if not run.seconds_per_step:
            notes.append(f"{run.label}, seed {run.seed} has recorded no step times and is not shown.")
            continue
        method = methods.setdefault(run.label, StepTimes(method=run.label))
        method.num_runs += 1
        method.seconds.append(run.seconds_per_step)
        try:
            config = make_config(run.settings, source=str(path))
            if run.group is None:
                raise RecordError("the result holds no lengths; its run folder does, if it still exists")
            method.counts.append(counted_cost(config.model.path, config, GroupShape(**run.group)))
        except GarError as error:
            uncounted.append(str(error))
    if uncounted:
        notes.append(f"{len(uncounted)} of {len(runs)} results measured but not counted, the first: {uncounted[0]}.")


def cost_analysis_figure(cost: MeasuredCost) -> Figure:
    """Distributions of step times, median shares of the parts, and what GAR adds: measured, and counted as diamonds."""
    with paper_figure(1.5 + 0.27 * len(cost.methods)) as figure:
        times, shares, added = figure.subplots(1, 3, sharey=True, width_ratios=(5, 4, 4))
        _draw_times(times, cost.methods)
        _draw_shares(shares, cost.methods)
        _draw_added(added, cost.methods)
        times.set_yticks(range(len(cost.methods)), [method.method for method in cost.methods])
        times.set_ylim(len(cost.methods) - 0.4, -0.6)
        key = [Patch(facecolor=_PART_COLOURS[p], hatch=_HATCHES[p], edgecolor="white", label=p) for p in PARTS]
        figure.legend(
            handles=[*key, _diamond(0, 0)], loc="outside upper right", ncols=5, frameon=False, handlelength=1.2
        )
        count = sum(len(method.seconds) for method in cost.methods)
        num_runs = sum(method.num_runs for method in cost.methods)
        add_caption(
            figure,
            f"n = {count:,} {cost.unit} of {num_runs} runs. Boxes: quartiles; whiskers: 5, 95 %. Numbers: medians; "
            f"on the right measured over counted.\n{LEFT_OUT}",
        )
    return figure


def _diamond(x: float, y: float) -> Line2D:
    return Line2D([x], [y], marker="D", markerfacecolor="white", color=INK, markersize=4.5, zorder=4, linestyle="none",
                  label="counted")  # fmt: skip


def _draw_boxes(axes: Axes, methods: Sequence[StepTimes], values: Sequence[NDArray[np.float64]]) -> list[float]:
    """Draw a box for each method. Return the right ends, whiskers included; 0 for a method without values."""
    boxes = axes.boxplot(
        values, positions=range(len(methods)), orientation="horizontal", widths=0.5,
        whis=(5, 95), showfliers=False, patch_artist=True, manage_ticks=False, medianprops={"color": "white"},
    )  # fmt: skip
    for method, box in zip(methods, boxes["boxes"], strict=True):
        box.set(facecolor=method_colour(method.method), edgecolor=INK, linewidth=0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    ends = (np.asarray(whisker.get_xdata(), float) for whisker in boxes["whiskers"][1::2])
    return [float(max(end[np.isfinite(end)], default=0.0)) for end in ends]  # NaN where nothing was timed


def _write_at(axes: Axes, text: str, x: float, y: float) -> None:
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", size=6.5)


def _draw_times(axes: Axes, methods: Sequence[StepTimes]) -> None:
    axes.set_title("Seconds per optimiser step")
    ends = _draw_boxes(axes, methods, [method.steps for method in methods])
    for y, (method, end) in enumerate(zip(methods, ends, strict=True)):
        _write_at(axes, f"{np.median(method.steps):.2f} s", end, y)
    axes.set_xlim(0, 1.3 * max(ends))


def _draw_shares(axes: Axes, methods: Sequence[StepTimes]) -> None:
    axes.set_title("Median share of each part")
    for y, method in enumerate(methods):
        left = 0.0
        for part in PARTS:
            width = method.share(part)
            axes.barh(y, width, left=left, height=0.5, color=_PART_COLOURS[part], hatch=_HATCHES[part],
                      edgecolor="white", linewidth=0.5)  # fmt: skip
            left += width
        _write_at(axes, f"gar {method.share('gar'):.1%}", left, y)
    axes.set_xlim(0, 1.35)
    axes.set_xticks([0, 0.5, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)


def _draw_added(axes: Axes, methods: Sequence[StepTimes]) -> None:
    axes.set_title("GAR per update, and counted")
    ends = _draw_boxes(axes, methods, [method.added for method in methods])
    for y, (method, end) in enumerate(zip(methods, ends, strict=True)):
        if method.counted:
            axes.add_line(_diamond(method.counted, y))
        text = "not counted" if method.counted is None else "nothing to count"
        _write_at(axes, f"{method.ratio:.1f} x" if method.ratio else text, max(end, method.counted or 0.0), y)
    axes.set_xlim(0, 1.5 * max([*ends, *(method.counted or 0.0 for method in methods)]) or 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1))


def cost_output(cost: MeasuredCost) -> Output:
    """The table, data and figure of the command."""
    data = [(m, row) for m in cost.methods for row in m.seconds]
    return Output(
        name="cost",
        title=f"Seconds per optimiser step: n = {len(data):,} {cost.unit}",
        headings=("method", "runs", "n", "s/step", "generation", "gar", "gar/update", "counted", "ratio"),
        rows=[
            (
                m.method, m.num_runs, len(m.seconds), float(np.median(m.steps)), f"{m.share('generation'):.1%}",
                f"{m.share('gar'):.1%}", _percent(m.measured), _percent(m.counted), m.ratio and f"{m.ratio:.2f}",
            )
            for m in cost.methods
        ],
        data=pa.table(
            {"method": [m.method for m, _ in data]}
            | {f"{part}_seconds": [row.get(part, 0.0) for _, row in data] for part in ("step", *PARTS)}
            | {"counted_gar_per_update": pa.array([m.counted for m, _ in data], pa.float64())}
        ),
        figure=cost_analysis_figure(cost),
        notes=[*cost.notes, LEFT_OUT],
    )  # fmt: skip


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.2%}"
