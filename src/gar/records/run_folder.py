"""The folder of one run.

    runs/NAME/
      run.json                      versions, machine, seed, command, hashes, times, status, summary
      config.yaml                   the resolved configuration
      metrics.jsonl                 one object per logged step
      rollouts/step-000112.parquet  one row per response, see `gar.records.shards`
      evaluation/before.json        pass@k; also after.json
      evaluation/before.parquet     every sample of that evaluation, see `gar.records.samples`; also after.parquet
      checkpoints/                  see checkpoints.py
      model/                        the final model; with an adapter the merged one, and adapter/ beside it

A run folder has one writer at a time.
"""

import os
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from gar.errors import RecordError
from gar.records.evaluations import EvaluatedSet, evaluated_sets
from gar.records.files import (
    append_line,
    canonical_hash,
    io_error,
    json_text,
    read_json,
    utc_now,
    write_atomic,
    write_parquet,
)
from gar.records.folders import check_name
from gar.records.metrics import sound_metrics, sound_numbers
from gar.records.rollouts import ROLLOUT_SCHEMA, RolloutRecord, record_table
from gar.records.run_record import RunRecord, RunStatus, package_versions, read_record
from gar.records.shards import RolloutFile, RolloutReader, block_ended, cut_rollouts, merge_rollouts


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Reads and writes one run folder. Every write is complete or changes nothing.

    Attributes:
        path: The folder.

    Raises:
        RecordError: From any method, when the system reports an error or a file is not what it should be.
    """

    path: Path

    @classmethod
    def create(cls, parent: str | Path, name: str) -> Self:
        """Make the folder `parent/name`, or `name-2`, `name-3`, ... if that exists.

        Raises:
            RecordError: The name is not a plain folder name, or the system reports an error.
        """
        check_name(parent, name)
        path = Path(parent) / name
        for number in count(2):
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:
                path = Path(parent) / f"{name}-{number}"
            except OSError as error:
                raise io_error(path, "made", error) from error
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """The run folder at `path`.

        Raises:
            RecordError: The folder does not exist, or has no readable run.json.
        """
        folder = cls(Path(path))
        if not folder.path.is_dir():
            raise RecordError(f"{path}: no such folder. A run folder is what `gar train` writes, by default in runs/.")
        if not folder.run_path.is_file():
            raise RecordError(f"{path}: not a run folder: it has no run.json. Did you mean a folder inside it?")
        folder.read_run()
        return folder

    @property
    def run_path(self) -> Path:
        """`run.json`."""
        return self.path / "run.json"

    @property
    def metrics_path(self) -> Path:
        """`metrics.jsonl`."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """`checkpoints/`."""
        return self.path / "checkpoints"

    @property
    def rollouts_folder(self) -> Path:
        """`rollouts/`."""
        return self.path / "rollouts"

    def rollouts_path(self, step: int) -> Path:
        """`rollouts/step-000012.parquet` for step 12: the file of its rollouts until their block is merged."""
        return RolloutFile(self.rollouts_folder, step, step).path

    # ------------------------------------------------------------------------------------------ the run itself

    def write_run(
        self,
        *,
        seed: int,
        command: Sequence[str],
        config: Mapping[str, Any],
        config_text: str,
        data_hash: str | None,
    ) -> None:
        """Write `config.yaml`, then `run.json` with status running and the versions and machine of this process.

        Args:
            seed: Seed of the run.
            command: Arguments of the command line, the program first.
            config: The resolved configuration as plain values.
            config_text: The same as YAML.
            data_hash: Hash of the training problems; None if unknown.
        """
        write_atomic(self.path / "config.yaml", config_text)
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

    def read_run(self) -> RunRecord:
        """The record in `run.json`."""
        return read_record(self.run_path)

    def update_run(
        self,
        *,
        status: RunStatus | None = None,
        summary: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        """Change `run.json`. Arguments that are None change nothing.

        Status "running" is a resume: its time is added to `resume_times`, `end_time` and `error` are cleared. Any other
        status sets `end_time`, and `error` to what ended the run.
        """
        run = self.read_run()
        if status == "running":
            run = replace(run, status=status, resume_times=[*run.resume_times, utc_now()], end_time=None, error=None)
        elif status is not None:
            run = replace(run, status=status, end_time=utc_now(), error=error)
        self._write_run(run if summary is None else replace(run, summary=summary))

    def record_override(
        self, changes: Mapping[str, Any], *, step: int, config: Mapping[str, Any], data_hash: str
    ) -> None:
        """Record in `run.json` that the run was resumed with changes.

        Args:
            changes: Old and new value by name.
            step: The step after which the run was resumed.
            config: The resolved configuration as plain values.
            data_hash: Hash of the training problems.
        """
        run = self.read_run()
        entry = {"time": utc_now(), "after_step": step, "changes": changes}
        self._write_run(
            replace(
                run,
                config_hash=canonical_hash(config),
                settings=config,
                data_hash=data_hash,
                overrides=[*run.overrides, entry],
            )
        )

    def _write_run(self, run: RunRecord) -> None:
        write_atomic(self.run_path, json_text(asdict(run), indent=2) + "\n")

    # ------------------------------------------------------------------------------------------------- metrics

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Add a line to `metrics.jsonl`; it survives a kill as soon as this returns. NaN and infinity become null.

        Args:
            metrics: Numbers by name, among them the whole number "step".

        Raises:
            RecordError: The system reports an error. All earlier lines are intact.
            ValueError: There is no "step".
        """
        step = metrics.get("step")
        if not isinstance(step, int) or isinstance(step, bool):
            raise ValueError(f"metrics need a whole number under 'step', got {step!r} among {sorted(metrics)}")
        append_line(self.metrics_path, json_text(metrics).encode())

    def read_metrics(self) -> list[dict[str, Any]]:
        """All lines of `metrics.jsonl` but the torn last line of a killed writer; none without the file.

        Raises:
            RecordError: The file cannot be read, or a line is not what `append_metrics` wrote.
        """
        return _all_sound(sound_metrics(self.metrics_path))

    def read_numbers(self) -> list[dict[str, Any]]:
        """As `read_metrics`, without values that are not numbers, such as a text that a callback has logged.

        Raises:
            RecordError: As `read_metrics`; or a value is a number in one line and something else in another.
        """
        return _all_sound(sound_numbers(self.metrics_path))

    def truncate_metrics(self, after_step: int) -> None:
        """Drop all lines of later steps, and a torn last line."""
        if self.metrics_path.exists():
            kept = [row for row in self.read_metrics() if row["step"] <= after_step]
            write_atomic(self.metrics_path, "".join(json_text(row) + "\n" for row in kept))

    # ------------------------------------------------------------------------------------------------ rollouts

    def write_rollouts(self, step: int, records: Sequence[RolloutRecord]) -> None:
        """Write the rollouts of a step, replacing earlier ones. Equal records give equal bytes.

        The rows are on the disk when this returns. After the last step of a block, the files of the block are merged
        (`gar.records.shards`); a step without rows leaves no trace in the merged file.

        Raises:
            RecordError: The system reports an error. Earlier rollouts of that step, and of all others, are intact.
            ValueError: A record is of another step, or a value does not fit its column.
        """
        foreign = {record.step for record in records} - {step}
        if foreign:
            raise ValueError(f"rollouts of step {step} must all say so, got a record of step {min(foreign)}")
        write_parquet(self.rollouts_path(step), record_table(records))
        if block_ended(self.rollouts_folder, step):
            merge_rollouts(self.rollouts_folder)

    def rollout_reader(self) -> RolloutReader:
        """A reader for many steps, which looks for the files once."""
        return RolloutReader(self.rollouts_folder)

    def rollout_steps(self) -> list[int]:
        """Steps whose rollouts were written, ascending."""
        return self.rollout_reader().steps

    def read_rollouts(
        self,
        steps: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows of the given steps, or of all, one step after the other.

        Args:
            steps: Which steps; None for all.
            columns: Which columns; None for all. Texts take most of the memory.

        Raises:
            RecordError: The rollouts of a step were not written, or a file is not what was written.
        """
        reader = self.rollout_reader()
        wanted = reader.steps if steps is None else list(steps)
        tables = [reader.read(step, columns) for step in wanted]
        return (
            pa.concat_tables(tables) if tables else ROLLOUT_SCHEMA.empty_table().select(columns or ROLLOUT_SCHEMA.names)
        )

    def delete_rollouts(self, after_step: int) -> None:
        """Remove the rollouts of all later steps.

        Raises:
            RecordError: A file with steps before and after the cut cannot be read, or the system reports an error.
        """
        cut_rollouts(self.rollouts_folder, after_step)

    # ---------------------------------------------------------------------------------------------- other files

    def write_json(self, relative: str, value: Mapping[str, Any]) -> Path:
        """Write one JSON object, for example `evaluation/before.json`. NaN and infinity become null."""
        write_atomic(self.path / relative, json_text(value, indent=2) + "\n")
        return self.path / relative

    def read_evaluation(self, moment: str) -> dict[str, EvaluatedSet]:
        """The sets of `evaluation/MOMENT.json`, by name; none where there is no such file."""
        path = self.path / "evaluation" / f"{moment}.json"
        return evaluated_sets(read_json(path), str(path)) if os.path.lexists(path) else {}

    def read_json(self, relative: str) -> dict[str, Any]:
        """Read what `write_json` wrote."""
        return read_json(self.path / relative)


def _all_sound(read: tuple[list[dict[str, Any]], list[str]]) -> list[dict[str, Any]]:
    rows, faults = read
    if faults:
        raise RecordError(faults[0])
    return rows
