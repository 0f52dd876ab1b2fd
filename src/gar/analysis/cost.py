"""What a step costs, by method: the distribution of its seconds, and the share of each part, from run folders."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from gar.analysis.inputs import open_run
from gar.analysis.outputs import Output
from gar.analysis.step_times import generation_times
from gar.analysis.style import INK, PAGE_WIDTH, PAPER, add_caption, method_colour
from gar.errors import RecordError

PARTS = ("generation", "verification", "gar", "update")
_PART_COLOURS = dict(zip(PARTS, ("#56B4E9", "#CC79A7", "#E69F00", "#999999"), strict=True))
_HATCHES = dict(zip(PARTS, ("", "xx", "////", ""), strict=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """The steps of the runs of one method.

    Attributes:
        method: Its name.
        num_runs: How many.
        seconds: A row per generation of rollouts: "step" and parts, means over its optimiser steps.
    """

    method: str
    num_runs: int
    seconds: Sequence[Mapping[str, float]]

    @property
    def steps(self) -> np.ndarray:
        """Seconds per optimiser step of each generation."""
        return np.array([row["step"] for row in self.seconds])

    def share(self, part: str) -> float:
        """Median share of a part in the step."""
        return statistics.median(row.get(part, 0.0) / row["step"] for row in self.seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCost:
    """All methods, and what cannot be shown."""

    methods: Sequence[StepTimes]
    notes: Sequence[str]


def measured_cost(runs: Sequence[str | Path]) -> MeasuredCost:
    """Step times of run folders, by method.

    Raises:
        RecordError: A folder is no run folder, or none has recorded times.
    """
    rows: dict[str, list[dict[str, float]]] = {}
    counts: dict[str, int] = {}
    notes: list[str] = []
    for path in runs:
        run = open_run(path)
        notes += run.notes
        seconds = generation_times(run.folder.read_metrics())
        if not seconds:
            notes.append(f"{run.name} has recorded no step times and is not shown.")
            continue
        method = run.config.method if run.config else run.name
        rows.setdefault(method, []).extend(seconds)
        counts[method] = counts.get(method, 0) + 1
    if not rows:
        raise RecordError(f"none of {len(runs)} runs has recorded step times, first of all {runs[0]}.")
    notes.append("Wall time: what else the machine did is in it. Runs to be compared must have had it alone.")
    methods = [StepTimes(method=method, num_runs=counts[method], seconds=rows[method]) for method in rows]
    return MeasuredCost(methods=methods, notes=notes)


def cost_analysis_figure(cost: MeasuredCost, predicted: Mapping[str, float] | None = None) -> Figure:
    """Distributions of step times, and median shares of the parts.

    Args:
        cost: What was measured.
        predicted: Seconds per step by method that a cost model expects, drawn as hollow diamonds.
    """
    with matplotlib.rc_context(PAPER):
        figure = Figure(figsize=(PAGE_WIDTH, 1.25 + 0.27 * len(cost.methods)))
        figure.set_layout_engine("constrained", w_pad=0.05, h_pad=0.05)
        times, shares = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        _draw_times(times, cost.methods, predicted or {})
        _draw_shares(shares, cost.methods)
        times.set_yticks(range(len(cost.methods)), [method.method for method in cost.methods])
        times.set_ylim(len(cost.methods) - 0.4, -0.6)
        key = [Patch(facecolor=_PART_COLOURS[p], hatch=_HATCHES[p], edgecolor="white", label=p) for p in PARTS]
        figure.legend(handles=key, loc="outside upper right", ncols=4, frameon=False, handlelength=1.2)
        count = sum(len(method.seconds) for method in cost.methods)
        num_runs = sum(method.num_runs for method in cost.methods)
        add_caption(
            figure,
            f"n = {count:,} generations of {num_runs} runs. Boxes: quartiles. Whiskers: 5, 95 %. Numbers: medians.",
        )
    return figure


def _draw_times(axes: Axes, methods: Sequence[StepTimes], predicted: Mapping[str, float]) -> None:
    axes.set_title("Seconds per optimiser step")
    boxes = axes.boxplot(
        [method.steps for method in methods], positions=range(len(methods)), orientation="horizontal", widths=0.5,
        whis=(5, 95), showfliers=False, patch_artist=True, manage_ticks=False, medianprops={"color": "white"},
    )  # fmt: skip
    for y, (method, box) in enumerate(zip(methods, boxes["boxes"], strict=True)):
        box.set(facecolor=method_colour(method.method), edgecolor=INK, linewidth=0.6)
        axes.annotate(f"{np.median(method.steps):.2f} s", (np.quantile(method.steps, 0.95), y), (4, 0),
                      textcoords="offset points", va="center", size=6.5)  # fmt: skip
        if method.method in predicted:
            axes.plot(predicted[method.method], y, "D", markerfacecolor="white", color=INK, markersize=5, zorder=4)
    axes.set_xlim(left=0)
    axes.margins(x=0.15)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def _draw_shares(axes: Axes, methods: Sequence[StepTimes]) -> None:
    axes.set_title("Median share of each part")
    for y, method in enumerate(methods):
        left = 0.0
        for part in PARTS:
            width = method.share(part)
            axes.barh(y, width, left=left, height=0.5, color=_PART_COLOURS[part], hatch=_HATCHES[part],
                      edgecolor="white", linewidth=0.5)  # fmt: skip
            left += width
        axes.annotate(f"gar {method.share('gar'):.1%}", (left, y), (3, 0), textcoords="offset points", va="center",
                      size=6.5)  # fmt: skip
    axes.set_xlim(0, 1.25)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)


def cost_output(cost: MeasuredCost, predicted: Mapping[str, float] | None = None) -> Output:
    """What the command writes and shows."""
    quantiles = (0.05, 0.5, 0.95)
    data = [(m.method, row) for m in cost.methods for row in m.seconds]
    return Output(
        name="cost",
        title=f"Seconds per optimiser step: n = {len(data):,} generations",
        headings=("method", "runs", "n", *(f"{q:.0%}" for q in quantiles), *(f"{part}, share" for part in PARTS)),
        rows=[
            (
                m.method, m.num_runs, len(m.seconds), *np.quantile(m.steps, quantiles).tolist(),
                *(f"{m.share(part):.1%}" for part in PARTS),
            )
            for m in cost.methods
        ],
        data=pa.table(
            {"method": [method for method, _ in data]}
            | {f"{part}_seconds": [row.get(part, 0.0) for _, row in data] for part in ("step", *PARTS)}
        ),
        figure=cost_analysis_figure(cost, predicted),
        notes=cost.notes,
    )  # fmt: skip
