"""Runs side by side, each in a process of its own. The result file of a run is written as soon as the run ends."""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from gar.comparison.plan import PlannedRun
from gar.comparison.progress import ComparisonProgress
from gar.comparison.result import RunResult, result_of
from gar.comparison.store import Failure, Results, check_paired, finished_results, write_failure, write_result
from gar.comparison.workers import Workers
from gar.config import dump_config
from gar.errors import LockedError, RecordError
from gar.records import write_atomic
from gar.records.files import io_error
from gar.records.lock import writer_lock

_CHILD = (sys.executable, "-m", "gar.comparison.child")
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 2.0  # between checks for results of other processes, which may share the folder over a network
_STOP_SECONDS = 30.0
_LAST_LINES = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class _Child:
    """A process that trains, its devices, and the lock of its result, held until the result is written."""

    run: PlannedRun
    devices: str | None
    process: subprocess.Popen[bytes]
    log_path: Path
    lock: ExitStack


def run_side_by_side(
    planned: Sequence[PlannedRun], finished: Results, *, workers: Workers, progress: ComparisonProgress
) -> None:
    """Run in order, one run per worker at a time. A failed run is tried once more after the others.

    Runs that another `gar compare` has started, on this machine or another, are left to it.

    Args:
        planned: Runs of one comparison that have no result yet.
        finished: Results of its other runs.
        workers: Devices and processes.
        progress: Shows what happens.

    Raises:
        RecordError: A result is not paired with the others, or a file cannot be written. Running children are
            interrupted, as by Ctrl-C.
    """
    check_paired(finished)
    runs = _Runs(planned, finished, workers, progress)
    try:
        runs.run_all()
    finally:
        _stop(runs.running)


class _Runs:
    """Waiting runs, running children, and the results so far."""

    def __init__(
        self, planned: Sequence[PlannedRun], finished: Results, workers: Workers, progress: ComparisonProgress
    ):
        self._waiting, self.running, self._results = deque(planned), list[_Child](), dict(finished)
        self._workers, self._progress = workers, progress
        self._free, self._failed = deque(workers.devices), set[str]()

    def run_all(self) -> None:
        """Start runs as others end, until none is left."""
        next_look = 0.0
        while self._waiting or self.running:
            if time.monotonic() >= next_look:
                self._look()
                next_look = time.monotonic() + _LOOK_SECONDS
            time.sleep(_POLL_SECONDS)
            if self._collect():
                next_look = 0.0
            self._progress.tick([child.run for child in self.running])

    def _look(self) -> None:
        """Collect results of other processes, and start runs on free devices."""
        for run in [self._waiting.popleft() for _ in range(len(self._waiting))]:
            result = finished_results([run]).get((run.label, run.seed))
            if result:
                self._add(result)
                self._progress.finished(run, result)
            elif not self._free or not self._start(run):
                self._waiting.append(run)

    def _start(self, run: PlannedRun) -> bool:
        """Start a run on free devices, unless another comparison is running it."""
        with ExitStack() as lock:
            try:
                lock.enter_context(writer_lock(run.result_path))
            except LockedError as error:
                self._progress.elsewhere(run, str(error))
                return False
            if run.result_path.exists():  # since the caller looked
                return False
            devices = self._free[0]
            process, log_path = _process(run, self._workers, devices)
            self._progress.started(run)
            self.running.append(
                _Child(run=run, devices=devices, process=process, log_path=log_path, lock=lock.pop_all())
            )
            self._free.popleft()
        return True

    def _collect(self) -> bool:
        """Record the children that have ended. Returns whether there were any."""
        ended = [child for child in self.running if child.process.poll() is not None]
        for child in ended:
            self.running.remove(child)
            self._free.append(child.devices)
            with child.lock:
                _close(child)
                outcome = _record(child)
            if isinstance(outcome, RunResult):
                self._progress.finished(child.run, outcome)
                self._add(outcome)
            else:
                again = child.run.title not in self._failed
                self._failed.add(child.run.title)
                self._progress.failed(child.run, outcome, again=again)
                self._waiting.extend([child.run] if again else [])
        return bool(ended)

    def _add(self, result: RunResult) -> None:
        self._results[result.label, result.seed] = result
        check_paired(self._results)


def _process(run: PlannedRun, workers: Workers, devices: str | None) -> tuple[subprocess.Popen[bytes], Path]:
    config_path, log_path = (run.folder.with_name(f"{run.folder.name}.{ending}") for ending in ("yaml", "log"))
    write_atomic(config_path, dump_config(run.config))
    count = str(workers.threads)
    visible = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    try:
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [*_CHILD, str(config_path), *workers.launcher],
                env={**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, **visible},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the comparison alone, which then ends its children
            )
    except OSError as error:
        raise io_error(log_path, "written, or the run started", error) from error
    return process, log_path


def _record(child: _Child) -> RunResult | Failure:
    """Write the result or the failure of a run that has ended."""
    status = child.process.returncode
    reason = f"exit status {status}" if status > 0 else f"killed by signal {-status}"
    if status == 0:
        try:
            result = result_of(child.run)
        except RecordError as error:
            reason = str(error)
        else:
            write_result(child.run, result)
            return result
    elif status == -9:
        reason += ": was the machine out of memory?"
    return write_failure(child.run, reason, last_lines(child.log_path.read_text(encoding="utf-8", errors="replace")))


def last_lines(text: str) -> list[str]:
    """The last lines that are not blank, for the record of a failure."""
    return [line.rstrip() for line in text.splitlines() if line.strip()][-_LAST_LINES:]


def _close(child: _Child) -> None:
    assert child.process.stdin is not None
    child.process.stdin.close()


def _stop(children: Sequence[_Child]) -> None:
    """Interrupt the running children: a child stops when its standard input closes."""
    for child in children:
        _close(child)
    deadline = time.monotonic() + _STOP_SECONDS
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
        child.lock.close()
