"""The folder of one run. This module writes it, `gar.records.run` reads it.

    runs/NAME/
      run.json                      versions, machine, seed, command, hashes, times, status, summary
      config.yaml                   the resolved configuration
      metrics.jsonl                 one object per logged step
      manifest.jsonl                every finished file below, with size and checksum. See `gar.records.manifest`
      rollouts/                     one row per response, see `gar.records.rollout_files`
      evaluation/before.json        pass@k. Also after.json
      evaluation/before.parquet     every sample of that evaluation, see `gar.records.rollouts`. Also after.parquet
      checkpoints/                  see checkpoints.py
      model/                        the final model. With an adapter the merged one, and adapter/ beside it

A run folder has one writer at a time.
"""

import os
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Self

from gar.config import dump_yaml
from gar.errors import RecordError
from gar.records.files import (
    atomic_folder,
    canonical_hash,
    checked,
    json_text,
    remove_file,
    system_errors,
    truncate,
    utc_now,
    write_atomic,
    write_parquet,
)
from gar.records.manifest import MANIFEST, Manifest
from gar.records.rollout_files import GROWING, append_rollouts, close_rollouts, file_steps
from gar.records.rollouts import SAMPLE_SCHEMA, RolloutRecord, SampleRecord, record_table
from gar.records.run_record import RunRecord, RunStatus, package_versions

RUN, CONFIG, METRICS = "run.json", "config.yaml", "metrics.jsonl"


def check_run_folder(path: str | Path, *names: str) -> None:
    """Raise an error if a folder does not exist, or has none of these files and folders."""
    path = Path(path)
    if not path.is_dir():
        raise RecordError(f"{path}: no such folder. A run folder is what `gar train` writes, by default in runs/.")
    if not any((path / name).exists() for name in names):
        raise RecordError(f"{path}: not a run folder: it has no {' or '.join(names)}. Did you mean a folder inside it?")


def check_free(path: Path) -> None:
    """Raise a `RecordError` if a new run cannot have this folder.

    It can have what a kill or a full disk leaves before there is a run.json: a lock or a manifest, maybe with settings.
    """
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else {RUN} if path.exists() else set()
    is_leftover = names & {".lock", MANIFEST} and all(name in (CONFIG, MANIFEST) or name[0] == "." for name in names)
    if not names or (is_leftover and not RunFolder(path).is_begun()):
        return
    what, ways = "this exists, and is not a run folder", ""
    if (path / RUN).exists():
        what = "a run with this name exists"
        ways = f" To continue that run: --resume {path}, or the same command with --resume-if-exists."
    raise RecordError(f"{path}: {what}.{ways} For a new run choose another --records.name.", code="taken")


def checkpoint_name(step: int) -> str:
    """`checkpoints/checkpoint-12` for step 12."""
    return f"checkpoints/checkpoint-{step}"


def read_record(manifest: Manifest) -> RunRecord:
    """The record in `run.json`. A `RecordError` if a field is missing, or anything was changed."""
    return checked(RunRecord, manifest.read_json(RUN), str(manifest.folder / RUN))


@dataclass(slots=True)
class RunFolder:
    """Writes one run folder. Every write is complete or changes nothing, and finished files are listed in its manifest.

    Attributes:
        path: The folder.
        manifest: Its manifest.

    Raises:
        RecordError: From any method, when the system reports an error or a file is not what it should be.
    """

    path: Path
    manifest: Manifest = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.manifest = Manifest(self.path, keep_lines=True)

    @classmethod
    def create(cls, parent: str | Path, name: str, *, numbered: bool = False) -> Self:
        """Make the folder `parent/name`. With `numbered`, `name-2`, `name-3`, ... if that exists.

        Raises:
            RecordError: The name is taken, or the system reports an error.
        """
        path = Path(parent) / name
        for number in count(2):
            with system_errors(path, "made"), suppress(FileExistsError):
                path.mkdir(parents=True)
                break
            if not numbered:
                check_free(path)
                break
            path = Path(parent) / f"{name}-{number}"
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """The run folder at `path`. A `RecordError` if it does not exist, or has no readable run.json."""
        check_run_folder(path, RUN)
        folder = cls(Path(path))
        folder.read_run()
        return folder

    def is_begun(self) -> bool:
        """Whether the folder holds more than a kill leaves before `run.json` is written."""
        more = self.manifest.entries.keys() - {RUN, CONFIG} or self.manifest.own_faults
        return bool(more) or os.path.lexists(self.path / RUN)

    @property
    def checkpoints(self) -> Path:
        """`checkpoints/`."""
        return self.path / "checkpoints"

    def at_checkpoint(self, step: int) -> Manifest:
        """The manifest as it was when the checkpoint of a step was sealed."""
        return self.manifest.until(f"{checkpoint_name(step)}/")

    def write_run(
        self,
        *,
        seed: int,
        command: Sequence[str],
        config: Mapping[str, Any],
        data_hash: str | None,
    ) -> None:
        """Write `config.yaml` and `run.json` with status running and the versions and machine of this process.

        `config` is the resolved configuration as plain values, and `data_hash` the hash of the training problems, None
        if unknown. `command` begins with the program.
        """
        for leftover in (CONFIG, MANIFEST):  # of a kill, see `check_free`
            remove_file(self.path / leftover)
        self.manifest.replace(CONFIG, dump_yaml(config).encode())  # never without a manifest
        self._write_run(
            RunRecord(
                manifest=self.manifest.id,
                status="running",
                start_time=utc_now(),
                seed=seed,
                command=shlex.join(command),
                config_hash=canonical_hash(config),
                data_hash=data_hash,
                versions=package_versions(),
                platform=platform.platform(),
                cpu_count=os.cpu_count(),
                summary={},
                settings=config,
            )
        )

    def read_run(self) -> RunRecord:
        """The record in `run.json`."""
        return read_record(self.manifest)

    def update_run(
        self,
        *,
        status: RunStatus | None = None,
        summary: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        """Change `run.json`. Arguments that are None change nothing.

        Status "running" is a resume: its time is added to `resume_times`, `end_time` and `error` are cleared. Any other
        status sets `end_time`, and `error` to what ended the run. At "finished", metrics and rollouts grow no more.
        """
        run = self.read_run()
        if status == "running":
            times = [*run.resume_times, utc_now()]
            run = replace(run, status=status, resume_times=times, end_time=None, error=None)
        elif status is not None:
            run = replace(run, status=status, end_time=utc_now(), error=error)
        if status == "finished":
            self.close_rollouts()
            if METRICS in self.manifest.entries:
                self.manifest.close(METRICS)
        self._write_run(run if summary is None else replace(run, summary=summary))

    def record_override(
        self, changes: Mapping[str, Any], *, step: int, config: Mapping[str, Any], data_hash: str
    ) -> None:
        """Record in `run.json` that the run was resumed after `step` with `changes`: old and new value by name."""
        run = self.read_run()
        entry = {"time": utc_now(), "after_step": step, "changes": changes, "config_hash": run.config_hash}
        overrides, hashed = [*run.overrides, entry], canonical_hash(config)
        self.manifest.add(CONFIG)
        self._write_run(replace(run, config_hash=hashed, settings=config, data_hash=data_hash, overrides=overrides))

    def _write_run(self, run: RunRecord) -> None:
        self.manifest.replace(RUN, json_text(asdict(run), indent=2).encode() + b"\n")

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Add a line to `metrics.jsonl`. It survives a kill as soon as this returns. NaN and infinity become null.

        `metrics` are numbers by name, among them the whole number "step".
        """
        self.manifest.append(METRICS, json_text(metrics).encode() + b"\n")

    def write_rollouts(self, records: Sequence[RolloutRecord]) -> None:
        """Add the rollouts of a step. They survive a kill as soon as this returns.

        Raises:
            RecordError: The system reports an error. Earlier rollouts are intact.
            ValueError: A value does not fit its column.
        """
        append_rollouts(self.manifest, record_table(records))

    def close_rollouts(self) -> None:
        """Make a file of the steps since the last one."""
        close_rollouts(self.manifest)

    def write_samples(self, moment: str, records: Sequence[SampleRecord]) -> None:
        """Write every sample of the evaluation "before" or "after" training."""
        path = self.path / "evaluation" / f"{moment}.parquet"
        write_parquet(path, record_table(records, SAMPLE_SCHEMA))
        self.manifest.add(path)

    def write_json(self, relative: str, value: Mapping[str, Any]) -> None:
        """Write one JSON object, for example `evaluation/before.json`. NaN and infinity become null."""
        write_atomic(self.path / relative, json_text(value, indent=2) + "\n")
        self.manifest.add(relative)

    @contextmanager
    def new_folder(self, name: str) -> Iterator[Path]:
        """A folder to write, for example `model`, as `atomic_folder`. It is listed when everything is written."""
        with atomic_folder(self.path / name) as staged:
            yield staged
        self.manifest.add_folder(name)

    def cut(self, step: int) -> None:
        """Go back to the checkpoint of a step, 0 for the start: remove later metrics and rollouts. Can be repeated."""
        entries = self.at_checkpoint(step).entries
        for name in (GROWING, *(f"rollouts/{path.name}" for path in self.path.glob("rollouts/*"))):
            if (name == GROWING or file_steps(name)) and name not in entries:
                remove_file(self.path / name)
        if (self.path / METRICS).exists():
            truncate(self.path / METRICS, entries[METRICS].size if METRICS in entries else 0)
        # Last: until then this can be repeated.
        self.manifest.cut(until=f"{checkpoint_name(step)}/", only=("rollouts", "checkpoints/", METRICS))
