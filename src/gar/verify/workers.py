"""A pool of processes that check answers under a hard limit of wall-clock time and memory.

The pool sends items to keepers (`keeper.py`), processes that start when first needed, each of which runs a worker. If a
keeper is killed or stopped from outside, new ones run the batch again. The time that killed items may cost a batch is
bounded. Works from any thread, and in a fork, which starts its own keepers. Unix only. Tested on Linux.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait

from gar.errors import GarError
from gar.types import Status
from gar.verify.grades import Graded
from gar.verify.keeper import START_SECONDS, Setup, timed_pair

BUDGET_LIMITS = 6  # killed items may cost a batch this many time limits, and as much time as its other items take
BRIEF_SECONDS = 0.5  # ordinary items take a twentieth of it
MAX_STARTS = 4  # of keepers for one batch, if they are killed or stopped
END_SECONDS = 5.0  # for keepers to end by themselves

_log = logging.getLogger(__name__)


class WorkerError(GarError, RuntimeError):
    """The worker processes cannot be started. A failure that concerns one answer is a status instead."""

    code = "worker"


class WorkerPool:
    """Calls one function on many items in killable processes, which start when first needed.

    Killed items have a budget per batch: `BUDGET_LIMITS` time limits, plus the time that the other items take. When
    half of it is spent, the limit falls to a tenth (at least `BRIEF_SECONDS`). When all of it is spent, the remaining
    items are not tried and count as timed out.
    """

    def __init__(self, setup: Setup, num_workers: int) -> None:
        self._setup = setup
        self._num_workers = num_workers
        self._lock = threading.RLock()
        self._controls: list[Connection] = []  # a pipe to each keeper
        self._stop: weakref.finalize | None = None
        # A keeper may start a worker, send and try an item twice. The first one also starts itself.
        self._longest_seconds = 3 * START_SECONDS + 6 * setup.timeout_seconds
        _POOLS.add(self)

    def close(self) -> None:
        """End all processes, after a batch that another thread may be running. A later `run` starts new ones."""
        with self._lock:
            if self._stop:
                self._stop()
            self._controls = []

    def run(self, items: Sequence[tuple[str, ...]]) -> list[Graded]:
        """Call the function on every item, and return the outcomes in their order.

        TIMEOUT for an item that was killed at its limit or was not tried. ERROR if the function raised or the worker
        died, with the kind and text of the error or the signal. If a worker is killed from outside, its item is tried
        twice. A `WorkerError` if the processes cannot be started, or are killed again and again.
        """
        if not items:
            return []
        with self._lock:
            for _ in range(MAX_STARTS):
                try:
                    if not self._controls:
                        self._start()
                    return self._outcomes(items)
                except (EOFError, ConnectionError, BlockingIOError, TimeoutError):  # a keeper is dead, or stopped
                    self.close()
                except BaseException:  # Ctrl-C included: no item may stay behind in a worker
                    self.close()
                    raise
            raise WorkerError(
                f"the process that starts verification workers died or was stopped {MAX_STARTS} times. "
                "Its traceback, if there is one, is on the standard error stream"
            )

    def _begin_anew(self) -> None:
        """In a fork: leave the keepers and the lock to the parent, in which a thread may hold it."""
        self._lock = threading.RLock()
        for control in self._controls:  # else keepers would wait for the fork's end as well
            control.close()
        self._controls = []
        if self._stop:
            self._stop.detach()

    def _start(self) -> None:
        """Start the keepers. They stop at the latest when this object or the interpreter ends."""
        pairs = [timed_pair(self._longest_seconds) for _ in range(self._num_workers)]
        self._controls = [control for control, _ in pairs]
        fds = [keeper_end.fileno() for _, keeper_end in pairs]
        serve = f"from gar.verify.keeper import main; main(*{fds})"
        process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {serve}"],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal must not reach it
        )
        for _, keeper_end in pairs:
            keeper_end.close()
        self._stop = weakref.finalize(self, _stop, self._controls, process)
        with contextlib.suppress(OSError):  # if it died, the first item raises an error
            self._controls[0].send(self._setup)

    def _outcomes(self, items: Sequence[tuple[str, ...]]) -> list[Graded]:
        outcomes: dict[int, Graded] = {}
        queue = deque(range(len(items)))
        idle = [*self._controls]
        busy: dict[Connection, tuple[int, float, float]] = {}  # the item of each keeper, its limit and its start
        lost_seconds = useful_seconds = 0.0  # wall-clock time spent on items killed at their limit, and on all others
        budget = BUDGET_LIMITS * self._setup.timeout_seconds
        while queue or busy:
            limit = self._setup.timeout_seconds
            if lost_seconds >= budget / 2:
                limit = min(limit, max(BRIEF_SECONDS, limit / 10))
            while queue and idle:
                keeper, index = idle.pop(), queue.popleft()
                keeper.send((items[index], limit))
                busy[keeper] = index, limit, time.monotonic()
            readable = wait(list(busy), self._longest_seconds)
            if not readable:
                raise TimeoutError
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
            budget = BUDGET_LIMITS * self._setup.timeout_seconds + useful_seconds
            if queue and lost_seconds >= budget:
                outcomes |= _given_up(queue, len(items), lost_seconds)
                queue.clear()
        return [outcomes[index] for index in range(len(items))]


def _given_up(queue: Sequence[int], num_items: int, lost_seconds: float) -> dict[int, Graded]:
    """The remaining items of a batch count as timed out: killed items have used up its budget."""
    of_all, lost = f"{len(queue)} of {num_items}", f"{lost_seconds:.1f}"
    text = "%s answers were not checked and count as timed out: others that were killed had cost %s seconds."
    _log.warning(text, of_all, lost)
    detail = f"not checked, as {of_all}: answers before it that were killed had cost {lost} s"
    return dict.fromkeys(queue, Graded(status=Status.TIMEOUT, detail=detail))


def _stop(controls: list[Connection], process: subprocess.Popen[bytes]) -> None:
    for control in controls:
        control.close()
    try:
        process.wait(END_SECONDS)  # at the end of its pipe each keeper kills its worker. The first waits for the others
    except subprocess.TimeoutExpired:  # one is stopped
        os.killpg(process.pid, signal.SIGKILL)  # the group of all keepers. Their workers die with them
        process.wait()


_POOLS: "weakref.WeakSet[WorkerPool]" = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: [pool._begin_anew() for pool in _POOLS])
