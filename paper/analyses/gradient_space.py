"""One problem in gradient space: responses and anchor, projected onto the two directions that explain most.

python -m paper.analyses.gradient_space embedded [--problem ID] [--samples 64] [--out FOLDER]
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gar import DataError
from gar.analysis import INK, MUTED, paper_figure
from gar.core import unit_rows
from gar.scoring import signal_means
from paper.analyses.outputs import COLUMN_WIDTH, Cell, Output, add_caption, present
from paper.analyses.policies import Policy, SequenceGroup, load_policy_of, sampled_groups

Floats = NDArray[np.float64]

_MAX_PROBLEMS = 12
"""Problems to choose from, where none is named."""
_ANCHOR_COLOR = "#D55E00"


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientSpace:
    """Responses to one problem, in a plane through the anchor.

    Attributes:
        policy: Name of the model or run.
        problem_id: The problem.
        points: [responses, 2]. The anchor lies at 0.
        alignment: Cosine of each response with the anchor.
        eligible: Correct and well formatted. The others are gated: no bonus, whatever their alignment.
        texts: The responses.
        shown_fraction: Share of the squared distances from the anchor that the two directions explain.
        notes: What the plane cannot show.
    """

    policy: str
    problem_id: str
    points: Floats
    alignment: Floats
    eligible: NDArray[np.bool_]
    texts: Sequence[str]
    shown_fraction: float
    notes: Sequence[str]

    @property
    def threshold(self) -> float:
        """Mean alignment of the correct responses, above which there is a bonus. NaN if none is correct."""
        return float(self.alignment[self.eligible].mean()) if self.eligible.any() else np.nan

    @property
    def kinds(self) -> dict[str, NDArray[np.bool_]]:
        """Which responses get a bonus, which are correct without one, and which are gated."""
        bonus = self.eligible & (self.alignment > self.threshold)
        return {"correct, bonus": bonus, "correct, no bonus": self.eligible & ~bonus, "gated": ~self.eligible}


def anchored_plane(vectors: Floats, anchor: Floats) -> tuple[Floats, float]:
    """PCA around the anchor: the two directions with the largest sum of squared distances from it.

    With X the rows `v_i - v_a` and X = U S V^T: coordinates `U S` of the two largest, `sum of their S^2 / sum of all`.
    Signs are such that the mean coordinate is positive.

    Args:
        vectors: [responses, hidden].
        anchor: [hidden].

    Returns:
        [responses, 2], and the share of the squared distances that they explain (1 if all are 0).
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
    policy: Policy, *, problem_id: str | None = None, num_samples: int = 64, seed: int = 0
) -> GradientSpace:
    """Vectors of the responses to one problem under the policy as it is.

    Args:
        policy: Policy of a run, or a model.
        problem_id: The problem. None: the one with most distinct correct responses among the first few.
        num_samples: Responses to draw.
        seed: Seed of the sampling.

    Raises:
        DataError: No problem with that id has an expert solution, or nothing can be scored.
    """
    problems = [p for p in policy.with_anchors() if problem_id in (None, p.id)][:_MAX_PROBLEMS]
    if not problems:
        raise DataError(f"no problem '{problem_id}' with an expert solution in {policy.config.data.source}")
    groups = sampled_groups(policy, problems, num_samples=num_samples, seed=seed)
    spaces = [_space(policy, group) for group in groups]
    if not spaces:
        raise DataError(
            f"{policy.name}: none of {len(problems)} problems has responses and an anchor that can be scored."
        )
    best = max(spaces, key=_interest)
    if len(spaces) == 1:
        return best
    note = f"Chosen among {len(spaces)} problems: it has most distinct correct responses."
    return replace(best, notes=[*best.notes, note])


def _interest(space: GradientSpace) -> tuple[int, int]:
    """Number of distinct correct responses, and of distinct gated ones."""
    texts = np.array(space.texts, dtype=object)
    return len(set(texts[space.eligible])), len(set(texts[~space.eligible]))


def _space(policy: Policy, group: SequenceGroup) -> GradientSpace:
    means = signal_means(policy.parts, [*group.sequences, group.anchor], policy.signal)
    vectors = unit_rows(means).double().cpu().numpy()
    usable = (vectors[:-1] != 0).any(-1)
    points, shown = anchored_plane(vectors[:-1][usable], vectors[-1])
    eligible = np.array(group.eligible, dtype=bool)[usable]
    notes = [*policy.notes]
    if not (vectors[-1] != 0).any():
        notes.append("The anchor has no usable vector: every alignment is 0.")
    if not eligible.any():
        notes.append("No response is correct: all are gated, and none gets a bonus.")
    if not usable.all():
        notes.append(f"{(~usable).sum()} of {len(usable)} responses have no usable vector and are not shown.")
    return GradientSpace(
        policy=policy.name,
        problem_id=group.problem.id,
        points=points,
        alignment=vectors[:-1][usable] @ vectors[-1],
        eligible=eligible,
        texts=[text for text, use in zip(group.texts, usable, strict=True) if use],
        shown_fraction=shown,
        notes=notes,
    )


def gradient_space_figure(space: GradientSpace) -> Figure:
    """The plane, at the width of a column."""
    with paper_figure(3.1, COLUMN_WIDTH) as figure:
        axes = figure.subplots()
        _draw_points(figure, axes, space)
        axes.plot(0, 0, "*", markersize=13, color=_ANCHOR_COLOR, markeredgecolor="white", markeredgewidth=0.7, zorder=5)
        axes.annotate("anchor", (0, 0), (0, 8), textcoords="offset points", ha="center", color=_ANCHOR_COLOR, zorder=6)
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
            f"{space.policy}, problem {space.problem_id}: n = {len(space.points)} responses.\n"
            f"The plane shows {space.shown_fraction:.0%} of the squared distances.",
        )
    return figure


def _draw_points(figure: Figure, axes: Axes, space: GradientSpace) -> None:
    """Draw the responses: shape by kind, color by alignment, size by the number of equal responses."""
    sizes = np.array([14 + 10 * np.sqrt(space.texts.count(text) - 1) for text in space.texts])
    norm = Normalize(min(-0.2, space.alignment.min(initial=0)), max(0.2, space.alignment.max(initial=0)))
    shades = None
    for (label, mask), marker, edge in zip(space.kinds.items(), "^oX", (INK, INK, MUTED), strict=True):
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
    """The table, data and figure of the command."""
    texts, distances = np.array(space.texts, dtype=object), np.linalg.norm(space.points, axis=1)
    rows: list[Sequence[Cell]] = []
    for label, mask in space.kinds.items():
        values = space.alignment[mask]
        numbers = [values.mean(), values.min(), values.max(), distances[mask].mean()] if len(values) else [None] * 4
        rows.append((label, len(values), len(set(texts[mask])), *(x if x is None else float(x) for x in numbers)))
    return Output(
        name="gradient-space",
        title=f"Problem {space.problem_id} in the gradient space of {space.policy}: n = {len(space.points)}",
        headings=("", "n", "distinct", "mean alignment", "lowest", "highest", "distance in the plane"),
        rows=rows,
        data=pa.table(
            {
                "x": space.points[:, 0], "y": space.points[:, 1], "alignment": space.alignment,
                "eligible": space.eligible, "bonus": space.kinds["correct, bonus"], "response": list(space.texts),
            }
        ),
        figure=gradient_space_figure(space),
        notes=space.notes,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the analysis."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", metavar="RUN_OR_MODEL")
    parser.add_argument("--problem", metavar="ID", help="default: of the first, that with most distinct right answers")
    parser.add_argument("--samples", type=int, default=64, help="responses to a problem (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="runs/analysis", metavar="FOLDER", help="(%(default)s)")
    options = parser.parse_args(arguments)
    policy = load_policy_of(options.subject)
    space = gradient_space(policy, problem_id=options.problem, num_samples=options.samples, seed=options.seed)
    present(gradient_space_output(space), options.out)


if __name__ == "__main__":
    main()
