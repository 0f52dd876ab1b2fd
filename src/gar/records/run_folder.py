"""The folder of one run. This module writes it, `gar.records.run` reads it.

    runs/NAME/
      run.json                      versions, machine, seed, command, hashes, times, status, summary: written first
      config.yaml                   the resolved configuration
      metrics.jsonl                 one object per logged step, see `gar.records.metrics`
      rollouts/                     one row per response, see `gar.records.rollouts`
      evaluation/before/SET/        an evaluation, see `gar.records.evaluations`. Also after/SET
      checkpoints/                  see checkpoints.py
      model/                        the final model. With an adapter the merged one, and adapter/ beside it
      SHA256SUMS                    checksums of everything above, once the run is finished: `sha256sum -c` checks it

Every file is complete or absent but for metrics and the stream of rollouts, of which a kill tears the end. A run folder
has one writer at a time.
"""

import hashlib
import os
import platform
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
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
    read_json,
    remove_file,
    system_errors,
    truncate,
    utc_now,
    write_atomic,
)
from gar.records.metrics import METRICS, append_metrics, beginning
from gar.records.rollouts import GROWING, RolloutRecord, append_rollouts, close_rollouts, record_table, rollout_files
from gar.records.run_record import RunRecord, RunStatus, package_versions
from gar.records.sums import SUMS, file_sum, files_below, read_sums, write_sums

RUN, CONFIG, EVALUATION = "run.json", "config.yaml", "evaluation"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_UNWRITTEN = re.compile(r"\.lock|\..*\.partial")


def check_run_folder(path: str | Path, *names: str) -> None:
    """Raise an error if a folder does not exist, or has none of these files and folders."""
    path = Path(path)
    if not path.is_dir():
        raise RecordError(f"{path}: no such folder. A run folder is what `gar train` writes, by default in runs/.")
    if not any((path / name).exists() for name in names):
        raise RecordError(f"{path}: not a run folder: it has no {' or '.join(names)}. Did you mean a folder inside it?")


def check_free(path: Path) -> None:
    """Raise a `RecordError` if a new run cannot have this folder.

    It can have what a kill or a full disk leaves before there is a `run.json`: a lock, or a file that was not complete.
    """
    if not RunFolder(path).is_begun():
        return
    what, ways = "this exists, and is not a run folder", ""
    if (path / RUN).exists():
        what = "a run with this name exists"
        ways = f" To continue that run: --resume {path}, or the same command with --resume-if-exists."
    raise RecordError(f"{path}: {what}.{ways} For a new run choose another --records.name.", code="taken")


def checkpoint_name(step: int) -> str:
    """`checkpoints/checkpoint-12` for step 12."""
    return f"checkpoints/checkpoint-{step}"


def sealed_sums(run: Path, step: int) -> dict[str, str]:
    """What `SHA256SUMS` of a checkpoint lists, by name relative to the run folder. See `gar.records.checkpoints`."""
    folder = checkpoint_name(step)
    return {posixpath.normpath(f"{folder}/{name}"): digest for name, digest in read_sums(run / folder).items()}


def read_record(path: Path) -> RunRecord:
    """The record in `run.json` of a run folder. A `RecordError` if a field is missing, or a setting was changed."""
    place = str(path / RUN)
    record = checked(RunRecord, read_json(path / RUN), place)
    if record.config_hash != canonical_hash(record.settings):
        raise RecordError(f"{place}: the settings are not those of config_hash. Was the file changed by hand?")
    return record


def finished_sums(path: Path) -> dict[str, str]:
    """The checksums of a finished run, by name. Empty if it is not finished. A `RecordError` if they are missing."""
    sums = read_sums(path)
    if not sums and read_record(path).status == "finished":
        raise RecordError(f"{path / SUMS}: is missing or empty, and the run is finished.", code="damage")
    return sums


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Writes one run folder. Every write is complete or changes nothing.

    Attributes:
        path: The folder.

    Raises:
        RecordError: From any method, when the system reports an error or a file is not what it should be.
    """

    path: Path

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
        """Whether the run got far enough to write `run.json`, its first file. Any other file counts, too."""
        if not self.path.is_dir():
            return os.path.lexists(self.path)
        return not all(_UNWRITTEN.fullmatch(entry.name) for entry in self.path.iterdir())

    @property
    def checkpoints(self) -> Path:
        """`checkpoints/`."""
        return self.path / "checkpoints"

    def checkpoint_steps(self) -> list[int]:
        """The steps of the checkpoints that the trainer wrote or began, ascending. Other folders are ignored."""
        found = ((path, _CHECKPOINT.fullmatch(path.name)) for path in self.checkpoints.glob("*"))
        return sorted(int(match[1]) for path, match in found if match and path.is_dir())

    def write_run(
        self,
        *,
        seed: int,
        command: Sequence[str],
        config: Mapping[str, Any],
        data_hash: str | None,
    ) -> None:
        """Write `run.json`, with status running and the versions and machine of this process, then `config.yaml`.

        `config` is the resolved configuration as plain values, and `data_hash` the hash of the training problems, None
        if unknown. `command` begins with the program.
        """
        # run.json comes first: its presence says that the run began, and it also holds what config.yaml does.
        self._write_run(
            RunRecord(
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
        write_atomic(self.path / CONFIG, dump_yaml(config))

    def read_run(self) -> RunRecord:
        """The record in `run.json`."""
        return read_record(self.path)

    def update_run(
        self,
        *,
        status: RunStatus | None = None,
        summary: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        """Change `run.json`. Arguments that are None change nothing.

        Status "running" is a resume: its time is added to `resume_times`, `end_time` and `error` are cleared. Any other
        status sets `end_time`, and `error` to what ended the run. At "finished", `SHA256SUMS` lists all files.
        """
        run = self.read_run()
        if status == "running":
            times = [*run.resume_times, utc_now()]
            run = replace(run, status=status, resume_times=times, end_time=None, error=None)
        elif status is not None:
            run = replace(run, status=status, end_time=utc_now(), error=error)
        run = run if summary is None else replace(run, summary=summary)
        if status == "finished":
            self.close_rollouts()
            self._write_sums(run)  # before run.json: a finished run has its checksums
        self._write_run(run)
        if status not in (None, "finished"):
            remove_file(self.path / SUMS)

    def record_override(
        self, changes: Mapping[str, Any], *, step: int, config: Mapping[str, Any], data_hash: str
    ) -> None:
        """Record in `run.json` that the run was resumed after `step` with `changes`: old and new value by name."""
        run = self.read_run()
        entry = {"time": utc_now(), "after_step": step, "changes": changes, "config_hash": run.config_hash}
        overrides, hashed = [*run.overrides, entry], canonical_hash(config)
        self._write_run(replace(run, config_hash=hashed, settings=config, data_hash=data_hash, overrides=overrides))

    def _write_run(self, run: RunRecord) -> None:
        write_atomic(self.path / RUN, _run_text(run))

    def _write_sums(self, run: RunRecord) -> None:
        """List every file. Those of checkpoints keep the checksums with which they were sealed."""
        known = dict[str, str]()
        for step in self.checkpoint_steps():
            with suppress(RecordError):  # damaged: then its files are read
                known |= sealed_sums(self.path, step)
        known.pop(METRICS, None)  # of its beginning
        known[RUN] = hashlib.sha256(_run_text(run).encode()).hexdigest()
        names = files_below(self.path)
        write_sums(self.path, {name: known.get(name) or file_sum(self.path / name) for name in names})

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Add a line to `metrics.jsonl`: numbers by name, among them the whole number "step".

        It survives a kill as soon as this returns. NaN and infinity become null.
        """
        append_metrics(self.path / METRICS, metrics)

    def write_rollouts(self, records: Sequence[RolloutRecord]) -> None:
        """Add the rollouts of a step. They survive a kill as soon as this returns.

        Raises:
            RecordError: The system reports an error. Earlier rollouts are intact.
            ValueError: A value does not fit its column.
        """
        append_rollouts(self.path, record_table(records))

    def close_rollouts(self) -> None:
        """Make a file of the steps since the last one."""
        close_rollouts(self.path)

    def add_result(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file into the folder of a finished run, and list it."""
        write_atomic(self.path / name, json_text(value) + "\n")
        write_sums(self.path, read_sums(self.path) | {name: file_sum(self.path / name)})

    def new_folder(self, name: str) -> AbstractContextManager[Path]:
        """A folder to write, for example `model`, as `atomic_folder`."""
        return atomic_folder(self.path / name)

    def cut(self, step: int) -> None:
        """Go back to the checkpoint of a step, 0 for the start: later records do not count. Can be repeated."""
        # Checkpoints lose their mark before the records that they list go, so that a kill in between is repaired.
        for later in self.checkpoint_steps():
            if later > step:
                remove_file(self.path / checkpoint_name(later) / SUMS)
        remove_file(self.path / GROWING)
        for name, (first, _) in rollout_files(self.path).items():
            if first > step:
                remove_file(self.path / name)
        if (self.path / METRICS).exists():
            truncate(self.path / METRICS, beginning(self.path / METRICS, step)[0] if step else 0)
        if not (self.path / CONFIG).exists():  # killed before it was written
            write_atomic(self.path / CONFIG, dump_yaml(self.read_run().settings))


def _run_text(run: RunRecord) -> str:
    return json_text(asdict(run), indent=2) + "\n"
