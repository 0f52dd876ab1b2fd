"""Progress of a comparison: bars on a terminal, else one plain line per event."""

import statistics
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from gar.comparison.plan import PlannedRun
from gar.comparison.result import RunResult
from gar.comparison.store import Failure
from gar.errors import RecordError
from gar.records.metrics import sound_metrics

_SHOWN_LINES = 3


class ComparisonProgress(AbstractContextManager["ComparisonProgress"]):
    """Prints events and the time left.

    Args:
        num_runs: Runs of the whole comparison.
        num_finished: Runs finished before this call.
        workers: Runs side by side.
        seconds: Wall seconds of the finished runs, for the first estimate.
        console: Where to print.
    """

    def __init__(
        self, num_runs: int, num_finished: int, workers: int, seconds: Sequence[float], console: Console | None = None
    ):
        self._console = console or Console(highlight=False)
        self._num_runs, self._num_ended, self._workers = num_runs, num_finished, workers
        self._seconds = list(seconds)
        self._tasks: dict[str, TaskID] = {}
        self._elsewhere: set[str] = set()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:.0f} of {task.total:.0f} {task.fields[unit]}"),
            TextColumn("{task.fields[note]}", style="dim"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._whole = self._bars.add_task("all", total=num_runs, completed=num_finished, unit="runs", note="")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def started(self, run: PlannedRun) -> None:
        """Show a line, or a bar, for a run that starts."""
        if self._bars.disable:
            self._say(f"{run.title}: started")
        steps = run.config.trl.get("max_steps")
        self._tasks[run.title] = self._bars.add_task(escape(run.title), total=steps or None, unit="steps", note="")

    def submitted(self, run: PlannedRun, job: str) -> None:
        """Print a line for a run that was submitted as a job."""
        self._say(f"{run.title}: job {job}")

    def left(self, jobs: Sequence[str]) -> None:
        """Print a line after Ctrl-C for the jobs that keep running."""
        self._say(f"jobs still running: {', '.join(jobs)}. Wait for them or cancel them before you repeat the command")

    def elsewhere(self, run: PlannedRun, reason: str) -> None:
        """Print a line for a run that another process trains, once for each run."""
        if run.title not in self._elsewhere:
            self._elsewhere.add(run.title)
            self._say(f"{run.title}: left to another gar compare. {reason}")

    def finished(self, run: PlannedRun, result: RunResult) -> None:
        """Print a line with the run's numbers."""
        self._end(run)
        self._seconds.append(result.wall_seconds)
        numbers = ", ".join(f"{name} pass@{k} {value:.3f}" for name, k, value in _first_rates(result))
        self._say(f"{run.title}: finished in {result.wall_seconds:.0f} s; {numbers}{self._time_left()}")

    def failed(self, run: PlannedRun, failure: Failure, *, again: bool) -> None:
        """Print the reason, whether the run is tried again, and the last lines that it printed."""
        self._end(run, ended=not again)
        self._say(f"{run.title}: FAILED, {failure.reason}{'; tried once more' if again else ''}", style="bold red")
        for line in failure.last_lines[-_SHOWN_LINES:]:
            self._console.print(f"    {escape(line)}", style="red", soft_wrap=True)

    def tick(self, running: Sequence[PlannedRun]) -> None:
        """Move the bars to the last logged step."""
        if self._bars.disable:
            return
        for run in running:
            self._bars.update(self._tasks[run.title], completed=_last_step(run))

    def _end(self, run: PlannedRun, *, ended: bool = True) -> None:
        self._num_ended += ended
        if run.title in self._tasks:
            self._bars.remove_task(self._tasks.pop(run.title))
        self._bars.update(self._whole, completed=self._num_ended)

    def _say(self, text: str, style: str | None = None) -> None:
        counted = f"{time.strftime('%H:%M:%S')} {self._num_ended:>3}/{self._num_runs} {text}"
        self._console.print(escape(counted), style=style, soft_wrap=True)

    def _time_left(self) -> str:
        left = estimate(self._num_runs - self._num_ended, self._workers, self._seconds)
        note = "" if not left else f"about {left} left"
        self._bars.update(self._whole, note=note)
        return f"; {note}" if note else ""


def _first_rates(result: RunResult) -> list[tuple[str, str, float]]:
    """Set, k and pass@k for the first k of each set."""
    return [(name, *next(iter(values.items()))) for name, values in result.pass_at.items()]


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


def _last_step(run: PlannedRun) -> int:
    try:
        rows, _ = sound_metrics(run.folder / "metrics.jsonl")
    except RecordError:  # just removed: the run starts again
        return 0
    return rows[-1]["step"] if rows else 0
