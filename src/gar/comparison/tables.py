"""Make tables and curves from results. Missing results stay blank."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from gar.analysis.curves import curves_figure
from gar.comparison.result import Results
from gar.evaluation.paired import Measures, contrasts, problem_counts, scores
from gar.evaluation.text_tables import (
    NONE,
    difference_cells,
    measure_name,
    number_text,
    p_text,
    rows_of,
    ungraded_notes,
)
from gar.records import EvaluatedSet


def comparison_tables(
    results: Results, *, against: Mapping[str, Sequence[str]], seeds: Sequence[int], ks: Sequence[int]
) -> dict[str, pd.DataFrame]:
    """Scores, differences and costs as tables of text, by title. Empty tables are left out.

    p-values are corrected for the planned comparisons of one set and k.

    Args:
        results: Results by label and seed.
        against: The rows in their order, each with the rows that it is tested against.
        seeds: Planned seeds.
        ks: The k of pass@k.
    """
    # `check_paired` has made sure that all results have the same sets.
    sets = next(iter(results.values())).sets if results else {}
    measures: Measures = {set_name: [("pass", k) for k in ks] for set_name in sets}
    counts = problem_counts(
        (label, seed, set_name, part)
        for label in against
        for seed in seeds
        if (label, seed) in results
        for set_name, part in results[label, seed].sets.items()
    )
    # The planned tests count, not the finished ones: else a p-value would rise while cells finish.
    num_tests = sum(map(len, against.values()))
    family = ("set_name", "k")
    differences = contrasts(
        counts, against=against, measures=measures, pair_by="seed", family=family, num_tests=num_tests
    )
    finished = {label: sum(label == name for name, _ in results) for label in against}
    columns = [(set_name, k) for set_name in sets for k in ks]
    tables = [
        _score_table(finished, len(seeds), columns, scores(counts, measures=measures), differences),
        _difference_table(differences, columns, num_tests),
        _cost_table([*against], results),
    ]
    return {title: table for title, table in tables if len(table)}


def row_curves(results: Results) -> Figure:
    """Training curves and final pass@1 of every row with a result. There must be at least one."""
    rows: dict[str, list[Any]] = {}
    for (label, _), result in results.items():
        rows.setdefault(label, []).append(result)
    rates = {
        label: {name: [_share_correct(result.sets[name]) for result in row] for name in row[0].sets}
        for label, row in rows.items()
    }
    curves = {
        label: [
            {
                name: pd.Series(dict(zip(curve["step"], curve["value"], strict=True)), dtype=float)
                for name, curve in result.curves.items()
            }
            for result in row
        ]
        for label, row in rows.items()
    }
    return curves_figure(curves, rates, title="pass@1 after training")


def result_notes(results: Results) -> list[str]:
    """Notes on the numbers: resumed runs, responses that were not graded, mixed versions, machines and time."""
    notes = []
    resumed = [f"{result.label} seed {result.seed}" for result in results.values() if result.resumed]
    if resumed:
        notes.append(f"Interrupted and resumed, so without a cost: {', '.join(resumed)}.")
    evaluated = (
        (f"{result.label} seed {result.seed}", name, part)
        for result in results.values()
        for name, part in result.sets.items()
    )
    notes += [f"{note}." for note in ungraded_notes(evaluated)]
    for name in sorted({name for result in results.values() for name in result.versions}):
        versions = sorted({str(result.versions.get(name)) for result in results.values()})
        if len(versions) > 1:
            notes.append(f"The runs come from different versions of {name}: {', '.join(versions)}.")
    machines = sorted({f"{result.platform}, {result.cpu_count} cores" for result in results.values()})
    if machines:
        wall, cpu = ([getattr(result, f"{kind}_seconds") for result in results.values()] for kind in ("wall", "cpu"))
        notes.append(
            f"{len(results)} runs of {statistics.median(wall):.0f} s each ({statistics.median(cpu):.0f} s of processor "
            f"time, medians), {sum(wall) / 3600:.2f} hours in sum, on {' and '.join(machines)}."
        )
    return notes


def _score_table(
    finished: Mapping[str, int],
    num_seeds: int,
    columns: Sequence[tuple[str, int]],
    scores: pd.DataFrame,
    differences: pd.DataFrame,
) -> tuple[str, pd.DataFrame]:
    cells = {
        (row.label, row.set_name, row.k): f"{row.mean:.3f}" + ("" if pd.isna(row.sd) else f" ± {row.sd:.3f}")
        for row in rows_of(scores)
    }
    for row in rows_of(differences.drop_duplicates(["label", "set_name", "k"])):
        cells[row.label, row.set_name, row.k] += f" ({_relative(row)})" if row.reference else ""
    table = pd.DataFrame({"method": finished.keys()})
    table["seeds"] = [f"{count} of {num_seeds}" if count else "not run" for count in finished.values()]
    for set_name, k in columns:
        table[f"{set_name} pass@{k}"] = [cells.get((label, set_name, k), NONE) for label in finished]
    title = (
        "pass@k after training: mean ± standard deviation over seeds. In brackets: the relative difference from the "
        "method that it is tested against."
    )
    return title, table


def _difference_table(
    differences: pd.DataFrame, columns: Sequence[tuple[str, int]], num_tests: int
) -> tuple[str, pd.DataFrame]:
    rows = []
    for row in sorted(rows_of(differences), key=lambda row: columns.index((row.set_name, row.k))):
        difference, interval, holm, effect, verdict = difference_cells(row)
        name = [measure_name(row), row.label, row.against, row.num_seeds]
        others = [p_text(row.p_t), p_text(row.p_permutation)]
        rows.append([*name, difference, interval, _relative(row), *others, holm, effect, verdict])
    title = (
        "Differences, paired by seed. 95%: bootstrap interval over seeds and problems, not corrected. p: two-sided "
        "paired t-test, and sign-flip permutation test. Holm: the t-test, corrected over all comparisons of one set "
        f"and k ({num_tests}). Detectable: the difference that is detected with 80% power. The verdict is by Holm's p "
        "< 0.05."
    )
    named = ["on", "method", "against", "seeds", "difference", "95% interval", "relative"]
    headings = [*named, "t-test p", "permutation p", "Holm p", "detectable", "verdict"]
    return title, pd.DataFrame(rows, columns=headings)


def _cost_table(labels: Sequence[str], results: Results) -> tuple[str, pd.DataFrame]:
    """The cost of each method that ran, without resumed runs: only the cost of their last part is known."""
    # The whole step comes first, then its parts by name.
    whole = {key: result for key, result in results.items() if not result.resumed}
    parts = sorted({part for result in whole.values() for part in result.seconds_per_step})
    parts = sorted(parts, key=lambda part: part != "step")
    rows = []
    for label in labels:
        # Ratios are of one seed, whose runs see the same prompts.
        runs = [result for (name, _), result in whole.items() if name == label]
        pairs = [(result, first) for result in runs if (first := whole.get((labels[0], result.seed)))]
        if runs:
            rows.append(
                [
                    label,
                    len(runs),
                    *(_median_text([result.seconds_per_step.get(part) for result in runs]) for part in parts),
                    _ratio([a.seconds_per_step["step"] / b.seconds_per_step["step"] for a, b in pairs]),
                    f"{statistics.median(result.peak_memory_bytes for result in runs) / 2**20:.0f} MiB",
                    _ratio([a.peak_memory_bytes / b.peak_memory_bytes for a, b in pairs]),
                ]
            )
    title = (
        "Cost: seconds per optimizer step and by part, medians over generations and then over seeds. Memory is the "
        f"largest resident set. Ratios to {labels[0]} of the same seed: median (smallest to largest)."
    )
    headings = ["method", "seeds", *parts, f"step against {labels[0]}", "peak memory", f"memory against {labels[0]}"]
    return title, pd.DataFrame(rows, columns=headings)


def _share_correct(part: EvaluatedSet) -> float:
    """pass@1, measured or not."""
    return statistics.fmean(part.num_correct.values()) / part.num_samples


def _median_text(values: Sequence[float | None]) -> str:
    """The median. A part that a run lacks counts as 0 seconds."""
    known = any(value is not None for value in values)
    return number_text(statistics.median(value or 0.0 for value in values)) if known else NONE


def _relative(row: Any) -> str:
    """Difference of the means over the reference's mean."""
    return f"{100 * row.difference / row.reference:+.1f}%" if row.reference else NONE


def _ratio(ratios: Sequence[float]) -> str:
    """Median, smallest and largest."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else NONE
