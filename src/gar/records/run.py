"""One reader of a run folder: whole, still being written, or damaged.

    run = open_run("runs/demo")
    run.evaluations["after"]["test"].num_correct   # right samples by problem
    run.rollouts(["step", "alignment"])            # a pyarrow table

Every file is checked against the run's manifest before it is used. If `strict`, the first fault is an error. Otherwise
files at fault are left out and listed in `faults`: no number takes their place.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from gar.config import RunConfig, make_config
from gar.errors import ConfigError, RecordError, printable
from gar.records.evaluations import NUMBERS, PROBLEMS, SAMPLES, SET, EvaluatedSet, read_set
from gar.records.files import checked, json_object, read_bytes, read_parquet
from gar.records.manifest import MANIFEST, DamageError, Fault, Manifest, fault_of
from gar.records.metrics import read_metrics
from gar.records.rollout_files import RolloutFiles
from gar.records.rollouts import ROLLOUT_SCHEMA, SAMPLE_SCHEMA
from gar.records.run_folder import METRICS, RUN, check_run_folder, read_record

MOMENTS = ("before", "after")
_PARTS = (RUN, METRICS, "rollouts", SET)


@dataclass(kw_only=True)
class Run:
    """The contents of a run folder.

    Attributes:
        path: The folder.
        strict: Whether a fault is an error.
        manifest: Its manifest.
        record: `run.json`. Empty if it is at fault.
        settings: The resolved configuration as plain values. Empty if `run.json` is at fault.
        config: The same, checked. None if that fails.
        evaluations: Results by set, for "before" and "after" training. Empty if there are none. A folder of `gar
            eval` is a run without training: its results are "after", and its settings come from `set.json`.
        faults: What is missing or damaged. Reading metrics, rollouts and samples may add to it.
        trained: Whether it is the folder of `gar train`, not of `gar eval`.
    """

    path: Path
    strict: bool
    manifest: Manifest
    record: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: RunConfig | None = None
    evaluations: Mapping[str, Mapping[str, EvaluatedSet]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    trained: bool = True

    @cached_property
    def metrics(self) -> Sequence[Mapping[str, Any]]:
        """One mapping of numbers by name for each logged step, "step" among them. Read when first used."""
        with self._reading(METRICS):
            return read_metrics(self.manifest, METRICS)
        return []

    @cached_property
    def _rollouts(self) -> RolloutFiles:
        return RolloutFiles(self.manifest, self._at_fault)

    @property
    def name(self) -> str:
        """Name of the folder, or MODEL/BENCHMARK of an evaluation."""
        path = self.path.resolve()
        return printable(path.name if self.trained else f"{path.parent.name}/{path.name}")

    @property
    def seed(self) -> int | None:
        """The run's seed. None if no file has it."""
        return self.settings.get("seed", self.record.get("seed"))

    @property
    def status(self) -> str | None:
        """ "running", "finished", "failed" or "interrupted". None if unknown."""
        return self.record.get("status")

    @property
    def steps(self) -> list[int]:
        """Steps with rollouts, ascending."""
        return list(self.num_rows)

    @cached_property
    def num_rows(self) -> dict[int, int]:
        """Rollouts of each step that has any, ascending. Read when first used."""
        return self._rollouts.num_rows()

    @property
    def last_step(self) -> int:
        """Last step with metrics or rollouts."""
        return max([*(row["step"] for row in self.metrics[-1:]), *self.steps[-1:]], default=0)

    @property
    def unfinished(self) -> list[str]:
        """Why the run has no end, as at most one clause: it is running, failed or was interrupted."""
        shown = f"shown is what was written up to step {self.last_step}"
        if self.status == "running":
            return [f"the run is still running (or it was killed): {shown}"]
        if self.status not in ("failed", "interrupted"):
            return []
        error = self.record.get("error") or {}
        why = f" ({' '.join(str(error.get('text')).split())}; {error.get('place')})" if error else ""
        how = "failed" if self.status == "failed" else "was interrupted"
        return [f"the run {how} before its end{why}: {shown}"]

    def rollouts(self, columns: Sequence[str] | None = None, steps: Collection[int] | None = None) -> pa.Table:
        """The rollouts of all steps, or of some, by ascending step.

        Args:
            columns: Which columns of `ROLLOUT_SCHEMA`. None for all.
            steps: Which steps. None for all.

        Raises:
            RecordError: There is no such step, or, if strict, a file is at fault.
        """
        names = list(columns or ROLLOUT_SCHEMA.names)
        there = [] if steps is None else self.steps
        if missing := sorted({*(steps or ())} - {*there}):
            known = f"steps {there[0]} to {there[-1]}" if there else "none"
            raise RecordError(f"{self.path}: no rollouts of step {missing[0]}. There are {known}.")
        read = [*self._rollouts.tables(names, steps)]
        return pa.concat_tables(read) if read else ROLLOUT_SCHEMA.empty_table().select(names)

    def rollout_tables(self, steps: Collection[int]) -> Iterator[pa.Table]:
        """The rollouts of some steps with all columns, file by file: a table for each file, in bounded memory."""
        return self._rollouts.tables(ROLLOUT_SCHEMA.names, steps)

    def samples(self, moment: str) -> pa.Table:
        """Every sample of the evaluation "before" or "after" training, in order. No rows if none were written.

        Raises:
            RecordError: If strict, the file is at fault.
        """
        name = self.files_of(moment)[1]
        if name in self.manifest.entries and self.manifest.fault(name) is None:
            with self._reading(name):
                return read_parquet(self.path / name, SAMPLE_SCHEMA.names, schema=SAMPLE_SCHEMA)
        return SAMPLE_SCHEMA.empty_table()

    def files_of(self, moment: str) -> tuple[str, str]:
        """The files with the numbers and the samples of an evaluation, below the folder."""
        if not self.trained and moment == "after":
            return NUMBERS, SAMPLES
        return f"evaluation/{moment}.json", f"evaluation/{moment}.parquet"

    @contextmanager
    def _reading(self, name: str, unknown: str = "") -> Iterator[None]:
        """Turn an error into a fault of this file. `unknown` is what it leaves unknown."""
        try:
            yield
        except (RecordError, ConfigError) as error:
            self._at_fault(fault_of(name, error, unknown))

    def _at_fault(self, fault: Fault) -> None:
        if self.strict:
            raise DamageError(self.path, fault)
        if fault not in self.faults:
            self.faults.append(fault)


def is_run_folder(path: str | Path) -> bool:
    """Whether a folder holds a run, whole or not, or an evaluation."""
    return any((Path(path) / name).exists() for name in _PARTS)


def open_run(path: str | Path, *, strict: bool = True) -> Run:
    """Read a run folder, or the folder of one evaluation of `gar eval`.

    Args:
        path: The folder.
        strict: Raise an error at the first fault, before a number is made of it. False: read the rest.

    Raises:
        RecordError: The folder does not exist, or holds nothing of a run, or, if strict, something is damaged.
    """
    path = Path(path)
    check_run_folder(path, *_PARTS)
    run = Run(path=path, strict=strict, manifest=Manifest(path), trained=not os.path.lexists(path / SET))
    if not run.trained:
        _read_set(run)
        run.evaluations = {"before": {}, "after": _evaluation(run, "after") if run.settings else {}}
        return run
    with run._reading(RUN, ", so settings, versions, machine and status are unknown"):
        known = json_object(read_bytes(path / RUN), str(path / RUN))
        run.manifest = Manifest(path, id=known.get("manifest"))
        record = read_record(run.manifest)
        run.record, run.settings = asdict(record), record.settings
    run.config = _checked_settings(run) if run.settings else None
    _check_manifest(run)
    if METRICS in run.manifest.entries and (fault := run.manifest.fault(METRICS)):
        run._at_fault(fault)
    run.evaluations = {moment: _evaluation(run, moment) for moment in MOMENTS}
    return run


def _checked_settings(run: Run) -> RunConfig | None:
    """The settings of a run as this version of gar understands them."""
    values = run.settings
    if values.get("plugins"):  # reading a run runs nobody's code
        hidden = ("plugins", "method")
        values = {name: part for name, part in values.items() if name in RunConfig.model_fields and name not in hidden}
    with run._reading(RUN, ": its settings are from another version of gar and are shown unchanged"):
        return make_config(values, source=RUN)
    return None


def _read_set(run: Run) -> None:
    with run._reading(SET):
        run.settings = read_set(run.manifest)
        names = dict.fromkeys([*run.manifest.entries, PROBLEMS, NUMBERS, SAMPLES])
        for fault in [*run.manifest.own_faults, *filter(None, map(run.manifest.fault, names))]:
            run._at_fault(fault)


def _check_manifest(run: Run) -> None:
    manifest, finished = run.manifest, run.status == "finished"
    for fault in manifest.own_faults:
        run._at_fault(fault)
    names = manifest.unlisted() if finished or not manifest.path.exists() else []
    lost = [name for name in names if name.startswith(("rollouts", "evaluation/", METRICS))]
    if finished and METRICS in manifest.entries and manifest.entries[METRICS].grows:
        lost.append(METRICS)  # the last line is not that of a finished run
    for name in lost:
        run._at_fault(Fault(kind="unlisted", file=name, text=f"{name} is not listed in {MANIFEST}"))


def _evaluation(run: Run, moment: str) -> Mapping[str, EvaluatedSet]:
    name, samples = run.files_of(moment)
    if samples in run.manifest.entries and (fault := run.manifest.fault(samples)):
        run._at_fault(fault)
    with run._reading(name):
        if name not in run.manifest.entries:
            return {}
        place = str(run.path / name)
        sets = checked(dict[str, EvaluatedSet], run.manifest.read_json(name).get("sets"), f"{place}: sets")
        if run.trained or run.settings["benchmark"]["name"] in sets:
            return sets
        raise RecordError(f"{place}: expected the set {run.settings['benchmark']['name']!r} of {SET}, got {[*sets]}.")
    return {}
