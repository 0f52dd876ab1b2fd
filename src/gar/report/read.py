"""A run folder in any state: whole, still being written, of an older version, or with files missing.

What cannot be read is left out and listed in `missing`; no number takes its place.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gar.errors import RecordError
from gar.evaluation.metrics import pass_at_k
from gar.records import ROLLOUT_SCHEMA, RolloutReader, RunFolder
from gar.records import contents as records
from gar.records.evaluations import EvaluatedSet

_NEEDED = ("step", "problem_id", "group_index", "response_index", "prompt", "response")
"""Columns without which a row cannot be shown."""
_OPTIONAL = frozenset(ROLLOUT_SCHEMA.names) - {*_NEEDED}


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedSet:
    """One evaluation of one set. `num_correct` is by problem; None where only the means were recorded."""

    num_samples: int
    pass_at: Mapping[int, float]
    num_correct: Mapping[str, int] | None

    def rates(self, k: int) -> list[float]:
        """pass@k of each problem, in their order."""
        return [pass_at_k(self.num_samples, correct, k) for correct in (self.num_correct or {}).values()]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRun(records.RunContents):
    """The contents of a run folder, prepared for a page.

    Attributes:
        evaluations: Results by set, for "before" and "after".
        num_rows: Rows of each step whose rollouts can be read.
        missing: Sentences on what cannot be shown.
    """

    evaluations: Mapping[str, Mapping[str, RecordedSet]]
    num_rows: Mapping[int, int]
    missing: Sequence[str]

    @property
    def num_rollouts(self) -> int:
        """Rows of all steps whose rollouts can be read."""
        return sum(self.num_rows.values())

    def rollouts(self, step: int, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Rows of one step; a column that was not written is None in all of them. Empty if the step is gone."""
        try:
            return self.reader.read(step, columns, optional=_OPTIONAL).to_pylist()
        except RecordError:
            return []  # a resumed run drops the steps after its checkpoint

    def problem_ids(self) -> list[tuple[int, str]]:
        """Step and problem of every rollout, in order."""
        return [(step, row["problem_id"]) for step in self.num_rows for row in self.rollouts(step, ["problem_id"])]

    def every_rollout(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """All rows with some columns, step by step. Leave out the texts where they are not needed."""
        for step in self.num_rows:
            yield from self.rollouts(step, columns)


def read_run(path: str | Path) -> ReadRun:
    """Read a run folder as far as possible.

    Raises:
        RecordError: The folder does not exist, or holds nothing of a run.
    """
    run = records.read_run(path)
    missing = [*run.unfinished, *run.faults]
    if not run.metrics and not any("metrics.jsonl" in fault for fault in run.faults):
        missing.append("no step was logged yet, so there are no curves")
    return ReadRun(
        **{field.name: getattr(run, field.name) for field in fields(run)},
        evaluations={moment: _evaluation(run.folder, moment, missing) for moment in ("before", "after")},
        num_rows=_num_rows(run.reader, missing),
        missing=missing,
    )


def _evaluation(folder: RunFolder, moment: str, missing: list[str]) -> dict[str, RecordedSet]:
    relative = f"evaluation/{moment}.json"
    try:
        sets = folder.read_evaluation(moment)
    except RecordError as error:
        missing.append(f"{relative} is not what this version writes and was left out ({error})")
        return {}
    if not sets:
        missing.append(f"there is no {relative}, so nothing is known of the model {moment} training")
    return {name: _set_result(part) for name, part in sets.items()}


def _set_result(part: EvaluatedSet) -> RecordedSet:
    problems = part.problems
    return RecordedSet(
        num_samples=part.num_samples or 0,
        pass_at=part.known_rates,
        num_correct=None if problems is None else {problem.id: problem.num_correct for problem in problems},
    )


def _num_rows(reader: RolloutReader, missing: list[str]) -> dict[int, int]:
    readable, lacking, faults = {}, set(), []
    for step in reader.steps:
        try:
            _, names = reader.describe(step)
            num_rows = len(reader.read(step, optional=_OPTIONAL))
            if not num_rows:
                raise RecordError("its file has no rows")
            readable[step] = num_rows
            lacking |= set(ROLLOUT_SCHEMA.names) - set(names)
        except RecordError as error:
            faults.append(f"step {step}: {error}")
    if not readable and not faults:
        missing.append("no rollouts were recorded: no step was finished")
    if faults:
        missing.append(f"the rollouts of {len(faults)} steps are left out, the first of them: {faults[0]}")
    missing += records.uneven(readable)
    if lacking:
        missing.append(
            f"the rollouts have no {', '.join(sorted(lacking))}: they were written by another version of gar, and "
            "those places are empty"
        )
    return readable
