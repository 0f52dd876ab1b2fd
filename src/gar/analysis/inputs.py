"""What analyses read of a run folder, and what they say where it is not whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from gar.config import RunConfig, make_config, read_config
from gar.errors import ConfigError, RecordError
from gar.records import RunFolder

_SHOWN_ERRORS = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInput:
    """A run folder as it is now.

    Attributes:
        folder: The folder.
        name: Its name, for titles.
        config: Its settings, those of an older version with today's defaults; None where they cannot be read.
        steps: Steps whose rollouts are there.
        notes: What a reader of the analysis must know of it, in sentences.
    """

    folder: RunFolder
    name: str
    config: RunConfig | None
    steps: Sequence[int]
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
    config, notes = _config(folder)
    return RunInput(
        folder=folder, name=name, config=config, steps=steps, notes=[*_status_notes(folder, name, steps), *notes]
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
            tables.append(reader.read(step, columns))
            read.append(step)
        except RecordError as error:
            faults.append(str(error))
    if not tables:
        raise RecordError(f"{faults[0]} Was the run written by another version of gar?")
    notes = [f"{len(faults)} of {len(wanted)} steps left out, the first: {faults[0]}"] if faults else []
    return Rollouts(table=pa.concat_tables(tables), steps=read, notes=notes)


def _status_notes(folder: RunFolder, name: str, steps: Sequence[int]) -> list[str]:
    shown = f"steps {steps[0]} to {steps[-1]}" if steps else "no step"
    if not folder.run_path.is_file():
        return [f"{name} has no run.json, so nothing is known of how it ended; {shown} shown."]
    try:
        run = folder.read_run()
    except RecordError as error:
        return [f"{error} Its rollouts are shown all the same."]
    if run.status == "running":
        return [f"{name} is still being written, or was killed: {shown} shown, as they stand now."]
    return [] if run.status == "finished" else [f"{name} {run.status}: {shown} shown."]


def _config(folder: RunFolder) -> tuple[RunConfig | None, list[str]]:
    path = folder.path / "config.yaml"
    try:
        return make_config(read_config(path), source=str(path)), []
    except ConfigError as error:
        return None, [f"Its settings cannot be read: {error}"]
