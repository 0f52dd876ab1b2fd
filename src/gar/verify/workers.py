"""A pool of processes that check answers under a hard limit of wall-clock time and memory.

The pool sends items to keepers (`keeper.py`), processes that start when first needed, each of which runs a worker. If a
keeper is killed from outside, new ones run the batch again. The time that killed items may cost a batch is bounded.
Works from any thread. Unix only. Tested on Linux.
"""

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe, wait

from gar.errors import GarError
from gar.types import Status
from gar.verify.answers import Graded
from gar.verify.keeper import Setup

BUDGET_LIMITS = 6  # killed items may cost a batch this many time limits, and as much time as its other items take
BRIEF_SECONDS = 0.5  # ordinary items take a twentieth of it
MAX_STARTS = 4  # of keepers for one batch, if they are killed

_log = logging.getLogger(__name__)


class WorkerError(GarError, RuntimeError):
    """The worker processes cannot be started. A failure that concerns one answer is a status instead."""

    code = "worker"


class WorkerPool:
    """Calls one function on many items in killable processes, which start when first needed.

    Args:
        function: Takes the strings of an item: a text, a gold answer, maybe more. Must be picklable and importable
            without the running script.
        num_workers: Number of processes.
        timeout_seconds: Wall-clock limit for each item, from when a worker gets it. Killed items have a budget per
            batch: `BUDGET_LIMITS` times this limit, plus the time that the other items take. When half the budget is
            spent, the limit falls to a tenth (at least `BRIEF_SECONDS`). When all of it is spent, the remaining items
            are not tried and count as timed out.
        memory_bytes: Limit for each worker's own memory (RLIMIT_DATA, without effect on macOS).
        warm_up: Items on which `function` is called once before workers start, so that all workers inherit imports and
            caches and no item waits for them. Not for functions that may crash or hang.
    """

    def __init__(
        self,
        function: Callable[..., Graded],
        *,
        num_workers: int = 2,
        timeout_seconds: float = 5.0,
        memory_bytes: int = 2 * 1024**3,
        warm_up: Sequence[tuple[str, ...]] = (),
    ) -> None:
        self._setup = Setup(
            function=pickle.dumps(function),
            warm_up=tuple(warm_up),
            timeout_seconds=timeout_seconds,
            memory_bytes=memory_bytes,
        )
        self._num_workers = num_workers
        self._lock = threading.RLock()
        self._keepers: _Keepers | None = None

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, after a batch that another thread may be running. A later `run` starts new ones."""
        with self._lock:
            if self._keepers is not None:
                self._keepers.stop()
                self._keepers = None

    def run(self, items: Sequence[tuple[str, ...]]) -> list[Graded]:
        """Call the function on every item.

        Returns:
            The outcomes in the order of the items. TIMEOUT for an item that was killed at its limit, or that was not
            tried because killed items had used up the batch's budget. ERROR if the function raised or the worker died,
            with the kind and text of the error or the signal. If a worker is killed from outside, its item is tried
            twice.

        Raises:
            WorkerError: The processes cannot be started, or are killed again and again.
        """
        if not items:
            return []
        with self._lock:
            if self._keepers is not None and not self._keepers.are_ours():
                self._keepers = None
            for _ in range(MAX_STARTS):
                try:
                    self._keepers = self._keepers or _Keepers(self._setup, self._num_workers)
                    return self._outcomes(items, self._keepers.controls)
                except (EOFError, ConnectionError):  # a keeper is dead
                    if self._keepers and self._keepers.crashed():
                        break
                    self.close()
                except BaseException:  # Ctrl-C included: no item may stay behind in a worker
                    self.close()
                    raise
            self.close()
            raise WorkerError(
                "the process that starts verification workers died. "
                "Its traceback, if there is one, is on the standard error stream"
            )

    def _outcomes(self, items: Sequence[tuple[str, ...]], idle: list[Connection]) -> list[Graded]:
        """The outcomes of a batch. `idle` holds the pipes to all keepers."""
        outcomes: dict[int, Graded] = {}
        queue = deque(range(len(items)))
        idle = [*idle]
        busy: dict[Connection, tuple[int, float, float]] = {}  # the item of each keeper, its limit and its start
        lost_seconds = useful_seconds = 0.0  # wall-clock time spent on items killed at their limit, and on all others
        while len(outcomes) < len(items):
            budget = BUDGET_LIMITS * self._setup.timeout_seconds + useful_seconds
            if queue and lost_seconds >= budget:
                outcomes |= _given_up(queue, len(items), lost_seconds)
                queue.clear()
            limit = self._setup.timeout_seconds
            if lost_seconds >= budget / 2:
                limit = min(limit, max(BRIEF_SECONDS, limit / 10))
            while queue and idle:
                keeper, index = idle.pop(), queue.popleft()
                keeper.send((items[index], limit))
                busy[keeper] = index, limit, time.monotonic()
            readable = wait(list(busy))
            for keeper in [keeper for keeper in busy if keeper in readable]:
                outcome = keeper.recv()
                if isinstance(outcome, str):
                    raise WorkerError(outcome)
                index, its_limit, started = busy.pop(keeper)
                outcomes[index] = outcome
                idle.append(keeper)
                if outcome.status is Status.TIMEOUT:
                    lost_seconds += its_limit / self._num_workers
                else:
                    useful_seconds += (time.monotonic() - started) / self._num_workers
        return [outcomes[index] for index in range(len(items))]


def _given_up(queue: Sequence[int], num_items: int, lost_seconds: float) -> dict[int, Graded]:
    """The remaining items of a batch count as timed out: killed items have used up its budget."""
    of_all, lost = f"{len(queue)} of {num_items}", f"{lost_seconds:.1f}"
    text = "%s answers were not checked and count as timed out: others that were killed had cost %s seconds."
    _log.warning(text, of_all, lost)
    detail = f"not checked, as {of_all}: answers before it that were killed had cost {lost} s"
    return dict.fromkeys(queue, Graded(status=Status.TIMEOUT, detail=detail))


class _Keepers:
    """The pool's side of its keepers, which stop at the latest when this object or the interpreter ends."""

    def __init__(self, setup: Setup, num_workers: int) -> None:
        pairs = [Pipe() for _ in range(num_workers)]
        self.controls = [control for control, _ in pairs]
        fds = [keeper_end.fileno() for _, keeper_end in pairs]
        serve = f"from gar.verify.keeper import main; main(*{fds})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {serve}"],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal must not reach it
        )
        for _, keeper_end in pairs:
            keeper_end.close()
        self._owner = os.getpid()
        self.stop = weakref.finalize(self, _stop, self.controls, self._process, self._owner)
        with contextlib.suppress(OSError):  # if it died, the first item says so
            self.controls[0].send(setup)

    def are_ours(self) -> bool:
        """Whether the keepers belong to this process, not to a parent that forked it."""
        return os.getpid() == self._owner

    def crashed(self) -> bool:
        """Whether the first keeper ended with an error. Otherwise a keeper was killed from outside."""
        self.stop()
        return self._process.returncode > 0


def _stop(controls: list[Connection], process: subprocess.Popen[bytes], owner: int) -> None:
    for control in controls:
        control.close()
    if os.getpid() != owner:
        return  # this is a fork of the owner, which has no right to stop the keeper
    try:
        process.wait(5.0)  # at the end of its pipe it kills its worker
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
