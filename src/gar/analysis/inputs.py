"""What analyses read of a run folder, and what they say where it is not whole."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from gar.config import RunConfig, make_config, read_config
from gar.errors import ConfigError, RecordError
from gar.records import RunFolder, RunRecord, canonical_hash
from gar.records.checked import sound_fields
from gar.records.files import read_json


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInput:
    """A run folder as it is now.

    Attributes:
        folder: The folder.
        name: Its name, for titles.
        config: Its settings, those of an older version with today's defaults; None where they cannot be read.
        steps: Steps whose rollouts are there.
        metrics: Logged steps.
        notes: What a reader of the analysis must know of it, in sentences.
    """

    folder: RunFolder
    name: str
    config: RunConfig | None
    steps: Sequence[int]
    metrics: Sequence[Mapping[str, Any]]
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollouts:
    """Columns of the rollouts of several steps, one step after the other, and what was left out."""

    table: pa.Table
    steps: Sequence[int]
    notes: Sequence[str]


def is_run_folder(path: str | Path) -> bool:
    """Whether there is a run, whole or not: `run.json` or rollouts."""
    return (Path(path) / "run.json").is_file() or (Path(path) / "rollouts").is_dir()


def open_run(path: str | Path) -> RunInput:
    """A run folder, whatever state it is in. What is odd about it is told in `notes`.

    Raises:
        RecordError: There is no such folder, or neither `run.json` nor rollouts in it.
    """
    path = Path(path)
    if not path.is_dir():
        raise RecordError(f"{path}: no such folder. A run folder is what `gar train` writes, by default in runs/.")
    if not is_run_folder(path):
        raise RecordError(f"{path}: not a run folder: it has neither run.json nor rollouts/.")
    folder = RunFolder(path)
    name = path.resolve().name
    steps = folder.rollout_steps()
    record, notes = read_record(folder) if folder.run_path.is_file() else ({}, [])
    settings = read_settings(folder, record.get("config_hash"))
    metrics, faults = tolerant_metrics(folder)
    notes += [*settings.notes, *faults, *folder.gaps(metrics, record.get("summary", {}))]
    return RunInput(
        folder=folder,
        name=name,
        config=settings.config,
        steps=steps,
        metrics=metrics,
        notes=[*_notes(folder, name, steps, record), *(f"{name}: {note}." for note in notes)],
    )


def read_rollouts(run: RunInput, columns: Sequence[str], steps: Sequence[int] | None = None) -> Rollouts:
    """Some columns of the rollouts of all steps, or of those given. A step that cannot be read is left out, and told.

    Raises:
        RecordError: There are no rollouts, a step that was asked for is not there, or no step can be read.
    """
    wanted = list(run.steps if steps is None else steps)
    if not run.steps:
        raise RecordError(
            f"{run.folder.path}: no rollouts, so there is nothing to analyse. Was it run with records.rollouts false, "
            "or has its first step not ended yet?"
        )
    for step in wanted:
        if step not in run.steps:
            raise RecordError(
                f"{run.folder.path}: no rollouts of step {step}; there are steps {run.steps[0]} to {run.steps[-1]}."
            )
    reader = run.folder.rollout_reader()
    tables, read, faults = [], [], []
    for step in wanted:
        try:
            table = reader.read(step, columns)
            if not len(table):
                raise RecordError(f"step {step}: its file has no rows.")
            tables.append(table)
            read.append(step)
        except RecordError as error:
            faults.append(str(error))
    if not tables:
        raise RecordError(f"{faults[0]} Was the run written by another version of gar?")
    notes = [f"{len(faults)} of {len(wanted)} steps left out, the first: {faults[0]}"] if faults else []
    notes += [f"{note}." for note in uneven({step: len(rows) for step, rows in zip(read, tables, strict=True)})]
    return Rollouts(table=pa.concat_tables(tables), steps=read, notes=notes)


def uneven(num_rows: Mapping[int, int]) -> list[str]:
    """A note where a step has fewer rows than others, since every step of a run samples as many responses."""
    usual = max(num_rows.values(), default=0)
    fewer = [step for step, count in num_rows.items() if count < usual]
    if not fewer:
        return []
    return [f"step {fewer[0]} has {num_rows[fewer[0]]} rollouts where others have {usual}"]


def tolerant_metrics(folder: RunFolder) -> tuple[list[dict[str, Any]], list[str]]:
    """What can be used of `metrics.jsonl`, and what is wrong with it."""
    try:
        rows, faults = folder.sound_numbers()
    except RecordError as error:
        return [], [f"metrics.jsonl cannot be read ({error})"]
    return rows, [f"lines or values of metrics.jsonl left out: {len(faults)}, the first: {faults[0]}"] if faults else []


def read_record(folder: RunFolder) -> tuple[dict[str, Any], list[str]]:
    """What `run.json` says, as far as it can be read, and what is wrong with it; empty where it cannot be read."""
    try:
        values = read_json(folder.run_path)
    except RecordError as error:
        return {}, [f"run.json cannot be read, so versions, machine and status are unknown ({error})"]
    record, faults = sound_fields(RunRecord, values)
    notes = [f"run.json: {fault}, which is left out" for fault in faults]
    lacking = {field.name for field in fields(RunRecord) if field.default is MISSING} - values.keys()
    if lacking:
        notes.append(
            f"run.json lacks {', '.join(sorted(lacking))}: it was written by another version of gar. The rest is shown"
        )
    return record, notes


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadSettings:
    """What `config.yaml` says.

    Attributes:
        values: As plain values; empty where they cannot be read.
        config: The same, checked, those of an older version with today's defaults; None where they cannot be taken.
        text: The file.
        notes: What is wrong with it.
    """

    values: Mapping[str, Any]
    config: RunConfig | None
    text: str
    notes: Sequence[str]


def read_settings(folder: RunFolder, config_hash: object = None) -> ReadSettings:
    """The settings of a run.

    Args:
        folder: The run folder.
        config_hash: That of `run.json`, to tell whether the file is what the run was started with.
    """
    path = folder.path / "config.yaml"
    try:
        values = read_config(path)
        text = path.read_text(encoding="utf-8")
        if not isinstance(values, Mapping):
            raise ConfigError(f"{path}: expected settings, got {reprlib.repr(values)}. Was the file cut off?")
    except (ConfigError, OSError) as error:
        notes = [f"config.yaml cannot be read, so the settings are unknown ({error})"]
        return ReadSettings(values={}, config=None, text="", notes=notes)
    notes = []
    if isinstance(config_hash, str) and _plain_hash(values) != config_hash:
        notes.append("config.yaml does not hold the settings that run.json has the hash of: it was edited or cut off")
    try:
        config = make_config(values, source="config.yaml")
    except ConfigError as error:
        notes.append(f"config.yaml is from another version of gar and is shown as it stands ({error})")
        config = None
    return ReadSettings(values=values, config=config, text=text, notes=notes)


def _plain_hash(values: Mapping[str, Any]) -> str | None:
    try:
        return canonical_hash(values)
    except (TypeError, ValueError):  # keys of several types, NaN
        return None


def _notes(folder: RunFolder, name: str, steps: Sequence[int], record: Mapping[str, Any]) -> list[str]:
    shown = f"steps {steps[0]} to {steps[-1]}" if steps else "no step"
    status = record.get("status")
    if not folder.run_path.is_file():
        return [f"{name} has no run.json, so nothing is known of how it ended; {shown} shown."]
    if status == "running":
        return [f"{name} is still being written, or was killed: {shown} shown, as they stand now."]
    return [] if status in ("finished", None) else [f"{name} {status}: {shown} shown."]
