"""One problem in gradient space: the responses' vectors and the anchor's, in the two directions that show most."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import matplotlib
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gar.analysis.outputs import Output
from gar.analysis.policies import Policy, SequenceGroup, read_sequences, recorded_groups, sampled_groups
from gar.analysis.style import COLUMN_WIDTH, INK, MUTED, PAPER, add_caption
from gar.core import unit_rows
from gar.errors import DataError
from gar.scoring import signal_means

Floats = NDArray[np.float64]

_MAX_PROBLEMS = 12
"""Among so many problems the one to show is chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientSpace:
    """Responses to one problem, as the plane around the anchor shows them.

    Attributes:
        policy: Name of the model or run.
        problem_id: The problem.
        origin: Where the responses come from, in words.
        points: [responses, 2]; the anchor lies at 0.
        alignment: Cosine of each response with the anchor.
        eligible: Right and in format; the others are gated: no bonus, whatever their alignment.
        texts: The responses.
        shown_fraction: Share of the squared distances from the anchor that the two directions show.
        num_without_signal: Responses left out, without a usable vector.
        notes: What it cannot show.
    """

    policy: str
    problem_id: str
    origin: str
    points: Floats
    alignment: Floats
    eligible: NDArray[np.bool_]
    texts: Sequence[str]
    shown_fraction: float
    num_without_signal: int
    notes: Sequence[str]

    @property
    def threshold(self) -> float:
        """Mean alignment of the correct responses, above which there is a bonus; NaN where none is correct."""
        return float(self.alignment[self.eligible].mean()) if self.eligible.any() else np.nan


def anchored_plane(vectors: Floats, anchor: Floats) -> tuple[Floats, float]:
    """PCA around the anchor: the two directions with the largest sum of squared distances from it.

    With X the rows `v_i - v_a` and X = U S V^T: coordinates `U S` of the two largest, `sum of their S^2 / sum of all`.
    Signs are such that the mean coordinate is positive.

    Args:
        vectors: [responses, hidden].
        anchor: [hidden].

    Returns:
        [responses, 2] and the share of the squared distances that it shows, 1 where all are 0.
    """
    offsets = np.asarray(vectors, np.float64) - np.asarray(anchor, np.float64)
    left, sizes, _ = np.linalg.svd(offsets, full_matrices=False)
    points = np.zeros((len(offsets), 2))
    count = min(2, len(sizes))
    points[:, :count] = left[:, :count] * sizes[:count]
    points *= np.where(points.mean(0) < 0, -1.0, 1.0)
    total = np.square(sizes).sum()
    return points, float(np.square(sizes[:2]).sum() / total) if total else 1.0


def gradient_space(
    policy: Policy, *, problem_id: str | None = None, num_samples: int = 64, step: int | None = None, seed: int = 0
) -> GradientSpace:
    """Vectors of the responses to one problem under the policy as it is.

    Args:
        policy: A run's or a model.
        problem_id: Which problem; None: of a few, the one with most different correct responses.
        num_samples: Fresh responses to draw; 0 takes the recorded ones of `step`.
        step: Of the recorded ones; None the last.
        seed: Of the sampling.

    Raises:
        DataError: No problem with that id, or none with an expert solution, or nothing of it can be scored.
        RecordError: Recorded responses are asked for and not there.
    """
    anchored = {problem.id: problem for problem in policy.with_anchors()}
    if problem_id is not None and problem_id not in anchored:
        first = ", ".join(list(anchored)[:3])
        raise DataError(
            f"no problem '{problem_id}' with an expert solution in {policy.config.data.source}; try {first}"
        )
    if num_samples:
        chosen = [anchored[problem_id]] if problem_id else list(anchored.values())[:_MAX_PROBLEMS]
        found = sampled_groups(policy, chosen, num_samples=num_samples, seed=seed)
        origin = f"{num_samples} fresh responses"
    else:
        step, found = recorded_groups(policy, step)
        found = [group for group in found if problem_id in (None, group.id)]
        origin = f"rollouts of step {step}"
    spaces = [_space(policy, group, origin) for group in read_sequences(policy, found)]
    if not spaces:
        raise DataError(f"{policy.name}: none of {len(found)} problems has responses and an anchor that can be scored.")
    best = max(spaces, key=_interest)
    if len(spaces) == 1:
        return best
    chosen = f"Chosen among {len(spaces)} problems for its many different correct responses."
    return replace(best, notes=[*best.notes, chosen])


def _interest(space: GradientSpace) -> tuple[int, int]:
    """How many different correct responses there are, and how many gated ones."""
    texts = {eligible: set() for eligible in (True, False)}
    for text, eligible in zip(space.texts, space.eligible.tolist(), strict=True):
        texts[eligible].add(text)
    return len(texts[True]), len(texts[False])


def _space(policy: Policy, group: SequenceGroup, origin: str) -> GradientSpace:
    means = signal_means(policy.parts, [*group.sequences, group.anchor], policy.signal)
    vectors = unit_rows(means).double().cpu().numpy()
    usable = (vectors[:-1] != 0).any(-1)
    points, shown = anchored_plane(vectors[:-1][usable], vectors[-1])
    eligible = np.array(group.eligible, dtype=bool)[usable]
    notes = [*policy.notes]
    if not (vectors[-1] != 0).any():
        notes.append("The anchor has no usable vector: alignment is 0 and the origin is no direction.")
    if not eligible.any():
        notes.append("No response is correct: all are gated, and none gets a bonus.")
    if not usable.all():
        notes.append(f"{(~usable).sum()} of {len(usable)} responses have no usable vector and are not shown.")
    return GradientSpace(
        policy=policy.name,
        problem_id=group.problem.id,
        origin=origin,
        points=points,
        alignment=vectors[:-1][usable] @ vectors[-1],
        eligible=eligible,
        texts=[text for text, use in zip(group.texts, usable, strict=True) if use],
        shown_fraction=shown,
        num_without_signal=int((~usable).sum()),
        notes=notes,
    )


def gradient_space_figure(space: GradientSpace) -> Figure:
    """The plane, at the width of a column."""
    with matplotlib.rc_context(PAPER):
        figure = Figure(figsize=(COLUMN_WIDTH, 3.1))
        figure.set_layout_engine("constrained", w_pad=0.05, h_pad=0.05)
        axes = figure.subplots()
        _draw_points(figure, axes, space)
        axes.plot(0, 0, "*", markersize=13, color="#D55E00", markeredgecolor="white", markeredgewidth=0.7, zorder=5)
        axes.annotate("anchor", (0, 0), (0, 8), textcoords="offset points", ha="center", color="#D55E00", zorder=6)
        axes.set_xlabel("first direction from the anchor")
        axes.set_ylabel("second direction")
        axes.margins(0.09)
        axes.set_aspect("equal", "datalim")
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False, handletextpad=0.1,
            columnspacing=0.7,
        )  # fmt: skip
        add_caption(
            figure,
            f"{space.policy}, problem {space.problem_id}: n = {len(space.points)} ({space.origin}).\n"
            f"The plane shows {space.shown_fraction:.0%} of the squared distances.",
        )
    return figure


def _draw_points(figure: Figure, axes: Axes, space: GradientSpace) -> None:
    """Shape says who gets a bonus, colour how far it aligns. Equal responses lie on each other: size tells how many."""
    counts = {text: space.texts.count(text) for text in space.texts}
    sizes = np.array([14 + 10 * np.sqrt(counts[text] - 1) for text in space.texts])
    high = space.eligible & (space.alignment > space.threshold)
    groups = (
        ("correct, bonus", high, "^", INK),
        ("correct, no bonus", space.eligible & ~high, "o", INK),
        ("gated", ~space.eligible, "X", MUTED),
    )
    norm = Normalize(min(-0.2, space.alignment.min(initial=0)), max(0.2, space.alignment.max(initial=0)))
    shades = None
    for label, mask, marker, edge in groups:
        if mask.any():
            shades = axes.scatter(
                *space.points[mask].T, c=space.alignment[mask], cmap="cividis", norm=norm, marker=marker,
                s=sizes[mask], edgecolors=edge, linewidths=0.4, label=f"{label} ({mask.sum()})", zorder=3,
            )  # fmt: skip
    if shades is not None:
        bar = figure.colorbar(shades, ax=axes, shrink=0.85, aspect=28, pad=0.02)
        bar.set_label("alignment (cosine)")
        if np.isfinite(space.threshold):
            bar.ax.axhline(space.threshold, color="white", linewidth=1.5)


def gradient_space_output(space: GradientSpace) -> Output:
    """What the command writes and shows."""
    high = space.eligible & (space.alignment > space.threshold)
    rows = []
    parts = (("correct, bonus", high), ("correct, no bonus", space.eligible & ~high), ("gated", ~space.eligible))
    for label, mask in parts:
        values, distances = space.alignment[mask], np.linalg.norm(space.points[mask], axis=1)
        rows.append(
            (
                label, int(mask.sum()), len({text for text, use in zip(space.texts, mask, strict=True) if use}),
                *((float(values.mean()), float(values.min()), float(values.max()), float(distances.mean()))
                  if len(values) else (None,) * 4),
            )
        )  # fmt: skip
    return Output(
        name="gradient-space",
        title=f"Problem {space.problem_id} in the gradient space of {space.policy}: n = {len(space.points)}",
        headings=("", "n", "different", "mean alignment", "lowest", "highest", "distance in the plane"),
        rows=rows,
        data=pa.table(
            {
                "x": space.points[:, 0], "y": space.points[:, 1], "alignment": space.alignment,
                "eligible": space.eligible, "bonus": high, "response": list(space.texts),
            }
        ),
        figure=gradient_space_figure(space),
        notes=space.notes,
    )  # fmt: skip
