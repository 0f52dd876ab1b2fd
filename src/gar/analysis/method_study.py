"""Does a similarity follow the method of a solution or its wording? The paper's table, with a control for wording.

Pairs of right solutions to one problem, by whether they share the method and whether they share the wording. Four
similarities: gradient-activation vectors (GAR's), gradients without activation weighting, hidden states, text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
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
from gar.analysis.style import COLOURS, MUTED, PAGE_WIDTH, PAPER, add_caption, bare_rows
from gar.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

SAME, OTHER = "same method", "other method"
_NUM_RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """What tells one method from the expert's, and wordings from each other.

    Attributes:
        ratio: Mean over pairs of the same method over that of these, and its 95 % bootstrap interval over problems;
            NaN where a mean is not positive in every resample.
        method_effect: Same method minus this one at equal wording, of each problem.
        wording_effect: Same wording minus other wording within these pairs, of each problem.
    """

    ratio: tuple[float, float, float]
    method_effect: ClusteredMean
    wording_effect: ClusteredMean


@dataclass(frozen=True, kw_only=True, slots=True)
class SimilarityRow:
    """What one similarity follows.

    Attributes:
        cells: Mean similarity by (other method, same wording); `SAME` for pairs of one method, `OTHER` for all pairs of
            two, and each other method by itself where there is an expert and several others.
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


def method_study(policy: Policy, solutions: Sequence[LabelledSolution], *, expert: str | None = None) -> MethodStudy:
    """Similarities of all pairs of different solutions to one problem.

    Args:
        policy: Whose gradients.
        solutions: Right solutions, several to a problem.
        expert: Only pairs with at least one solution by this method; None all pairs.

    Raises:
        DataError: No problem has two solutions, or none by the expert's method.
    """
    sequences = solution_sequences(policy, solutions)
    usable = [i for i, sequence in enumerate(sequences) if sequence.positions]
    pairs = solution_pairs([solutions[i] for i in usable], expert)
    pairs = [(usable[i], usable[j]) for i, j in pairs]
    if not pairs:
        of_expert = f" with one by '{expert}'" if expert else ""
        raise DataError(f"no pair of solutions to one problem{of_expert} among {len(solutions)} solutions.")
    left, right = np.array(pairs).T
    similarity = similarities(policy, sequences, left, right)
    problem = np.array([solution.problem_id for solution in solutions])[left]
    method, wording = (np.array([str(getattr(s, name)) for s in solutions]) for name in ("method", "wording"))
    same_method, same_wording = method[left] == method[right], wording[left] == wording[right]
    notes = list(policy.notes)
    if len(usable) < len(solutions):
        notes.append(f"{len(solutions) - len(usable)} of {len(solutions)} solutions have no token to score.")
    if all(solution.wording is None for solution in solutions):
        notes.append(
            "No solution says its wording: all count as the same, and method and wording cannot be told apart."
        )
    others = {OTHER: ~same_method}
    found = sorted({*method[left], *method[right]} - {expert})
    if expert and len(found) > 1:
        others |= {name: ~same_method & ((method[left] == name) | (method[right] == name)) for name in found}
    masks = {SAME: same_method, **others}
    rows = [_row(name, values, problem, masks, same_wording) for name, values in similarity.items()]
    data = {
        "problem_id": problem, "method_a": method[left], "wording_a": wording[left], "method_b": method[right],
        "wording_b": wording[right], "same_method": same_method, "same_wording": same_wording, **similarity,
    }  # fmt: skip
    return MethodStudy(
        policy=policy.name,
        num_problems=len(np.unique(problem)),
        num_pairs=len(pairs),
        expert=expert,
        rows=rows,
        data=pa.table({name: pa.array(values.tolist()) for name, values in data.items()}),
        notes=notes,
    )


def _row(name: str, values: Floats, problem: NDArray, masks: dict[str, Flags], same_wording: Flags) -> SimilarityRow:
    problems, index = np.unique(problem, return_inverse=True)
    wordings = {True: same_wording, False: ~same_wording}
    by_problem = {
        (method, same): _means(values, index, mask & wording, len(problems))
        for method, mask in masks.items()
        for same, wording in wordings.items()
    }
    contrasts = {}
    for method, mask in masks.items():
        if method == SAME:
            continue
        effects = np.stack([by_problem[SAME, same] - by_problem[method, same] for same in wordings])
        known = np.isfinite(effects)
        effect = np.where(known, effects, 0).sum(0) / np.where(known.any(0), known.sum(0), np.nan)
        contrasts[method] = Contrast(
            ratio=_ratio(values, index, masks[SAME], mask, len(problems)),
            method_effect=clustered_mean(effect, problems),
            wording_effect=clustered_mean(by_problem[method, True] - by_problem[method, False], problems),
        )
    return SimilarityRow(
        similarity=name,
        cells={
            (method, same): clustered_mean(values[mask & wording], index[mask & wording])
            for method, mask in masks.items()
            for same, wording in wordings.items()
        },
        contrasts=contrasts,
    )


def _means(values: Floats, index: Ints, mask: Flags, count: int) -> Floats:
    """Mean of each problem over its pairs in `mask`; NaN where it has none."""
    use = mask & np.isfinite(values)
    counts = np.bincount(index[use], minlength=count)
    sums = np.bincount(index[use], values[use], count)
    return np.divide(sums, counts, out=np.full(count, np.nan), where=counts > 0)


def _ratio(values: Floats, index: Ints, same: Flags, other: Flags, count: int) -> tuple[float, float, float]:
    use = np.isfinite(values)
    masks = [use & same, use & other]
    counts = np.stack([np.bincount(index[mask], minlength=count) for mask in masks])
    sums = np.stack([np.bincount(index[mask], values[mask], count) for mask in masks])
    draws = np.random.default_rng(0).integers(0, count, (_NUM_RESAMPLES, count))
    draws = np.concatenate([np.arange(count)[None], draws])
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums[:, draws].sum(-1) / counts[:, draws].sum(-1)
        if not (means > 0).all():
            return (np.nan, np.nan, np.nan)
        ratios = means[0] / means[1]
    low, high = np.quantile(ratios[1:], (0.025, 0.975))
    return float(ratios[0]), float(low), float(high)


# ------------------------------------------------------------------------------------------------------------- figure


def method_study_figure(study: MethodStudy) -> Figure:
    """A panel for each similarity: the mean of each cell with its interval."""
    shown = _shown(study)
    with matplotlib.rc_context(PAPER):
        figure = Figure(figsize=(PAGE_WIDTH, 1.35 + 0.2 * len(shown)))
        figure.set_layout_engine("constrained", w_pad=0.05, h_pad=0.05)
        panels = figure.subplots(1, len(study.rows), sharey=True)
        for axes, row in zip(panels, study.rows, strict=True):
            _draw_cells(axes, row, shown)
        panels[0].set_yticks(range(len(shown)), [_cell_name(cell) for cell in shown])
        panels[0].set_ylim(len(shown) - 0.5, -0.6)
        add_caption(
            figure,
            f"{study.policy}: n = {study.num_pairs:,} pairs of right solutions to {study.num_problems:,} problems"
            + (f", one of each pair by {study.expert}" if study.expert else "")
            + ". Filled: same words. Bars: 95 % intervals over problems.",
        )
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
    pairs = f", one of each by {study.expert}" if study.expert else ""
    return Output(
        name="method-study",
        title=f"What similarities follow, {study.policy}: n = {study.num_pairs:,} pairs of solutions to "
        f"{study.num_problems:,} problems{pairs}",
        headings=("", *(SIMILARITIES[row.similarity] for row in study.rows)),
        rows=rows,
        data=study.data,
        figure=method_study_figure(study),
        notes=notes,
    )


def _ratio_text(ratio: tuple[float, float, float]) -> str:
    return "-" if np.isnan(ratio[0]) else f"{ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]"
