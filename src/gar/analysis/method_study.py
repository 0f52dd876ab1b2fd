"""Does a similarity follow the method of a solution or its wording? The paper's table, with a control for wording.

Pairs of right solutions to one problem, by whether they share the method and whether they share the wording. Four
similarities: gradient-activation vectors (GAR's), gradients without activation weighting, hidden states, text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gar.analysis.intervals import ClusteredMean, clustered_mean
from gar.analysis.outputs import Output
from gar.analysis.policies import Policy
from gar.analysis.solutions import SIMILARITIES, LabelledSolution, similarities, solution_pairs, solution_sequences
from gar.analysis.solutions import embedded_solutions as embedded_solutions  # part of this module's interface
from gar.analysis.solutions import read_solutions as read_solutions
from gar.analysis.style import COLOURS, MUTED, add_caption, bare_rows, paper_figure
from gar.errors import DataError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

SAME, OTHER = "same method", "other method"
_NUM_RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """How far a similarity follows the method, and how far the wording, within pairs of two methods.

    Attributes:
        ratio: Mean over pairs of the same method over the mean over these pairs, and its 95 % bootstrap interval over
            problems; NaN where a mean is not positive in every resample.
        method_effect: Same method minus these pairs at equal wording, by problem.
        wording_effect: Same wording minus other wording within these pairs, by problem.
    """

    ratio: tuple[float, float, float]
    method_effect: ClusteredMean
    wording_effect: ClusteredMean


@dataclass(frozen=True, kw_only=True, slots=True)
class SimilarityRow:
    """What one similarity follows.

    Attributes:
        similarity: Its name in `SIMILARITIES`.
        cells: Mean similarity by (method, same wording). The method is `SAME` for pairs of one method, `OTHER` for
            pairs of two, and the other method's name where there is an expert and several others.
        contrasts: By other method, as in `cells`.
    """

    similarity: str
    cells: dict[tuple[str, bool], ClusteredMean]
    contrasts: dict[str, Contrast]


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodStudy:
    """The table, and a row of data for each pair."""

    policy: str
    num_problems: int
    num_pairs: int
    expert: str | None
    rows: Sequence[SimilarityRow]
    data: pa.Table
    notes: Sequence[str]

    @property
    def counts(self) -> str:
        """`n = 27 pairs of right solutions to 3 problems, one of each pair by stepwise`."""
        by_expert = f", one of each pair by {self.expert}" if self.expert else ""
        return f"n = {self.num_pairs:,} pairs of right solutions to {self.num_problems:,} problems{by_expert}"


def method_study(policy: Policy, solutions: Sequence[LabelledSolution], *, expert: str | None = None) -> MethodStudy:
    """Similarities of all pairs of different solutions to one problem.

    Args:
        policy: Model whose gradients are compared.
        solutions: Right solutions, several to a problem.
        expert: Only pairs with at least one solution by this method; None: all pairs.

    Raises:
        DataError: No problem has two solutions, or none by the expert's method.
    """
    sequences = solution_sequences(policy, solutions)
    usable = [i for i, sequence in enumerate(sequences) if sequence.positions]
    pairs = [(usable[i], usable[j]) for i, j in solution_pairs([solutions[i] for i in usable], expert)]
    if not pairs:
        of_expert = f" with one by '{expert}'" if expert else ""
        raise DataError(f"no pair of solutions to one problem{of_expert} among {len(solutions)} solutions.")
    left, right = np.array(pairs).T
    labels = {
        name: np.array([str(getattr(s, name)) for s in solutions]) for name in ("problem_id", "method", "wording")
    }
    problem, method, wording = labels["problem_id"][left], labels["method"], labels["wording"]
    same_method, same_wording = method[left] == method[right], wording[left] == wording[right]
    masks = {SAME: same_method, OTHER: ~same_method}
    others = sorted({*method[left], *method[right]} - {expert})
    if expert and len(others) > 1:
        masks |= {name: ~same_method & ((method[left] == name) | (method[right] == name)) for name in others}
    similarity = similarities(policy, sequences, left, right)
    notes = list(policy.notes)
    if len(usable) < len(solutions):
        notes.append(f"{len(solutions) - len(usable)} of {len(solutions)} solutions have no token to score.")
    if all(solution.wording is None for solution in solutions):
        notes.append(
            "No solution says its wording: all count as the same, and method and wording cannot be told apart."
        )
    data = {
        "problem_id": problem, "method_a": method[left], "wording_a": wording[left], "method_b": method[right],
        "wording_b": wording[right], "same_method": same_method, "same_wording": same_wording, **similarity,
    }  # fmt: skip
    return MethodStudy(
        policy=policy.name,
        num_problems=len(np.unique(problem)),
        num_pairs=len(pairs),
        expert=expert,
        rows=[_row(name, values, problem, masks, same_wording) for name, values in similarity.items()],
        data=pa.table({name: pa.array(values.tolist()) for name, values in data.items()}),
        notes=notes,
    )


def _row(
    similarity: str, values: Floats, problem: NDArray, masks: dict[str, Flags], same_wording: Flags
) -> SimilarityRow:
    problems, index = np.unique(problem, return_inverse=True)
    cells = {
        (method, same): mask & (same_wording == same) & np.isfinite(values)
        for method, mask in masks.items()
        for same in (True, False)
    }
    sums = {cell: np.bincount(index[mask], values[mask], len(problems)) for cell, mask in cells.items()}
    counts = {cell: np.bincount(index[mask], minlength=len(problems)) for cell, mask in cells.items()}
    with np.errstate(invalid="ignore"):
        means = {cell: sums[cell] / counts[cell] for cell in cells}  # NaN for a problem without such pairs
    contrasts = {}
    for method in list(masks)[1:]:  # SAME comes first
        effects = np.ma.masked_invalid([means[SAME, same] - means[method, same] for same in (True, False)])
        contrasts[method] = Contrast(
            ratio=_ratio(
                np.stack([sums[name, True] + sums[name, False] for name in (SAME, method)]),
                np.stack([counts[name, True] + counts[name, False] for name in (SAME, method)]),
            ),
            method_effect=clustered_mean(effects.mean(0).filled(np.nan), problems),
            wording_effect=clustered_mean(means[method, True] - means[method, False], problems),
        )
    return SimilarityRow(
        similarity=similarity,
        cells={cell: clustered_mean(values[mask], index[mask]) for cell, mask in cells.items()},
        contrasts=contrasts,
    )


def _ratio(sums: NDArray, counts: NDArray) -> tuple[float, float, float]:
    """Ratio of two means over pairs with its bootstrap interval; `sums` and `counts` of the pairs are [2, problems]."""
    num_problems = sums.shape[1]
    draws = np.random.default_rng(0).integers(0, num_problems, (_NUM_RESAMPLES, num_problems))
    draws = np.concatenate([np.arange(num_problems)[None], draws])
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums[:, draws].sum(-1) / counts[:, draws].sum(-1)
    if not (means > 0).all():
        return (np.nan, np.nan, np.nan)
    ratio, *resampled = means[0] / means[1]
    low, high = np.quantile(resampled, (0.025, 0.975))
    return float(ratio), float(low), float(high)


# ------------------------------------------------------------------------------------------------------------- figure


def method_study_figure(study: MethodStudy) -> Figure:
    """A panel for each similarity: the mean of each cell with its interval."""
    shown = _shown(study)
    with paper_figure(1.35 + 0.2 * len(shown)) as figure:
        panels = figure.subplots(1, len(study.rows), sharey=True)
        for axes, row in zip(panels, study.rows, strict=True):
            _draw_cells(axes, row, shown)
        panels[0].set_yticks(range(len(shown)), [_cell_name(cell) for cell in shown])
        panels[0].set_ylim(len(shown) - 0.5, -0.6)
        add_caption(figure, f"{study.policy}: {study.counts}. Filled: same words. Bars: 95 % intervals over problems.")
    return figure


def _shown(study: MethodStudy) -> list[tuple[str, bool]]:
    """Cells with values; all other methods together only where they are not shown one by one."""
    one_by_one = len(study.rows[0].contrasts) > 1
    cells = [cell for cell, mean in study.rows[0].cells.items() if mean.num_values]
    return [cell for cell in cells if not (one_by_one and cell[0] == OTHER)]


def _cell_name(cell: tuple[str, bool]) -> str:
    return f"{cell[0]}, {'same' if cell[1] else 'other'} words"


def _draw_cells(axes: Axes, row: SimilarityRow, shown: Sequence[tuple[str, bool]]) -> None:
    axes.set_title(SIMILARITIES[row.similarity])
    axes.axvline(0, color=MUTED, linewidth=0.7)
    for y, cell in enumerate(shown):
        mean = row.cells[cell]
        colour, marker = (COLOURS[0], "o") if cell[0] == SAME else (COLOURS[4], "s")
        if np.isfinite(mean.low):
            axes.plot([mean.low, mean.high], [y, y], color=colour, linewidth=1.6)
        axes.plot(mean.mean, y, marker, color=colour, markersize=5, markerfacecolor=colour if cell[1] else "white")
        axes.annotate(f"{mean.mean:.2f}", (mean.mean, y), (0, 4.5), textcoords="offset points", ha="center", size=6)
    axes.margins(x=0.18)
    axes.set_xlabel("cosine" if row.similarity != "text" else "1 - edits / length")
    bare_rows(axes)


def method_study_output(study: MethodStudy) -> Output:
    """What the command writes and shows."""
    first = study.rows[0]
    rows = [
        (_cell_name(cell), *(str(row.cells[cell]) for row in study.rows))
        for cell, mean in first.cells.items()
        if mean.num_values
    ]
    for name in first.contrasts:
        contrasts = [row.contrasts[name] for row in study.rows]
        rows += [
            (f"ratio, same method / {name}", *(_ratio_text(contrast.ratio) for contrast in contrasts)),
            (f"method, against {name}", *(str(contrast.method_effect) for contrast in contrasts)),
            (f"wording, within {name}", *(str(contrast.wording_effect) for contrast in contrasts)),
        ]
    notes = [*study.notes, "method: same minus other method at equal wording. wording: same minus other wording."]
    if any(np.isnan(contrast.ratio[0]) for row in study.rows for contrast in row.contrasts.values()):
        notes.append("A ratio is '-' where a mean is not positive in every resample: differences say more there.")
    return Output(
        name="method-study",
        title=f"What similarities follow, {study.policy}: {study.counts}",
        headings=("", *(SIMILARITIES[row.similarity] for row in study.rows)),
        rows=rows,
        data=study.data,
        figure=method_study_figure(study),
        notes=notes,
    )


def _ratio_text(ratio: tuple[float, float, float]) -> str:
    return "-" if np.isnan(ratio[0]) else f"{ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]"
