"""`gar compare`: run the cells that are not finished, then write the tables."""

import contextlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gar.analysis.style import save_figure
from gar.comparison.plan import PlannedRun, planned_runs, read_comparison
from gar.comparison.pool import LocalPool, Usage
from gar.comparison.result import Results, RunResult, check_paired, collected_result, finished_result
from gar.comparison.tables import comparison_tables, result_notes, row_curves
from gar.errors import GarError, LockedError, printable
from gar.evaluation.text_tables import markdown_text, print_tables
from gar.records import write_atomic
from gar.records.lock import writer_lock

_REPORT_SECONDS = 120.0  # longest wait while another `gar compare` writes the same report
_POLL_SECONDS = 0.5
_SHOWN_LINES = 3


def _say(text: str) -> None:
    print(printable(text), flush=True)


class Comparison:
    """A comparison and its cells, from a file or by name. Its tables are printed as Markdown, or for a terminal."""

    def __init__(self, source: str, *, markdown: bool = False):
        self._markdown = markdown
        self.settings = read_comparison(source)
        self.cells = planned_runs(self.settings, source)
        self._results: Results = {}
        self._elsewhere: set[str] = set()
        self.failed: set[str] = set()
        """Titles of the cells that failed, or whose folder is damaged. This command tries them once."""

    def to_do(self) -> list[PlannedRun]:
        """Cells without a result that have not failed."""
        found = [(cell, self._read(cell, finished_result)) for cell in self.cells]
        self._results = {(cell.label, cell.seed): result for cell, result in found if result}
        check_paired(self._results)
        return [cell for cell, result in found if result is None and cell.title not in self.failed]

    def run(self, pool: LocalPool) -> bool:
        """Run the unfinished cells, then write the report. Returns whether every cell has a result.

        Cells run in order, as many at a time as the pool has room for. A cell of a different process starts here if it
        ends there without a result. A result trained on different problems interrupts the running cells as Ctrl-C does.
        """
        # A cell that a different process runs stays in the list, and is tried again at each turn.
        waiting = self.to_do()
        try:
            while waiting or pool.running:
                waiting = [cell for cell in waiting if not self._start(cell, pool)]
                time.sleep(_POLL_SECONDS)
                for cell, status, usage in pool.ended():
                    if not self._collect(cell, usage):
                        self._fail(cell, _reason(cell, status))
        finally:
            if pool.running:
                _say(f"Interrupting {len(pool.running)} runs, which write a checkpoint first. Ctrl-C kills them.")
            pool.stop()
        return self.report()

    def report(self) -> bool:
        """Write `table.md` and the curves from the results so far. Returns whether every cell has a result."""
        self.to_do()
        results = self._results
        tables = comparison_tables(
            results,
            against={row.label: self.settings.against(row) for row in self.settings.runs},
            seeds=self.settings.seeds,
            ks=self.cells[0].config.evaluate.pass_at_k,
        )
        notes = result_notes(results)
        heading = (f"# {self.settings.name}", "")
        path = Path("results", self.settings.name, "table.md")
        with writer_lock(path, wait_seconds=_REPORT_SECONDS):
            write_atomic(path, markdown_text(tables, notes, heading))
            pictures = save_figure(row_curves(results), path.with_name("curves")) if results else []
        print_tables(tables, notes, heading, markdown=self._markdown)
        _say("\n".join(map(str, [path, *pictures])))
        return len(results) == len(self.cells)

    def show_plan(self) -> None:
        """Print what would run."""
        to_do = [f"{cell.title}, in {cell.folder}" for cell in self.to_do()]
        _say("\n".join([*to_do, f"{len(to_do)} of {len(self.cells)} runs to do."]))

    def _start(self, cell: PlannedRun, pool: LocalPool) -> bool:
        """Start a cell, unless it has ended. Returns False if there is no room, or a different process runs it."""
        if not pool.free:
            return False
        # Under the lock, look again: another process may have finished the cell since.
        try:
            with contextlib.ExitStack() as lock:
                lock.enter_context(writer_lock(cell.config_path))
                if self._collect(cell) or cell.title in self.failed:
                    return True
                pool.start(cell, lock)
        except LockedError as error:
            if cell.title not in self._elsewhere:
                self._elsewhere.add(cell.title)
                self._tell(cell, f"left to another process. {error}")
            return False
        except GarError as error:
            self._fail(cell, str(error))
            return True
        self._tell(cell, "started")
        return True

    def _collect(self, cell: PlannedRun, usage: Usage | None = None) -> bool:
        """Take the result of a cell whose lock is held. Returns False if its run is not finished, or damaged."""
        result = self._read(cell, partial(collected_result, usage=usage))
        if result is None:
            return False
        self._results = {**self._results, (cell.label, cell.seed): result}
        check_paired(self._results)
        rates = ((name, *rate) for name, part in result.sets.items() for rate in [*part.known_rates.items()][:1])
        numbers = ", ".join(f"{name} pass@{k} {value:.3f}" for name, k, value in rates)
        self._tell(cell, f"finished in {result.wall_seconds:.0f} s, {numbers}")
        return True

    def _read(self, cell: PlannedRun, read: Callable[[PlannedRun], RunResult | None]) -> RunResult | None:
        """The result of a cell. None if there is none yet, or if something in its folder is damaged."""
        try:
            return read(cell)
        except GarError as error:
            self._fail(cell, str(error))
            return None

    def _fail(self, cell: PlannedRun, reason: str) -> None:
        """Print once why a cell failed."""
        if cell.title not in self.failed:
            self.failed.add(cell.title)
            again = f"Repeat the command to go on with it. To train it anew, move {cell.folder} away first."
            self._tell(cell, f"FAILED: {reason}\n    {again}")

    def _tell(self, cell: PlannedRun, text: str) -> None:
        _say(f"{time.strftime('%H:%M:%S')} {len(self._results):>3}/{len(self.cells)} {cell.title}: {text}")


def _reason(cell: PlannedRun, status: int) -> str:
    """How the process of a cell ended, and the last lines of its log."""
    reason = f"exit status {status}" if status >= 0 else f"killed by signal {-status}"
    reason += ": was the machine out of memory?" if status == -9 else ""
    log = cell.log_path.read_text(encoding="utf-8", errors="replace")
    lines = [line.rstrip() for line in log.splitlines() if line.strip()][-_SHOWN_LINES:]
    return "\n    ".join([reason, *lines])
