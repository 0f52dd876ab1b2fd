"""From results to tables and figures. Nothing is run, and nothing missing is filled in."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gar.comparison.figures import cost_figure, curves_figure
from gar.comparison.pairing import Results, check_paired
from gar.comparison.plan import PlannedRun
from gar.comparison.result import RunResult
from gar.comparison.settings import ComparisonSettings
from gar.comparison.tables import ComparisonNumbers, Cost, markdown
from gar.errors import RecordError
from gar.evaluation.paired import Measures, contrasts, problem_counts, scores
from gar.records import RunFolder, write_atomic


def write_report(
    comparison: ComparisonSettings, planned: Sequence[PlannedRun], results: Results
) -> tuple[ComparisonNumbers, list[Path]]:
    """Write `table.md` and the figures into the results folder.

    Returns:
        The numbers of the tables, and the files.

    Raises:
        RecordError: The results are not paired, or a file cannot be written.
    """
    check_paired(results)
    numbers = comparison_numbers(comparison, planned, results)
    folder = comparison.results_folder
    paths = [folder / "table.md"]
    write_atomic(paths[0], markdown(numbers))
    if results:
        by_label = {label: [*_by_seed(results, label).values()] for label in numbers.num_finished}
        paths += curves_figure({label: runs for label, runs in by_label.items() if runs}, folder / "curves")
        paths += cost_figure(numbers.costs, folder / "cost")
    return numbers, paths


def comparison_numbers(
    comparison: ComparisonSettings, planned: Sequence[PlannedRun], results: Results
) -> ComparisonNumbers:
    """All numbers of the tables of a planned comparison, with a note about every run that has no result."""
    against = {row.label: comparison.against(row) for row in comparison.runs}
    ks = planned[0].config.evaluate.pass_at_k
    numbers = numbers_of_results(comparison.name, results, against=against, seeds=comparison.seeds, ks=ks)
    return replace(numbers, notes=[*_missing(planned, results), *numbers.notes])


def numbers_of_results(
    name: str, results: Results, *, against: Mapping[str, Sequence[str]], seeds: Sequence[int], ks: Sequence[int]
) -> ComparisonNumbers:
    """All numbers of the tables, from the counts of right responses.

    p-values are corrected for the planned comparisons of one set and k.

    Args:
        name: Name of the comparison.
        results: Results by label and seed.
        against: The rows in their order, each with the rows that it is tested against.
        seeds: Planned seeds.
        ks: The k of pass@k.
    """
    labels = [*against]
    sets = next(iter(results.values())).sets if results else {}
    measures: Measures = {set_name: [("pass", k) for k in ks] for set_name in sets}
    num_tests = sum(map(len, against.values()))
    counts = problem_counts(
        (label, seed, set_name, problem, part.num_samples, num_correct, ())
        for label in labels
        for seed in seeds
        if (label, seed) in results
        for set_name, part in results[label, seed].sets.items()
        for problem, num_correct in zip(part.problem_ids, part.num_correct, strict=True)
    )
    finished = Counter(label for label, _ in results)
    family = ("set_name", "k")
    return ComparisonNumbers(
        name=name,
        num_seeds=len(seeds),
        num_finished={label: finished[label] for label in labels},
        columns=[(set_name, k) for set_name in sets for k in ks],
        num_tests=num_tests,
        scores=scores(counts, measures=measures),
        differences=contrasts(
            counts, against=against, measures=measures, pair_by="seed", family=family, num_tests=num_tests
        ),
        costs=_costs(labels, results),
        notes=_notes(results),
    )


def _by_seed(results: Results, label: str) -> dict[int, RunResult]:
    """Results of one row."""
    return {seed: result for (name, seed), result in results.items() if name == label}


def _costs(labels: Sequence[str], results: Results) -> list[Cost]:
    """Cost of each method that ran. Resumed runs are left out: only the cost of their last part is known."""
    whole = {key: result for key, result in results.items() if not result.resumed}
    costs = []
    for label in labels:
        runs, first = _by_seed(whole, label), _by_seed(whole, labels[0])
        if not runs:
            continue
        pairs = [(result, first[seed]) for seed, result in runs.items() if seed in first]
        parts = sorted({part for result in runs.values() for part in result.seconds_per_step})
        costs.append(
            Cost(
                label=label,
                num_seeds=len(runs),
                seconds_per_step={
                    part: statistics.median(result.seconds_per_step.get(part, 0.0) for result in runs.values())
                    for part in parts
                },
                step_ratio=_ratio([a.seconds_per_step["step"] / b.seconds_per_step["step"] for a, b in pairs]),
                peak_memory_bytes=statistics.median(result.peak_memory_bytes for result in runs.values()),
                memory_ratio=_ratio([a.peak_memory_bytes / b.peak_memory_bytes for a, b in pairs]),
            )
        )
    return costs


def _ratio(ratios: Sequence[float]) -> tuple[float, float, float] | None:
    return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


def _missing(planned: Sequence[PlannedRun], results: Results) -> list[str]:
    """Which runs have no result, and why."""
    missing: dict[str, list[PlannedRun]] = {"Failed": [], "Interrupted": [], "Not run": []}
    for run in planned:
        if (run.label, run.seed) not in results:
            missing[_state(run)].append(run)
    return [f"{word}: {by_label(runs)}." for word, runs in missing.items() if runs]


def _state(run: PlannedRun) -> str:
    if not run.folder.exists():
        return "Not run"
    try:
        return "Failed" if RunFolder.open(run.folder).read_run().status == "failed" else "Interrupted"
    except RecordError:
        return "Interrupted"


def _notes(results: Results) -> list[str]:
    """What a reader must know beside the numbers."""
    notes = []
    resumed = [f"{result.label} seed {result.seed}" for result in results.values() if result.resumed]
    if resumed:
        notes.append(f"Interrupted and resumed, so without a cost: {', '.join(resumed)}.")
    for name in sorted({name for result in results.values() for name in result.versions}):
        versions = sorted({str(result.versions.get(name)) for result in results.values()})
        if len(versions) > 1:
            notes.append(f"The runs come from different versions of {name}: {', '.join(versions)}.")
    machines = sorted({f"{result.platform}, {result.cpu_count} cores" for result in results.values()})
    if machines:
        wall, cpu = ([getattr(result, f"{kind}_seconds") for result in results.values()] for kind in ("wall", "cpu"))
        notes.append(
            f"{len(results)} runs of {statistics.median(wall):.0f} s each ({statistics.median(cpu):.0f} s of processor "
            f"time; medians), {sum(wall) / 3600:.2f} hours in sum, on {'; '.join(machines)}."
        )
    return notes


def by_label(runs: Sequence[PlannedRun]) -> str:
    """Runs in words: `grpo, seed 0; gar-grpo, seeds 1, 2`."""
    labels = dict.fromkeys(run.label for run in runs)
    return "; ".join(
        f"{label}, {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)}"
        for label in labels
        if (seeds := [str(run.seed) for run in runs if run.label == label])
    )
