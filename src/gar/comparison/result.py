"""The result of one cell of a comparison: `result.json` in its run folder, computed from this folder."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import pandas as pd

from gar.comparison.plan import PlannedRun
from gar.comparison.pool import Usage
from gar.errors import RecordError
from gar.methods import find_method
from gar.metrics import ALIGNMENT, ELIGIBLE, REWARD, ZERO_STD_OUTCOME, ZERO_STD_SHAPED, seconds_of
from gar.records import EvaluatedSet, Run, RunFolder, canonical_hash, open_run
from gar.records.dotted import changes_in_words, differences
from gar.records.files import checked, read_json
from gar.records.run_folder import RUN, read_record
from gar.records.sums import check_sum, read_sums

CURVES = (
    REWARD,
    ELIGIBLE,
    ALIGNMENT,
    ZERO_STD_OUTCOME,
    ZERO_STD_SHAPED,
    "gar/expert_tokens",
)
"""Metrics that are kept as curves."""

_DIGITS = 5
RESULT = "result.json"
"""File in the run folder, listed in its checksums: the cell is finished."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """One finished run, `result.json`.

    Attributes:
        label: The row of the table, by default the name of the method.
        settings: Every setting that decides the numbers. `settings_hash` is their `canonical_hash`.
        versions: As in `run.json`, like `platform`, `cpu_count`, `start_time` (UTC) and `data_hash`.
        resumed: The run was interrupted and resumed, so times and memory cover only its last part.
        wall_seconds: Wall time of the process, with imports and evaluation. 0 if unknown, like the next two.
        cpu_seconds: Processor time of the process. It depends less on other load.
        peak_memory_bytes: Largest resident set of the process.
        prompts_hash: Hash of the problem ids of all rollouts, in order. Equal in all rows of a seed. "" if some
            optimizer steps have no rollouts.
        seconds_per_step: As `step_times`, like `shares_of_step`.
        sets: Evaluation after training.
        curves: Metrics over steps, see `thinned`.
    """

    label: str
    seed: int
    settings_hash: str
    settings: Mapping[str, Any]
    versions: Mapping[str, str | None]
    platform: str
    cpu_count: int | None
    start_time: str
    resumed: bool
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    data_hash: str | None
    prompts_hash: str
    steps: int
    seconds_per_step: Mapping[str, float]
    shares_of_step: Mapping[str, float]
    sets: Mapping[str, EvaluatedSet]
    curves: Mapping[str, Mapping[str, Sequence[float | None]]]


Results = Mapping[tuple[str, int], RunResult]
"""By label and seed."""


def finished_results(cells: Sequence[PlannedRun]) -> dict[tuple[str, int], RunResult]:
    """All results so far, by label and seed.

    Raises:
        RecordError: A result was changed after it was written.
    """
    return {(result.label, result.seed): result for result in map(finished_result, cells) if result}


def finished_result(cell: PlannedRun) -> RunResult | None:
    """The result of a cell. None if it is not finished. A `RecordError` if it is not what was written."""
    path, sums = cell.folder / RESULT, read_sums(cell.folder)
    if RESULT not in sums or not os.path.lexists(path):
        return None
    check_sum(cell.folder, RESULT, sums)
    result = checked(RunResult, read_json(path), str(path))
    if (result.seed, result.settings_hash) != (cell.seed, canonical_hash(cell.settings)):
        raise RecordError(
            f"{path}: made under other settings than {cell.title}. Remove the folder, and run it again.",
            code="other-settings",
        )
    return replace(result, label=cell.label)


def collected_result(cell: PlannedRun, usage: Usage | None = None) -> RunResult | None:
    """As `finished_result`, but write the result first if the run is finished and has none.

    Without `usage` the run counts as resumed.

    Raises:
        RecordError: Something that the result needs is missing or damaged, or the run was trained with other settings.
    """
    made = finished_result(cell)
    if made or not os.path.lexists(cell.folder / RUN):
        return made
    record = read_record(cell.folder)
    if record.status != "finished":
        return None
    # A run counts only if it is the planned one to its end.
    run = open_run(cell.folder)
    changed = differences(run.settings, cell.settings)
    if changed or record.overrides:
        what = changes_in_words(changed) or "they were changed while it ran"
        raise RecordError(
            f"{run.path}: this run has other settings than {cell.title}: {what}. Move it away to train the cell anew.",
            code="other-settings",
        )
    # All numbers come from the folder, but for what the operating system measured of the process.
    seconds, shares = step_times(run.metrics)
    result = RunResult(
        label=cell.label,
        seed=cell.seed,
        settings_hash=canonical_hash(cell.settings),
        settings=cell.settings,
        versions=record.versions,
        platform=record.platform,
        cpu_count=record.cpu_count,
        start_time=record.start_time,
        resumed=bool(record.resume_times) or usage is None,
        data_hash=record.data_hash,
        prompts_hash=_prompts_hash(run) if find_method(cell.config.method).samples else "",
        steps=run.metrics[-1]["step"],
        seconds_per_step=seconds,
        shares_of_step=shares,
        sets=run.evaluations["after"],
        curves={name: curve for name in CURVES if (curve := thinned(run.metrics, name))},
        **asdict(usage or Usage()),
    )
    RunFolder(cell.folder).add_result(RESULT, asdict(result))
    return finished_result(cell)


def _prompts_hash(run: Run) -> str:
    """Hash of the problems of all rollouts, in order, step by step: equal hashes mean equal prompts."""
    if not run.steps:
        raise RecordError(f"{run.path}: no rollouts, so it is unknown which problems the run saw.")
    table = run.rollouts(["step", "problem_id"])
    rows = zip(table["step"].to_pylist(), table["problem_id"].to_pylist(), strict=True)
    return canonical_hash([[step, [name for _, name in own]] for step, own in groupby(rows, itemgetter(0))])


def step_times(metrics: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of an optimizer step and of its parts, and each part's share: medians over generations.

    If there are several updates per generation, only the first generates. So the steps of a generation are averaged
    first. The first generation warms up and is left out if there are others.

    Returns:
        Seconds by part, "step" the whole. Shares by part.
    """
    times: Any = pd.DataFrame(metrics).filter(regex="^time/.*_seconds$").sort_index(axis=1)
    if seconds_of("step") not in times:
        return {}, {}
    times = times[times[seconds_of("step")].notna()].fillna(0.0)
    times.columns = [name[5:-8] for name in times]
    generation = (times["generation"] > 0).cumsum() if "generation" in times else times.index
    means = times.groupby(generation).mean()
    warm = means[1:] if len(means) > 1 else means
    shares = warm.div(warm["step"], axis=0).drop(columns="step")
    return warm.median().round(_DIGITS).to_dict(), shares.median().round(_DIGITS).to_dict()


def thinned(metrics: Sequence[Mapping[str, Any]], name: str, max_points: int = 60) -> dict[str, list[float | None]]:
    """A metric over steps, averaged over neighbors if it was logged more than `max_points` times.

    The steps are the same for all seeds. A mean of no value is None. Empty if the metric was never logged.
    """
    rows = pd.DataFrame([{"step": row["step"], "value": row[name]} for row in metrics if name in row], dtype=float)
    if rows.empty:
        return {}
    means: Any = rows.groupby(rows.index // -(-len(rows) // max_points)).mean()
    values = [None if pd.isna(value) else round(value, _DIGITS) for value in means["value"]]
    return {"step": means["step"].tolist(), "value": values}


def check_paired(results: Results) -> None:
    """Raise an error if results are not comparable, because they were trained or evaluated on different problems.

    Rows that share a seed need the same problem order. The seeds of a row need the same data. Hashes by different
    versions of gar are not compared. All need the same evaluation. Unknown values are not compared.

    Raises:
        RecordError: Names the two runs, and what differs.
    """
    runs = [*results.values()]
    _check_problem_order(runs)
    _check_data(runs)
    _check_evaluation(runs)


def _check_problem_order(runs: Sequence[RunResult]) -> None:
    text = (
        "were not trained on the same problems in the same order. Do their rows differ in data, batch, generations, "
        "updates per rollout or steps? Put such rows into separate comparisons."
    )
    for seed in {run.seed for run in runs}:
        of_seed = [run for run in runs if run.seed == seed]
        _check_equal(of_seed, [run.prompts_hash for run in of_seed], "other-prompts", text)


def _check_data(runs: Sequence[RunResult]) -> None:
    text = (
        "were not trained on the same data. Was the file changed in between? Remove the run folders of one, and repeat "
        "the command."
    )
    for row in {_row(run) for run in runs}:
        of_row = [run for run in runs if _row(run) == row]
        _check_equal(of_row, [run.data_hash for run in of_row], "other-data", text)


def _row(run: RunResult) -> tuple[str, str | None]:
    return run.label, run.versions.get("gar-rl")


def _check_evaluation(runs: Sequence[RunResult]) -> None:
    text = "were not evaluated on the same problems and number of samples. Was a file changed in between?"
    asked = [{name: ([*part.num_correct], part.num_samples) for name, part in run.sets.items()} for run in runs]
    _check_equal(runs, asked, "other-evaluation", text)
    for name in runs[0].sets if runs else ():
        _check_equal(runs, [run.sets[name].problems_hash for run in runs], "other-evaluation", text)


def _check_equal(runs: Sequence[RunResult], facts: Sequence[Any], code: str, text: str) -> None:
    """Raise an error if a fact differs between two runs that both have it. None and "" are unknown."""
    known = [(run, fact) for run, fact in zip(runs, facts, strict=True) if fact not in (None, "")]
    for run, fact in known[1:]:
        first, expected = known[0]
        if fact != expected:
            titles = f"{run.label}, seed {run.seed}, and {first.label}, seed {first.seed},"
            raise RecordError(f"{titles} {text}", code=code)
