"""The result of one cell of a comparison: `result.json` in its run folder, made from that folder alone."""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from gar.comparison.metrics import step_times, thinned
from gar.comparison.plan import PlannedRun
from gar.errors import RecordError
from gar.evaluation.metrics import pass_at_k
from gar.methods import find_method
from gar.records import Run, RunFolder, canonical_hash, open_run
from gar.records.checked import checked
from gar.records.files import json_object, json_text, write_atomic
from gar.records.manifest import DamageError, Manifest

CURVES = (
    "reward",
    "gar/eligible_fraction",
    "gar/alignment_mean",
    "gar/zero_std_group_fraction_outcome",
    "gar/zero_std_group_fraction_shaped",
    "gar/expert_tokens",
)
"""Metrics whose curves are kept."""

RESULT = "result.json"
"""File in the run folder, listed in its manifest: the cell is finished."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetCounts:
    """One evaluation set after training: the number of right and well-formatted responses to each problem.

    `problems_hash`: see `EvaluatedSet`.
    """

    num_samples: int
    problem_ids: Sequence[str]
    num_correct: Sequence[int]
    problems_hash: str | None = None

    def __post_init__(self) -> None:
        if len(self.num_correct) != len(self.problem_ids):
            raise ValueError(f"{len(self.num_correct)} counts of {len(self.problem_ids)} problems")

    def pass_at(self, k: int) -> list[float]:
        """pass@k of each problem."""
        return [pass_at_k(self.num_samples, correct, k) for correct in self.num_correct]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """One finished run, `result.json`.

    Attributes:
        label: Row of the table. The method in the file.
        settings: Every setting that decides the numbers. `settings_hash` is their `canonical_hash`.
        versions: As in `run.json`, like `platform`, `cpu_count`, `start_time` (UTC) and `data_hash`.
        resumed: The run was interrupted and resumed, so times and memory cover its last part alone.
        wall_seconds: Wall time of the process, 0 if it is unknown, imports and evaluation included.
        cpu_seconds: Processor time of the process, which depends less on the machine's other load.
        peak_memory_bytes: Largest resident set of the process.
        prompts_hash: Hash of the problem ids of all rollouts, in order. Equal in all rows of a seed. "" if some
            optimizer steps have no rollouts.
        seconds_per_step: As `step_times`, like `shares_of_step`.
        sets: Evaluation after training.
        curves: Metrics over steps, as at most 60 means of equally many logged values.
        pass_at: Means over problems for the k of the settings, for human readers. Tables are computed from `sets`.
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
    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    data_hash: str | None
    prompts_hash: str
    steps: int
    seconds_per_step: Mapping[str, float]
    shares_of_step: Mapping[str, float]
    sets: Mapping[str, SetCounts]
    pass_at: Mapping[str, Mapping[str, float]]
    curves: Mapping[str, Mapping[str, Sequence[float | None]]]


Results = Mapping[tuple[str, int], RunResult]
"""By label and seed."""


def finished_results(cells: Sequence[PlannedRun]) -> dict[tuple[str, int], RunResult]:
    """All results so far, by label and seed.

    Raises:
        RecordError: A result is not what was written.
    """
    found = ((cell, finished_result(cell)) for cell in cells)
    return {(cell.label, cell.seed): result for cell, result in found if result}


def finished_result(cell: PlannedRun) -> RunResult | None:
    """The result of a cell. None if it is not finished.

    Raises:
        RecordError: The result is not what was written, or of other settings.
    """
    path = cell.folder / RESULT
    if not os.path.lexists(path):
        return None
    try:
        result = checked(RunResult, json_object(Manifest(cell.folder).read(path), str(path)), str(path))
    except DamageError as error:
        if error.fault.kind == "unlisted":  # a kill came between the file and its line: it is written again
            return None
        raise
    if (result.seed, result.settings_hash) != (cell.seed, canonical_hash(cell.settings)):
        raise RecordError(
            f"{path}: made under other settings than {cell.title}. Remove the folder, and run it again.",
            code="other-settings",
        )
    return replace(result, label=cell.label)


class Usage(NamedTuple):
    """What the process of a run used."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


def write_result(cell: PlannedRun, usage: Usage | None) -> None:
    """Write `result.json` of a finished run, and list it in the manifest: the cell is finished.

    Without `usage` the run counts as resumed.
    """
    values = asdict(result_of(cell, usage))
    lines = [f"{json.dumps(name)}: {json_text(value)}" for name, value in values.items()]
    write_atomic(cell.folder / RESULT, "{\n" + ",\n".join(lines) + "\n}\n")
    RunFolder(cell.folder).manifest().add(RESULT)


def result_of(planned: PlannedRun, usage: Usage | None = None) -> RunResult:
    """The result of a finished run, from its run folder.

    Raises:
        RecordError: The run is not finished, or something that the result needs is missing or damaged.
    """
    contents = open_run(planned.folder)
    run = contents.folder.read_run()
    if run.status != "finished":
        raise RecordError(f"{contents.path}: this run is {run.status}, not finished.", code="not-finished")
    evaluated = contents.evaluations["after"]
    if not evaluated:
        raise RecordError(
            f"{contents.path}: no evaluation after training: a comparison needs evaluate.sources.", code="not-evaluated"
        )
    metrics = contents.metrics
    seconds, shares = step_times(metrics)
    sets = {
        name: SetCounts(
            num_samples=part.num_samples,
            problem_ids=[*part.num_correct],
            num_correct=[*part.num_correct.values()],
            problems_hash=part.problems_hash,
        )
        for name, part in evaluated.items()
    }
    return RunResult(
        label=planned.label,
        seed=planned.seed,
        settings_hash=canonical_hash(planned.settings),
        settings=planned.settings,
        versions=run.versions,
        platform=run.platform,
        cpu_count=run.cpu_count,
        start_time=run.start_time,
        resumed=bool(run.resume_times) or usage is None,
        **(usage or Usage())._asdict(),
        data_hash=run.data_hash,
        prompts_hash=prompts_hash(contents) if find_method(planned.config.method).samples else "",
        steps=metrics[-1]["step"],
        seconds_per_step=seconds,
        shares_of_step=shares,
        sets=sets,
        pass_at={
            name: {str(k): statistics.fmean(counts.pass_at(k)) for k in planned.config.evaluate.pass_at_k}
            for name, counts in sets.items()
        },
        curves={name: curve for name in CURVES if (curve := thinned(metrics, name))},
    )


def prompts_hash(run: Run) -> str:
    """Hash of the problems of all rollouts, in order, step by step: equal hashes mean equal prompts.

    Raises:
        RecordError: The run has no rollouts, or some of them are damaged.
    """
    if not run.steps:
        raise RecordError(f"{run.path}: no rollouts, so it is unknown which problems the run saw.")
    ids: dict[int, list[str]] = {step: [] for step in run.steps}
    for row in run.rollouts(["step", "problem_id"]).to_pylist():
        ids[row["step"]].append(row["problem_id"])
    return canonical_hash([[step, problems] for step, problems in ids.items()])


def check_paired(results: Results) -> None:
    """Raise an error if results are not comparable, because they were trained or evaluated on different problems.

    Rows that share a seed need the same problem order. The seeds of a row need the same prompts, answers and solutions.
    Hashes are compared only if the same version of gar made them.

    Raises:
        RecordError: Names the two runs, and what differs.
    """
    seen: dict[Any, RunResult] = {}
    first = next(iter(results.values()), None)
    for result in results.values():
        other = seen.setdefault(result.seed, result) if result.prompts_hash else result
        if result.prompts_hash != other.prompts_hash:
            raise RecordError(
                f"{result.label} and {other.label} of seed {result.seed} were not trained on the same problems in the "
                "same order, so that the methods cannot be compared. Do their rows differ in data, batch, "
                "generations, updates per rollout or steps? Put such rows into comparisons of their own.",
                code="other-prompts",
            )
        other = seen.setdefault((result.label, result.versions.get("gar-rl")), result) if result.data_hash else result
        if result.data_hash != other.data_hash:
            raise RecordError(
                f"{result.label}: seeds {other.seed} and {result.seed} were not trained on the same data, under the "
                f"same ids and the same data.source, {result.settings['data']['source']!r}. Was it changed in between? "
                "Remove the run folders of the one or the other, and repeat the command.",
                code="other-data",
            )
        assert first is not None
        for name in result.sets.keys() | first.sets.keys():
            a, b = (r.sets.get(name) for r in (result, first))
            if a is None or b is None or _measured(a, like=b) != _measured(b, like=a):
                raise RecordError(
                    f"{result.label}, seed {result.seed}, and {first.label}, seed {first.seed}, were not evaluated on "
                    f"the same problems of {name!r} with the same number of samples. Was its file changed in between?",
                    code="other-evaluation",
                )


def _measured(counts: SetCounts, *, like: SetCounts) -> tuple[Sequence[str], int, str | None]:
    """Problems and samples of a set. The hash of the problems where both results have one."""
    return counts.problem_ids, counts.num_samples, like.problems_hash and counts.problems_hash
