"""The one tolerant reader of a run folder: whole, still being written, older than this version, or damaged.

Unreadable parts are left out and named; no number is made up for them.
"""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from gar.config import RunConfig, make_config, parse_yaml
from gar.errors import ConfigError, RecordError
from gar.records.checked import sound_fields
from gar.records.files import io_error, read_json
from gar.records.metrics import sound_numbers
from gar.records.run_folder import RunFolder
from gar.records.run_record import RunRecord, settings_hash
from gar.records.shards import RolloutReader


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContents:
    """The contents of a run folder.

    Attributes:
        folder: The folder.
        record: The sound fields of `run.json`; empty where it cannot be read.
        settings: `config.yaml` as plain values; empty where it cannot be read.
        config: The same, checked, with today's defaults for what an older version lacks; None where it is rejected.
        config_text: The text of `config.yaml`.
        metrics: Logged steps; values that are not numbers are left out.
        reader: Reads the rollouts.
        faults: What is missing or damaged, as clauses.
    """

    folder: RunFolder
    record: Mapping[str, Any]
    settings: Mapping[str, Any]
    config: RunConfig | None
    config_text: str
    metrics: Sequence[Mapping[str, Any]]
    reader: RolloutReader
    faults: Sequence[str]

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.path.resolve().name

    @property
    def seed(self) -> int | None:
        """The run's seed; None if no file tells it."""
        return self.settings.get("seed", self.record.get("seed"))

    @property
    def steps(self) -> Sequence[int]:
        """Steps with rollouts."""
        return self.reader.steps

    @property
    def last_step(self) -> int:
        """Last step with metrics or rollouts."""
        return max([*(row["step"] for row in self.metrics[-1:]), *self.steps[-1:]], default=0)

    @property
    def unfinished(self) -> list[str]:
        """Why the run has no end, as at most one clause: it is running, failed or was interrupted."""
        status, shown = self.record.get("status"), f"shown is what was written up to step {self.last_step}"
        if status == "running":
            return [f"run.json says that it is still running (or it was killed): {shown}"]
        if status not in ("failed", "interrupted"):
            return []
        error = self.record.get("error")
        why = ""
        if isinstance(error, Mapping):
            why = f" ({' '.join(str(error.get('text')).split())}; {error.get('place')})"
        return [f"the run was {status} and has no end{why}: {shown}"]

    @property
    def notes(self) -> list[str]:
        """Caveats for readers of an analysis, as sentences that name the run."""
        return [f"{self.name}: {note}." for note in (*self.unfinished, *self.faults)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollouts:
    """Columns of the rollouts of several steps, one step after the other, and what was left out."""

    table: pa.Table
    steps: Sequence[int]
    notes: Sequence[str]


def is_run_folder(path: str | Path) -> bool:
    """Whether a folder holds a run, whole or not: `run.json`, `metrics.jsonl` or rollouts."""
    folder = RunFolder(Path(path))
    return folder.run_path.is_file() or folder.metrics_path.is_file() or folder.rollouts_folder.is_dir()


def read_run(path: str | Path) -> RunContents:
    """Read the contents of a run folder.

    Raises:
        RecordError: The folder does not exist, or holds nothing of a run.
    """
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        raise RecordError(f"{path}: no such folder. A run folder is what `gar train` writes, by default in runs/.")
    if not is_run_folder(path):
        raise RecordError(
            f"{path}: not a run folder: it has no run.json, metrics.jsonl or rollouts. Did you mean a folder inside it?"
        )
    faults: list[str] = []
    record = _record(folder, faults)
    settings, text = _settings(folder, faults)
    config = _config(settings, record.get("config_hash"), faults) if text else None
    reader = folder.rollout_reader()
    metrics = _metrics(folder, faults)
    faults += _gaps(metrics, reader.steps, record.get("summary", {}))
    return RunContents(
        folder=folder,
        record=record,
        settings=settings,
        config=config,
        config_text=text,
        metrics=metrics,
        reader=reader,
        faults=faults,
    )


def read_rollouts(run: RunContents, columns: Sequence[str], steps: Sequence[int] | None = None) -> Rollouts:
    """Columns of the rollouts of all steps, or of `steps`. Notes name the steps that cannot be read.

    Raises:
        RecordError: There are no rollouts, a step that was asked for is not there, or no step can be read.
    """
    known = run.steps
    wanted = list(known if steps is None else steps)
    if not known:
        raise RecordError(
            f"{run.folder.path}: no rollouts, so there is nothing to analyze. Has its first step not ended yet?"
        )
    for step in wanted:
        if step not in known:
            raise RecordError(
                f"{run.folder.path}: no rollouts of step {step}; there are steps {known[0]} to {known[-1]}."
            )
    tables, faults = {}, []
    for step in wanted:
        try:
            table = run.reader.read(step, columns)
            if not len(table):
                raise RecordError(f"step {step}: its file has no rows.")
            tables[step] = table
        except RecordError as error:
            faults.append(str(error))
    if not tables:
        raise RecordError(f"{faults[0]} Was the run written by another version of gar?")
    notes = [f"{len(faults)} of {len(wanted)} steps left out, the first: {faults[0]}"] if faults else []
    notes += [f"{note}." for note in uneven({step: len(table) for step, table in tables.items()})]
    return Rollouts(table=pa.concat_tables(tables.values()), steps=list(tables), notes=notes)


def uneven(num_rows: Mapping[int, int]) -> list[str]:
    """A note if a step has fewer rows than others, since every step of a run samples the same number of responses."""
    usual = max(num_rows.values(), default=0)
    fewer = [step for step, count in num_rows.items() if count < usual]
    return [f"step {fewer[0]} has {num_rows[fewer[0]]} rollouts where others have {usual}"] if fewer else []


def _record(folder: RunFolder, faults: list[str]) -> dict[str, Any]:
    try:
        values = read_json(folder.run_path)
    except RecordError as error:
        faults.append(f"run.json cannot be read, so versions, machine and status are unknown ({error})")
        return {}
    record, wrong = sound_fields(RunRecord, values)
    faults += [f"run.json: {fault}, which is left out" for fault in wrong]
    lacking = {field.name for field in fields(RunRecord) if field.default is MISSING} - values.keys()
    if lacking:
        faults.append(
            f"run.json lacks {', '.join(sorted(lacking))}: it was written by another version of gar. The rest is shown"
        )
    return record


def _settings(folder: RunFolder, faults: list[str]) -> tuple[Mapping[str, Any], str]:
    """`config.yaml` as plain values and as text, both empty where it cannot be read."""
    path = folder.path / "config.yaml"
    try:
        text = path.read_text(encoding="utf-8")
        values = parse_yaml(text, str(path))
        if not isinstance(values, Mapping):
            raise ConfigError(f"{path}: expected settings, got {reprlib.repr(values)}. Was the file cut off?")
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        why = io_error(path, "read", error) if isinstance(error, OSError) else error
        faults.append(f"config.yaml cannot be read, so the settings are unknown ({why})")
        return {}, ""
    return values, text


def _config(values: Mapping[str, Any], config_hash: object, faults: list[str]) -> RunConfig | None:
    if isinstance(config_hash, str) and settings_hash(values) != config_hash:
        faults.append("config.yaml does not hold the settings that run.json has the hash of: it was edited or cut off")
    if values.get("plugins"):  # reading a run runs nobody's code
        hidden = ("plugins", "method")
        values = {
            name: value for name, value in values.items() if name in RunConfig.model_fields and name not in hidden
        }
    try:
        return make_config(values, source="config.yaml")
    except ConfigError as error:
        faults.append(f"config.yaml is from another version of gar and is shown unchanged ({error})")
        return None


def _metrics(folder: RunFolder, faults: list[str]) -> list[dict[str, Any]]:
    try:
        rows, wrong = sound_numbers(folder.metrics_path)
    except RecordError as error:
        faults.append(f"metrics.jsonl cannot be read ({error})")
        return []
    if wrong:
        faults.append(f"lines or values of metrics.jsonl left out: {len(wrong)}, the first: {wrong[0]}")
    return rows


def _gaps(metrics: Sequence[Mapping[str, Any]], steps: Sequence[int], summary: Mapping[str, Any]) -> list[str]:
    """Recorded steps whose metrics or rollouts are lost."""
    gaps = []
    last, expected = metrics[-1]["step"] if metrics else 0, summary.get("steps")
    if isinstance(expected, int) and last < expected:
        gaps.append(f"metrics.jsonl ends at step {last} of {expected}: the rest of it is lost")
    recorded = set(steps)
    lost = [row["step"] for row in metrics if row.get("time/generation_seconds") and row["step"] not in recorded]
    if recorded and lost:
        gaps.append(f"the rollouts of {len(lost)} steps are lost, the first of step {lost[0]}")
    return gaps
