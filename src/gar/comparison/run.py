"""The cells of a comparison, run to their results by an executor."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from gar.comparison.cell import LOCKED
from gar.comparison.executors import Executor, Job
from gar.comparison.pairing import Results, check_paired
from gar.comparison.plan import PlannedRun
from gar.comparison.result import RunResult, finished_result
from gar.config import dump_config
from gar.errors import LockedError
from gar.records import write_atomic
from gar.records.lock import writer_lock

_POLL_SECONDS = 0.2
_LOOK_SECONDS = 2.0  # between looks at cells of other processes
_SHOWN_LINES = 3


def finished_results(cells: Sequence[PlannedRun]) -> dict[tuple[str, int], RunResult]:
    """All results so far, by label and seed.

    Raises:
        RecordError: A result is not what was written.
    """
    found = ((cell, finished_result(cell)) for cell in cells)
    return {(cell.label, cell.seed): result for cell, result in found if result}


def run_cells(cells: Sequence[PlannedRun], executor: Executor, say: Callable[[str], None]) -> None:
    """Run cells in order, as many at a time as the executor has room for. A failed cell is tried once more at the end.

    A cell that another process runs, of this comparison or another one, is left to it.

    Args:
        cells: Cells of one comparison.
        executor: Starts them.
        say: Receives a line for each event.

    Raises:
        RecordError: A result is damaged or not paired with the others, or a file cannot be written. Cells under way
            are interrupted, as by Ctrl-C.
    """
    run = _Cells(cells, executor, say)
    try:
        run.run_all()
    finally:
        if left := executor.stop([job for _, job in run.running]):
            say(left)


class _Cells:
    """Waiting cells, cells under way, and the results so far."""

    def __init__(self, cells: Sequence[PlannedRun], executor: Executor, say: Callable[[str], None]):
        self.running = list[tuple[PlannedRun, Job]]()
        self._results: Results = finished_results(cells)
        self._waiting = deque(cell for cell in cells if (cell.label, cell.seed) not in self._results)
        self._executor, self._say, self._num_cells = executor, say, len(cells)
        self._next_look, self._failed, self._elsewhere = dict[str, float](), set[str](), set[str]()
        self._seconds = [result.wall_seconds for result in self._results.values() if not result.resumed]

    def run_all(self) -> None:
        check_paired(self._results)
        while self._waiting or self.running:
            for cell in [self._waiting.popleft() for _ in range(len(self._waiting))]:
                if not self._begin(cell):
                    self._waiting.append(cell)
            time.sleep(_POLL_SECONDS)
            for cell, job in list(self.running):
                status = job.status()
                if status is not None:
                    self.running.remove((cell, job))
                    self._end(cell, job, status)

    def _begin(self, cell: PlannedRun) -> bool:
        """Whether a cell needs no more waiting: it has a result, or was started."""
        if time.monotonic() < self._next_look.get(cell.title, 0.0):
            return False
        if self._add(cell):
            return True
        if not self._executor.has_room:
            return False
        try:
            with writer_lock(cell.config_path):
                write_atomic(cell.config_path, dump_config(cell.config))
        except LockedError as error:
            self._leave(cell, str(error))
            return False
        job = self._executor.start(cell)
        self.running.append((cell, job))
        self._tell(cell, job.name or "started")
        return True

    def _end(self, cell: PlannedRun, job: Job, status: int) -> None:
        if self._add(cell):
            return
        if status == LOCKED:
            self._leave(cell, "Another process runs it.")
            self._waiting.append(cell)
            return
        again = cell.title not in self._failed
        self._failed.add(cell.title)
        reason = f"exit status {status}" if status >= 0 else f"killed by signal {-status}"
        reason += ": was the machine out of memory?" if status == -9 else ""
        reason += f" ({job.name})" if job.name else ""
        said = [f"FAILED, {reason}{'; tried once more' if again else ''}", *cell.last_lines()[-_SHOWN_LINES:]]
        self._tell(cell, "\n    ".join(said))
        self._waiting.extend([cell] if again else [])

    def _add(self, cell: PlannedRun) -> bool:
        """Whether a cell has a result, which is taken."""
        result = finished_result(cell)
        if result is None:
            return False
        self._results = {**self._results, (cell.label, cell.seed): result}
        check_paired(self._results)
        self._seconds += [] if result.resumed else [result.wall_seconds]
        rates = ((name, *next(iter(values.items()))) for name, values in result.pass_at.items())
        numbers = ", ".join(f"{name} pass@{k} {value:.3f}" for name, k, value in rates)
        left = estimate(len(self._waiting) + len(self.running), max(1, len(self.running)), self._seconds)
        self._tell(cell, f"finished in {result.wall_seconds:.0f} s; {numbers}{f'; about {left} left' if left else ''}")
        return True

    def _leave(self, cell: PlannedRun, reason: str) -> None:
        self._next_look[cell.title] = time.monotonic() + _LOOK_SECONDS
        if cell.title not in self._elsewhere:
            self._elsewhere.add(cell.title)
            self._tell(cell, f"left to another process. {reason}")

    def _tell(self, cell: PlannedRun, text: str) -> None:
        self._say(f"{time.strftime('%H:%M:%S')} {len(self._results):>3}/{self._num_cells} {cell.title}: {text}")


def estimate(num_runs: int, workers: int, seconds: Sequence[float]) -> str | None:
    """Time that runs will take, in words; None if nothing is left to do, or nothing has finished yet.

    Args:
        num_runs: Runs to do.
        workers: Runs side by side.
        seconds: Wall seconds of finished runs.
    """
    if not num_runs or not seconds:
        return None
    minutes = -(-num_runs // workers) * statistics.median(seconds) / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
