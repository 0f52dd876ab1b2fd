"""How the alignment of correct responses changes over training: histograms of some steps, the mean of every step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gar.analysis.intervals import ClusteredMean, clustered_mean
from gar.analysis.style import COLORS, INK, add_caption, paper_figure, say_not_recorded
from gar.errors import RecordError
from gar.records import Run

Floats = NDArray[np.float64]

_COLUMNS = ("step", "group_index", "eligible", "alignment")
_BINS = 25
_NUM_WINDOWS = 4
_WINDOW_FRACTION = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Consecutive steps: the alignments of their correct responses, and the mean with an interval over groups."""

    first_step: int
    last_step: int
    alignments: Floats
    mean: ClusteredMean

    @property
    def label(self) -> str:
        """`steps 1 to 5`."""
        if self.first_step == self.last_step:
            return f"step {self.first_step}"
        return f"steps {self.first_step} to {self.last_step}"


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignmentCourse:
    """Alignment over training.

    Attributes:
        run: Name of the run.
        steps: All steps with rollouts.
        means: Mean alignment of each step.
        windows: Steps that the histograms show.
        num_correct: Correct responses of the run: right and in format.
        num_scored: Correct responses that have an alignment.
        alignments: Those of all scored correct responses.
        notes: What the data cannot show.
    """

    run: str
    steps: Sequence[int]
    means: Sequence[ClusteredMean]
    windows: Sequence[Window]
    num_correct: int
    num_scored: int
    alignments: Floats
    notes: Sequence[str]


def alignment_course(
    run: Run, *, at_steps: Sequence[int] | None = None, window_steps: int | None = None
) -> AlignmentCourse:
    """Alignments of the correct responses of a run, as they were recorded.

    Args:
        run: The run.
        at_steps: First steps of the histograms; None: four, spread evenly from the first step to the last.
        window_steps: Recorded steps in one histogram; None: a tenth of the run.

    Raises:
        RecordError: The run has no rollouts, or, if it was opened strictly, they are damaged.
        ValueError: `window_steps` is not positive.
    """
    table = run.rollouts(_COLUMNS)
    if not len(table):
        raise RecordError(f"{run.path}: no rollouts, so there is nothing to analyze. Has its first step not ended yet?")
    steps = list(run.num_rows)
    step, group, eligible = (table[name].to_numpy() for name in ("step", "group_index", "eligible"))
    alignment = table["alignment"].to_numpy(zero_copy_only=False).astype(np.float64)
    scored = eligible & np.isfinite(alignment)
    key = step * (int(group.max(initial=0)) + 1) + group  # a group of one step is a cluster

    def window(first: int, last: int) -> Window:
        rows = slice(*np.searchsorted(step, (first, last + 1)))  # rollouts are read step by step
        use = scored[rows]
        values = alignment[rows][use]
        return Window(first_step=first, last_step=last, alignments=values, mean=clustered_mean(values, key[rows][use]))

    num_correct, num_scored = int(eligible.sum()), int(scored.sum())
    return AlignmentCourse(
        run=run.name,
        steps=steps,
        means=[window(number, number).mean for number in steps],
        windows=[window(*ends) for ends in _windows(steps, at_steps, window_steps)],
        num_correct=num_correct,
        num_scored=num_scored,
        alignments=alignment[scored],
        notes=[*run.notes, *_notes(num_correct, num_scored)],
    )


def _notes(num_correct: int, num_scored: int) -> list[str]:
    if not num_correct:
        return ["No response is correct, and only correct responses are shown: nothing to show."]
    if not num_scored:
        return ["No correct response has an alignment: its method scores none, or its problems have no anchors."]
    if num_scored == num_correct:
        return []
    return [
        f"{num_correct - num_scored:,} of {num_correct:,} correct responses have no alignment: they are alone in their "
        "group, or have no anchor or no signal."
    ]


def _windows(steps: Sequence[int], at_steps: Sequence[int] | None, window_steps: int | None) -> list[tuple[int, int]]:
    """First and last step of each histogram."""
    size = max(1, round(len(steps) * _WINDOW_FRACTION)) if window_steps is None else window_steps
    if size < 1:
        raise ValueError(f"window_steps must be at least 1, got {window_steps}")
    if at_steps is None:
        starts = np.unique(np.linspace(0, max(0, len(steps) - size), _NUM_WINDOWS).round().astype(int)).tolist()
    else:
        starts = [min(int(np.searchsorted(steps, step)), len(steps) - 1) for step in at_steps]
    return [(steps[start], steps[min(start + size, len(steps)) - 1]) for start in starts]


def alignment_figure(course: AlignmentCourse) -> Figure:
    """Histograms above, the mean of every step below."""
    with paper_figure(3.5) as figure:
        rows = GridSpec(2, 1, figure, height_ratios=(1.15, 1))
        above, below = figure.add_subfigure(rows[0]), figure.add_subfigure(rows[1])
        panels = np.atleast_1d(above.subplots(1, max(1, len(course.windows)), sharex=True, sharey=True))
        edges = np.linspace(*_range(course.alignments), _BINS + 1)
        for axes, window in zip(panels, course.windows, strict=False):
            _draw_histogram(axes, window, edges)
        panels[0].set_ylabel("share of responses")
        panels[0].margins(y=0.28)
        above.supxlabel("alignment (cosine with the expert solution)", size=7.5, color=INK)
        _draw_course(below.subplots(), course)
        groups = sum(mean.num_clusters for mean in course.means)
        add_caption(
            below,
            f"{course.run}: n = {course.num_scored:,} correct responses with an alignment, in {groups:,} groups. "
            "Band: 95% interval over groups.",
        )
    return figure


def _draw_histogram(axes: Axes, window: Window, edges: Floats) -> None:
    axes.set_title(window.label)
    count = len(window.alignments)
    if not count:
        axes.text(0.5, 0.5, "none scored", ha="center", transform=axes.transAxes)
        return
    axes.hist(
        window.alignments, edges.tolist(), weights=np.full(count, 1 / count), color=COLORS[5], edgecolor="white",
        linewidth=0.4,
    )  # fmt: skip
    axes.axvline(window.mean.mean, color=INK, linewidth=1.2)
    text = f"mean {window.mean.mean:.2f}\nn = {count:,}"
    axes.text(0.98, 0.97, text, size=6.5, ha="right", va="top", transform=axes.transAxes)
    axes.grid(axis="x", visible=False)


def _range(values: Floats) -> tuple[float, float]:
    """Range of the histogram, rounded outwards to tenths."""
    if not len(values):
        return (-1.0, 1.0)
    return float(np.floor(values.min() * 10) / 10), float(np.ceil(values.max() * 10) / 10 + 1e-9)


def _draw_course(axes: Axes, course: AlignmentCourse) -> None:
    if not course.num_scored:
        say_not_recorded(axes)
        return
    table = np.array([(mean.mean, mean.low, mean.high) for mean in course.means])
    axes.fill_between(course.steps, table[:, 1], table[:, 2], color=COLORS[0], alpha=0.18, linewidth=0)
    axes.plot(course.steps, table[:, 0], ".-", markersize=2.5, color=COLORS[0])
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_ylim(max(-1, np.nanmin(table[:, 0]) - 0.2), min(1, np.nanmax(table[:, 0]) + 0.2))
    for window in course.windows:
        axes.axvspan(window.first_step - 0.5, window.last_step + 0.5, color=COLORS[5], alpha=0.3, linewidth=0)
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("training step")
    axes.set_ylabel("mean alignment")
