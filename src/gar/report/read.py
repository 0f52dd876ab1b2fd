"""A run folder as it is: whole, still being written, older than this version, or with files missing.

What cannot be read is left out and said in `missing`; no number is made up for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gar.config import RunConfig, make_config, read_config
from gar.errors import ConfigError, RecordError
from gar.evaluation.pass_at_k import pass_at_k
from gar.records import ROLLOUT_SCHEMA, RolloutReader, RunFolder
from gar.records.files import read_json

_NEEDED = ("step", "problem_id", "group_index", "response_index", "prompt", "response")
"""Without these columns a row cannot be shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetResult:
    """One evaluation of one set. `num_correct` is by problem; None where only the means were recorded."""

    num_samples: int
    pass_at: Mapping[int, float]
    num_correct: Mapping[str, int] | None

    def rates(self, k: int) -> list[float]:
        """pass@k of each problem, in their order."""
        return [pass_at_k(self.num_samples, correct, k) for correct in (self.num_correct or {}).values()]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRun:
    """What a run folder gave.

    Attributes:
        folder: The folder.
        record: What run.json says; empty without it.
        settings: What config.yaml says, as plain values.
        config: The same, checked; None where this version does not take it.
        config_text: The same as text.
        metrics: Logged steps.
        evaluations: "before" and "after" to results by set.
        reader: Reads its rollouts.
        num_rows: Rows of each step whose rollouts can be read.
        missing: What could not be shown, in words.
    """

    folder: RunFolder
    record: Mapping[str, Any]
    settings: Mapping[str, Any]
    config: RunConfig | None
    config_text: str
    metrics: Sequence[Mapping[str, Any]]
    evaluations: Mapping[str, Mapping[str, SetResult]]
    reader: RolloutReader
    num_rows: Mapping[int, int]
    missing: Sequence[str]

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.path.resolve().name

    @property
    def seed(self) -> int | None:
        """The run's seed, None where nothing says."""
        return self.settings.get("seed", self.record.get("seed"))

    @property
    def last_step(self) -> int:
        """Last step of which anything is known."""
        return max([*(row["step"] for row in self.metrics[-1:]), *self.num_rows], default=0)

    @property
    def num_rollouts(self) -> int:
        """Rows of all steps whose rollouts can be read."""
        return sum(self.num_rows.values())

    def rollouts(self, step: int, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Rows of one step; a column that was not written is None in all of them. No rows where they are gone."""
        wanted = list(columns or ROLLOUT_SCHEMA.names)
        try:
            _, names = self.reader.describe(step)
            table = self.reader.read(step, [name for name in names if name in wanted or name == "step"])
        except RecordError:
            return []  # a resumed run drops the steps after its checkpoint
        return _completed(table).select(wanted).to_pylist()

    def problem_ids(self) -> list[tuple[int, str]]:
        """Step and problem of every rollout, in order."""
        return [(step, row["problem_id"]) for step in self.num_rows for row in self.rollouts(step, ["problem_id"])]

    def every_rollout(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """All rows with some columns, step by step. Leave out the texts where they are not needed."""
        for step in self.num_rows:
            yield from self.rollouts(step, columns)


def read_run(path: str | Path) -> ReadRun:
    """Read what is there.

    Raises:
        RecordError: There is no such folder, or nothing in it is of a run.
    """
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        raise RecordError(f"{path}: no such folder. A run folder is what `gar train` writes, by default in runs/.")
    if not (folder.run_path.is_file() or folder.metrics_path.is_file() or folder.rollout_steps()):
        raise RecordError(
            f"{path}: not a run folder: it has no run.json, metrics.jsonl or rollouts. Did you mean a folder inside it?"
        )
    missing: list[str] = []
    reader = folder.rollout_reader()
    record = _record(folder, missing)
    settings, config, text = _settings(folder, missing)
    run = ReadRun(
        folder=folder,
        record=record,
        settings=settings,
        config=config,
        config_text=text,
        metrics=_metrics(folder, missing),
        evaluations={moment: _evaluation(folder, moment, missing) for moment in ("before", "after")},
        reader=reader,
        num_rows=_num_rows(reader, missing),
        missing=missing,
    )
    _note_status(run, missing)
    return run


def _record(folder: RunFolder, missing: list[str]) -> Mapping[str, Any]:
    try:
        record = read_json(folder.run_path)
    except RecordError as error:
        missing.append(f"run.json cannot be read, so versions, machine and status are unknown ({error})")
        return {}
    lacking = {"status", "versions", "start_time", "command"} - record.keys()
    if lacking:
        missing.append(
            f"run.json lacks {', '.join(sorted(lacking))}: it was written by another version of gar. The rest is shown"
        )
    return record


def _settings(folder: RunFolder, missing: list[str]) -> tuple[Mapping[str, Any], RunConfig | None, str]:
    path = folder.path / "config.yaml"
    try:
        values = read_config(path)
        text = path.read_text(encoding="utf-8")
    except (ConfigError, OSError) as error:
        missing.append(f"config.yaml cannot be read, so the settings are unknown ({error})")
        return {}, None, ""
    try:
        return values or {}, make_config(values, source="config.yaml"), text
    except ConfigError as error:
        missing.append(f"config.yaml is from another version of gar and is shown as it stands ({error})")
        return values if isinstance(values, Mapping) else {}, None, text


def _metrics(folder: RunFolder, missing: list[str]) -> list[dict[str, Any]]:
    try:
        rows = folder.read_metrics()
    except RecordError as error:
        missing.append(f"metrics.jsonl cannot be read, so there are no curves ({error})")
        return []
    if not rows:
        missing.append("no step was logged yet, so there are no curves")
    return [row for row in rows if isinstance(row.get("step"), int)]


def _evaluation(folder: RunFolder, moment: str, missing: list[str]) -> dict[str, SetResult]:
    relative = f"evaluation/{moment}.json"
    if not (folder.path / relative).exists():
        missing.append(f"there is no {relative}, so nothing is known of the model {moment} training")
        return {}
    try:
        sets = folder.read_json(relative)["sets"]
        return {name: _set_result(values) for name, values in sets.items()}
    except (RecordError, KeyError, TypeError, AttributeError, ValueError) as error:
        missing.append(f"{relative} is not what this version writes and was left out ({type(error).__name__}: {error})")
        return {}


def _set_result(values: Mapping[str, Any]) -> SetResult:
    problems = values.get("problems")
    return SetResult(
        num_samples=values.get("num_samples", 0),
        pass_at={int(k): float(value) for k, value in values["pass_at"].items() if value is not None},
        num_correct=None if problems is None else {str(each["id"]): int(each["num_correct"]) for each in problems},
    )


def _num_rows(reader: RolloutReader, missing: list[str]) -> dict[int, int]:
    readable, lacking, faults = {}, set(), []
    for step in reader.steps:
        try:
            num_rows, names = reader.describe(step)
        except RecordError as error:
            faults.append(f"step {step}: {error}")
            continue
        if set(_NEEDED) <= set(names):
            readable[step] = num_rows
            lacking |= set(ROLLOUT_SCHEMA.names) - set(names)
        else:
            faults.append(f"step {step} lacks {', '.join(sorted(set(_NEEDED) - set(names)))}")
    if not readable and not faults:
        missing.append("no rollouts were recorded (records.rollouts is off, or no step was finished)")
    if faults:
        missing.append(f"the rollouts of {len(faults)} steps cannot be read, the first of them: {faults[0]}")
    if lacking:
        missing.append(
            f"the rollouts have no {', '.join(sorted(lacking))}: they were written by another version of gar, and "
            "those places are empty"
        )
    return readable


def _completed(table: pa.Table) -> pa.Table:
    for field in ROLLOUT_SCHEMA:
        if field.name not in table.schema.names:
            table = table.append_column(field.name, pa.nulls(len(table), field.type))
    return table


def _note_status(run: ReadRun, missing: list[str]) -> None:
    status = run.record.get("status")
    if status == "running":
        missing.insert(
            0,
            f"run.json says that it is still running (or it was killed): shown is what was written up to step "
            f"{run.last_step}",
        )
    elif status in ("failed", "interrupted"):
        missing.insert(0, f"the run was {status} and has no end: shown is what was written up to step {run.last_step}")
