"""The results folder: finished and failed runs, results under other settings, and the check that results are paired."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gar.comparison.plan import PlannedRun
from gar.comparison.result import RunResult, SetCounts
from gar.errors import RecordError
from gar.records import canonical_hash
from gar.records.checked import checked
from gar.records.dotted import NOT_SET, in_words, leaves
from gar.records.files import json_text, read_json, remove_file, write_atomic

Results = Mapping[tuple[str, int], RunResult]
"""By label and seed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A run that ended without a result: `results/NAME/LABEL-seed-K.failed.json`. The next call tries the run again."""

    label: str
    seed: int
    reason: str
    last_lines: Sequence[str]


def finished_results(planned: Sequence[PlannedRun]) -> dict[tuple[str, int], RunResult]:
    """All results so far, by label and seed.

    Raises:
        RecordError: A result was made under other settings, which it names, or is damaged.
    """
    results = {}
    for run in planned:
        if run.result_path.exists():
            result = RunResult.read(run.result_path)
            _refuse_other_settings(run, result)
            results[run.label, run.seed] = result
    return results


def failures(planned: Sequence[PlannedRun]) -> dict[tuple[str, int], Failure]:
    """All failures of runs that have no result, by label and seed.

    Raises:
        RecordError: A file is damaged.
    """
    return {
        (run.label, run.seed): _read_failure(_failure_path(run))
        for run in planned
        if _failure_path(run).exists() and not run.result_path.exists()
    }


def check_paired(results: Results) -> None:
    """Reject results on different problems: in training within a seed or a row, and in evaluation anywhere.

    Rows of a seed saw the same ids in the same order; the seeds of a row saw the same prompts, answers and solutions,
    as far as one version of gar made their hashes.

    Sampled responses cannot be paired: policies differ after the first update, and so do their samples.

    Raises:
        RecordError: Names the two runs, and what differs.
    """
    by_seed: dict[int, RunResult] = {}
    by_row: dict[tuple[str, str | None], RunResult] = {}
    first = next(iter(results.values()), None)
    for result in results.values():
        other = by_seed.setdefault(result.seed, result) if result.prompts_hash else result
        if result.prompts_hash != other.prompts_hash:
            raise RecordError(
                f"{result.label} and {other.label} of seed {result.seed} were not trained on the same problems in the "
                "same order, so that the methods cannot be compared. Do their rows differ in data, batch, "
                "generations, updates per rollout or steps? Put such rows into comparisons of their own."
            )
        row = result.label, result.versions.get("gar-rl")
        other = by_row.setdefault(row, result) if result.data_hash else result
        if result.data_hash != other.data_hash:
            raise RecordError(
                f"{result.label}: seeds {other.seed} and {result.seed} were not trained on the same data, under the "
                f"same ids and the same data.source, {result.settings['data']['source']!r}. Was it changed in between? "
                "Remove results and run folders of the one or the other, and repeat the command."
            )
        assert first is not None
        for name in result.sets.keys() | first.sets.keys():
            a, b = (r.sets.get(name) for r in (result, first))
            if a is None or b is None or _measured(a, like=b) != _measured(b, like=a):
                raise RecordError(
                    f"{result.label}, seed {result.seed}, and {first.label}, seed {first.seed}, were not evaluated on "
                    f"the same problems of {name!r} with the same number of samples. Was its file changed in between?"
                )


def _measured(counts: SetCounts, *, like: SetCounts) -> tuple[Sequence[str], int, str | None]:
    """Problems and samples of a set; the hash of the problems where both results have one."""
    return counts.problem_ids, counts.num_samples, like.problems_hash and counts.problems_hash


def write_result(run: PlannedRun, result: RunResult) -> None:
    """Write the file that marks the run as finished."""
    result.write(run.result_path)
    remove_file(_failure_path(run))


def write_failure(run: PlannedRun, reason: str, last_lines: Sequence[str]) -> Failure:
    """Record that a run failed, with the last lines it wrote."""
    failure = Failure(label=run.label, seed=run.seed, reason=reason, last_lines=last_lines)
    write_atomic(_failure_path(run), json_text(asdict(failure), indent=2) + "\n")
    return failure


def remove_others(planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Remove results that were made under other settings or cannot be read, so that they are made again.

    Returns:
        Runs whose result was removed.
    """
    removed = []
    for run in planned:
        try:
            finished_results([run])
        except RecordError:
            remove_file(run.result_path)
            removed.append(run)
    return removed


def _refuse_other_settings(run: PlannedRun, result: RunResult) -> None:
    if (result.label, result.seed) != (run.label, run.seed):
        raise RecordError(f"{run.result_path}: holds {result.label}, seed {result.seed}. Was it renamed?")
    if result.settings_hash == canonical_hash(run.settings):
        return
    recorded, planned = dict(leaves(result.settings)), dict(leaves(run.settings))
    changes = {
        name: (recorded.get(name, NOT_SET), planned.get(name, NOT_SET))
        for name in sorted(recorded.keys() | planned.keys())
        if recorded.get(name, NOT_SET) != planned.get(name, NOT_SET)
    }
    raise RecordError(
        f"{run.result_path}: made under other settings: {in_words(changes)}. Numbers under "
        "different settings do not belong in one table. Give the comparison another name, or run these again "
        "with --overwrite."
    )


def _read_failure(path: Path) -> Failure:
    values = read_json(path)
    if values.keys() != {field.name for field in fields(Failure)}:
        raise RecordError(f"{path}: not a failure record of gar compare: it has {', '.join(values)}. Remove it.")
    return checked(Failure, values, str(path))


def _failure_path(run: PlannedRun) -> Path:
    return run.result_path.with_suffix(".failed.json")
