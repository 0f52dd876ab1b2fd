"""One reader of a run folder: finished, or as far as it was written.

    run = open_run("runs/demo")
    run.evaluations["after"]["test"].num_correct   # right samples by problem
    run.rollouts(["step", "alignment"])            # a pyarrow table

Each file is compared with its checksum. A finished run has one `SHA256SUMS`. Another run has one in its newest
checkpoint and one in each evaluation. A file that differs is an error and never becomes a number.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute

from gar.config import RunConfig, make_config
from gar.errors import ConfigError, RecordError, printable
from gar.records.checkpoints import check_records
from gar.records.evaluations import (
    NUMBERS,
    SAMPLES,
    SET,
    EvaluatedSet,
    check_evaluation,
    complete_evaluations,
    read_set,
)
from gar.records.files import checked, read_json, read_parquet
from gar.records.metrics import METRICS, read_metrics
from gar.records.rollouts import ROLLOUT_SCHEMA, SAMPLE_SCHEMA, file_steps, read_stream, rollout_files
from gar.records.run_folder import (
    CONFIG,
    EVALUATION,
    RUN,
    RunFolder,
    check_run_folder,
    finished_sums,
    read_record,
    sealed_sums,
)
from gar.records.run_record import RunRecord, RunStatus
from gar.records.sums import check_listed, check_sum, files_below, read_sums

MOMENTS = ("before", "after")
_RECORDS = (RUN, CONFIG, METRICS, "rollouts", f"{EVALUATION}/")
_compute: Any = pyarrow.compute  # its functions are made when it is imported


@dataclass(kw_only=True)
class Run:
    """The contents of a run folder.

    Attributes:
        path: The folder.
        sums: Checksums by name. Files that have none came after the newest checkpoint.
        record: `run.json`. None for an evaluation.
        settings: The resolved configuration as plain values.
        config: The same, checked. None for an evaluation.
        evaluations: Results by set, for "before" and "after" training. Empty if there are none. A folder of `gar
            eval` is a run without training: its results are "after", and its settings come from `set.json`.
        trained: Whether it is the folder of `gar train`, not of `gar eval`.
    """

    path: Path
    sums: Mapping[str, str]
    record: RunRecord | None = None
    settings: Mapping[str, Any]
    config: RunConfig | None = None
    evaluations: Mapping[str, Mapping[str, EvaluatedSet]]
    trained: bool = True
    _whole: set[str] = field(default_factory=set, init=False, repr=False)  # files that fit their checksums

    @cached_property
    def metrics(self) -> Sequence[Mapping[str, Any]]:
        """One mapping of numbers by name for each logged step, "step" among them. Read when first used."""
        return read_metrics(self.path / METRICS)

    @property
    def name(self) -> str:
        """Name of the folder, or MODEL/BENCHMARK of an evaluation."""
        path = self.path.resolve()
        return printable(path.name if self.trained else f"{path.parent.name}/{path.name}")

    @property
    def seed(self) -> int | None:
        """The run's seed. None if no file has it."""
        return self.settings.get("seed", self.record and self.record.seed)

    @property
    def status(self) -> RunStatus | None:
        """ "running", "finished", "failed" or "interrupted". None for an evaluation."""
        return self.record.status if self.record else None

    @property
    def steps(self) -> list[int]:
        """Steps with rollouts, ascending."""
        return list(self.num_rows)

    @cached_property
    def num_rows(self) -> dict[int, int]:
        """Rollouts of each step that has any, ascending. Read when first used."""
        counts = Counter[int]()
        for table in self.rollout_tables(["step"]):
            counts.update({row["values"]: row["counts"] for row in _compute.value_counts(table["step"]).to_pylist()})
        return dict(sorted(counts.items()))

    @property
    def last_step(self) -> int:
        """Last step with metrics or rollouts."""
        return max([*(row["step"] for row in self.metrics[-1:]), *self.steps[-1:]], default=0)

    @property
    def unfinished(self) -> list[str]:
        """Why the run did not finish, as a clause: it is running, failed or was interrupted. "" if it finished."""
        shown = f"shown is what was written up to step {self.last_step}"
        if self.status == "running":
            return [f"the run is still running (or it was killed): {shown}"]
        if self.status not in ("failed", "interrupted"):
            return []
        error = (self.record and self.record.error) or {}
        why = f" ({' '.join(str(error.get('text')).split())}; {error.get('place')})" if error else ""
        how = "failed" if self.status == "failed" else "was interrupted"
        return [f"the run {how} before its end{why}: {shown}"]

    def rollouts(self, columns: Sequence[str] | None = None, steps: Collection[int] | None = None) -> pa.Table:
        """The rollouts of all steps, or of some, by ascending step.

        Args:
            columns: Which columns of `ROLLOUT_SCHEMA`. None for all.
            steps: Which steps. None for all.

        Raises:
            RecordError: There is no such step, or a file is not what was written.
        """
        names = list(columns or ROLLOUT_SCHEMA.names)
        there = [] if steps is None else self.steps
        if missing := sorted({*(steps or ())} - {*there}):
            known = f"steps {there[0]} to {there[-1]}" if there else "none"
            raise RecordError(f"{self.path}: no rollouts of step {missing[0]}. There are {known}.")
        read = [*self.rollout_tables(names, steps)]
        return pa.concat_tables(read) if read else ROLLOUT_SCHEMA.empty_table().select(names)

    def rollout_tables(
        self, columns: Sequence[str] = ROLLOUT_SCHEMA.names, steps: Collection[int] | None = None
    ) -> Iterator[pa.Table]:
        """As `rollouts`, in bounded memory: a table for each file with one of these steps, and the stream."""
        files, stream = self._rollout_parts
        for file, (first, last) in files.items():
            if steps is None or any(first <= step <= last for step in steps):
                yield _of_steps(self._read_rollouts(file, {*columns, "step"}), steps).select(columns)
        if stream.num_rows:
            yield _of_steps(stream, steps).select(columns)

    def _read_rollouts(self, file: str, names: Collection[str]) -> pa.Table:
        if file in self.sums and file not in self._whole:
            check_sum(self.path, file, self.sums)
            self._whole.add(file)
        return read_parquet(self.path / file, [*names], schema=ROLLOUT_SCHEMA)

    @cached_property
    def _rollout_parts(self) -> tuple[dict[str, tuple[int, int]], pa.Table]:
        """The files with their first and last steps, and the rollouts that are in the stream only."""
        stream = read_stream(self.path)  # first: a running run may make a file of it
        files = rollout_files(self.path)
        closed = max((last for _, last in files.values()), default=-1)
        return files, stream.filter(_compute.greater(stream["step"], closed))

    def samples(self, moment: str) -> pa.Table:
        """Every sample of the evaluation "before" or "after" training, in order. No rows if none were written."""
        if self.trained:
            folders = complete_evaluations(self.path / EVALUATION / moment)
        else:
            folders = [self.path] if moment == "after" else []
        tables = [read_parquet(each / SAMPLES, SAMPLE_SCHEMA.names, schema=SAMPLE_SCHEMA) for each in folders]
        return pa.concat_tables(tables) if tables else SAMPLE_SCHEMA.empty_table()


def _of_steps(table: pa.Table, steps: Collection[int] | None) -> pa.Table:
    if steps is None:
        return table
    return table.filter(_compute.is_in(table["step"], pa.array([*steps], pa.int64())))


def is_run_folder(path: str | Path) -> bool:
    """Whether a folder holds a run, or an evaluation."""
    return any((Path(path) / name).exists() for name in (RUN, SET))


def open_run(path: str | Path) -> Run:
    """Read a run folder, or the folder of one evaluation of `gar eval`.

    Raises:
        RecordError: The folder does not exist, or holds no run. Or a file is missing, cannot be read, or is not what
            was written (code "damage").
    """
    path = Path(path)
    check_run_folder(path, RUN, SET)
    if (path / SET).exists():
        return _open_evaluation(path)
    record = read_record(path)
    # The end of a run is its `SHA256SUMS`, not its status: a kill may come between the two.
    sums = finished_sums(path)
    if sums:
        _check_finished(path, sums, is_recorded=record.status == "finished")
    else:
        sums = _unfinished_sums(path)
    evaluations = {moment: _evaluated_sets(path, moment) for moment in MOMENTS}
    config = _checked_settings(path, record.settings)
    return Run(path=path, sums=sums, record=record, settings=record.settings, config=config, evaluations=evaluations)


def _open_evaluation(path: Path) -> Run:
    settings, sums = read_set(path), check_evaluation(path)
    sets = _read_sets(path / NUMBERS)
    if settings["benchmark"]["name"] not in sets:
        name = settings["benchmark"]["name"]
        raise RecordError(f"{path / NUMBERS}: expected the set {name!r} of {SET}, got {[*sets]}.")
    return Run(path=path, sums=sums, settings=settings, evaluations={"before": {}, "after": sets}, trained=False)


def _check_finished(path: Path, sums: Mapping[str, str], *, is_recorded: bool) -> None:
    """Compare the records of a run with its checksums. Rollouts must be there, and are compared when they are read.

    Without `is_recorded` the run was killed before `run.json` recorded its end, and all else is as it is listed.
    """
    for name in dict.fromkeys((*sums, *files_below(path))):
        if file_steps(name):
            check_listed(path, name, sums)
        elif name.startswith(_RECORDS) and (is_recorded or name != RUN):
            check_sum(path, name, sums)


def _unfinished_sums(path: Path) -> dict[str, str]:
    """The checksums of an unfinished run: of its evaluations, and of rollouts up to its newest checkpoint.

    Raises a `RecordError` if one of these files is missing or changed. Rollouts are compared when they are read.
    """
    sums = {
        (folder.relative_to(path) / name).as_posix(): digest
        for folder in path.glob(f"{EVALUATION}/*/*")
        if NUMBERS in read_sums(folder)
        for name, digest in check_evaluation(folder).items()
    }
    # Only the newest checkpoint counts: it lists all files of rollouts before it, too.
    marked = [(step, sealed) for step in RunFolder(path).checkpoint_steps() if (sealed := sealed_sums(path, step))]
    for step, sealed in marked[-1:]:
        sums |= {name: sealed[name] for name in check_records(path, step, sealed)}
    return sums


def _evaluated_sets(path: Path, moment: str) -> Mapping[str, EvaluatedSet]:
    folders = complete_evaluations(path / EVALUATION / moment)
    return {name: part for folder in folders for name, part in _read_sets(folder / NUMBERS).items()}


def _read_sets(path: Path) -> Mapping[str, EvaluatedSet]:
    return checked(dict[str, EvaluatedSet], read_json(path).get("sets"), f"{path}: sets")


def _checked_settings(path: Path, values: Mapping[str, Any]) -> RunConfig:
    """The settings of a run as this version of gar understands them."""
    if values.get("plugins"):  # reading a run runs nobody's code
        hidden = ("plugins", "method")
        values = {name: part for name, part in values.items() if name in RunConfig.model_fields and name not in hidden}
    try:
        return make_config(values, source=RUN)
    except ConfigError as error:
        raise RecordError(f"{path / RUN}: its settings are from another version of gar: {error}") from error
