"""The cells of a comparison, run to their results by an executor."""

import time
from collections import deque
from collections.abc import Callable, Sequence

from gar.comparison.cell import LOCKED
from gar.comparison.executors import Executor
from gar.comparison.plan import PlannedRun
from gar.comparison.result import Results, check_paired, finished_result, finished_results
from gar.config import dump_config
from gar.errors import LockedError
from gar.records import write_atomic
from gar.records.lock import writer_lock

_POLL_SECONDS = 0.5
_SHOWN_LINES = 3


def run_cells(cells: Sequence[PlannedRun], executor: Executor, say: Callable[[str], None]) -> None:
    """Run cells in order, as many at a time as the executor has room for. A failed cell is tried once more at the end.

    Cells that a different process runs are skipped. If a result is damaged, or was trained on different problems than
    the others, the running cells are interrupted, as by Ctrl-C.
    """
    run = _Cells(cells, executor, say)
    try:
        run.run_all()
    finally:
        if left := executor.stop():
            say(left)


class _Cells:
    """Waiting cells, and the results so far."""

    def __init__(self, cells: Sequence[PlannedRun], executor: Executor, say: Callable[[str], None]):
        self._results: Results = finished_results(cells)
        self._waiting = deque(cell for cell in cells if (cell.label, cell.seed) not in self._results)
        self._executor, self._say, self._num_cells = executor, say, len(cells)
        self._failed, self._elsewhere = set[str](), set[str]()

    def run_all(self) -> None:
        check_paired(self._results)
        while self._waiting or self._executor.running:
            for cell in [self._waiting.popleft() for _ in range(len(self._waiting))]:
                if not (self._add(cell) or (self._executor.has_room and self._start(cell))):
                    self._waiting.append(cell)
            time.sleep(_POLL_SECONDS)
            for cell, status in self._executor.ended():
                self._end(cell, status)

    def _start(self, cell: PlannedRun) -> bool:
        """Start a cell. Returns False if a different process runs it."""
        try:
            with writer_lock(cell.config_path):
                write_atomic(cell.config_path, dump_config(cell.config))
        except LockedError as error:
            self._leave(cell, str(error))
            return False
        self._tell(cell, self._executor.start(cell))
        return True

    def _end(self, cell: PlannedRun, status: int) -> None:
        if self._add(cell):
            return
        again = status == LOCKED or cell.title not in self._failed
        if status == LOCKED:
            self._leave(cell, "Another process runs it.")
        else:
            self._failed.add(cell.title)
            reason = f"exit status {status}" if status >= 0 else f"killed by signal {-status}"
            reason += ": was the machine out of memory?" if status == -9 else ""
            log = cell.log_path.read_text(encoding="utf-8", errors="replace") if cell.log_path.is_file() else ""
            lines = [line.rstrip() for line in log.splitlines() if line.strip()][-_SHOWN_LINES:]
            self._tell(cell, "\n    ".join([f"FAILED, {reason}{'; tried once more' if again else ''}", *lines]))
        self._waiting.extend([cell] if again else [])

    def _add(self, cell: PlannedRun) -> bool:
        """Take the result of a cell. Returns False if there is none."""
        result = finished_result(cell)
        if result is None:
            return False
        self._results = {**self._results, (cell.label, cell.seed): result}
        check_paired(self._results)
        rates = ((name, *next(iter(values.items()))) for name, values in result.pass_at.items())
        numbers = ", ".join(f"{name} pass@{k} {value:.3f}" for name, k, value in rates)
        self._tell(cell, f"finished in {result.wall_seconds:.0f} s, {numbers}")
        return True

    def _leave(self, cell: PlannedRun, reason: str) -> None:
        if cell.title not in self._elsewhere:
            self._elsewhere.add(cell.title)
            self._tell(cell, f"left to another process. {reason}")

    def _tell(self, cell: PlannedRun, text: str) -> None:
        self._say(f"{time.strftime('%H:%M:%S')} {len(self._results):>3}/{self._num_cells} {cell.title}: {text}")
