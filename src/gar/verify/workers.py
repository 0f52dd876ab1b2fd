"""A pool of processes that check answers under a hard limit of wall-clock time and memory.

A worker that passes its time limit is killed and replaced, and so is one that dies. The others go on. A worker gets
one item at a time, so that each item has its own clock. The time that killed items may cost a batch is bounded as well.
An item whose worker was killed from outside, or with its keeper, is tried once more. Works from any thread. Unix only.
Tested on Linux.
"""

import contextlib
import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.reduction import send_handle

from gar.errors import GarError
from gar.types import Status
from gar.verify.answers import Graded
from gar.verify.keeper import Setup

START_SECONDS = 60.0  # time to import math-verify, or the module of a user's grader, on a busy machine
BUDGET_LIMITS = 6  # killed items may cost a batch this many time limits, and as much time as its other items take
BRIEF_SECONDS = 0.5  # ordinary items take a twentieth of it
MOST_LOSSES = 3  # keepers, or workers before their first item, that may be killed during one batch
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_KEEPER = "the process that starts verification workers"

_log = logging.getLogger(__name__)


class WorkerError(GarError, RuntimeError):
    """The worker processes cannot be started. A failure that concerns one answer is a status instead."""

    code = "worker"


@dataclass(slots=True, eq=False)
class _Worker:
    pid: int
    connection: Connection
    deadline: float  # for its start, then for its item
    ready: bool = False
    index: int | None = None  # of its current item
    limit_seconds: float = START_SECONDS  # for its item


class _KeeperKilledError(WorkerError):
    """The keeper was killed from outside, and its workers died with it."""


@dataclass(slots=True, eq=False)
class _Batch:
    """The items of one `run`, each with an index, and their outcomes."""

    items: Sequence[tuple[str, ...]]
    queue: deque[int]  # waiting
    outcomes: dict[int, Graded] = field(default_factory=dict)
    retried: set[int] = field(default_factory=set)
    lost_seconds: float = 0.0  # wall-clock time spent on items killed at their limit
    useful_seconds: float = 0.0  # on all other items
    num_losses: int = 0  # keepers, and workers before their first item, that were killed

    def try_again(self, index: int, outcome: Graded) -> None:
        """Put an item back, but only once: the second outcome counts."""
        if index in self.retried:
            self.outcomes[index] = outcome
        else:
            self.retried.add(index)
            self.queue.appendleft(index)


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
        self._setup = Setup(function=pickle.dumps(function), warm_up=tuple(warm_up), memory_bytes=memory_bytes)
        self._num_workers = num_workers
        self._timeout_seconds = timeout_seconds
        self._lock = threading.RLock()
        self._keeper: _Keeper | None = None
        self._workers: list[_Worker] = []

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, after a batch that another thread may be running. A later `run` starts new ones."""
        with self._lock:
            for worker in self._workers:
                worker.connection.close()
            self._workers = []
            if self._keeper is not None:
                self._keeper.stop()
                self._keeper = None

    def run(self, items: Sequence[tuple[str, ...]]) -> list[Graded]:
        """Call the function on every item.

        Returns:
            The outcomes in the order of the items. TIMEOUT for an item whose worker was killed at its limit or that was
            not tried because killed items had used up the batch's budget. ERROR if the function raised or the worker
            died, with the kind and text of the error or the signal. An item whose worker was killed from outside is
            tried twice.

        Raises:
            WorkerError: The processes cannot be started, or are killed again and again.
        """
        batch = _Batch(items, deque(range(len(items))))
        with self._lock:
            if self._keeper is not None and not self._keeper.usable():
                self.close()
            try:
                while num_open := len(items) - len(batch.outcomes):
                    try:
                        self._reap_idle()
                        self._start_workers(num_open)
                        self._hand_out(batch)
                        self._collect(batch)
                    except _KeeperKilledError as error:
                        self._replace_keeper(batch, error)
            except BaseException:  # Ctrl-C included: no item may stay behind in a worker
                self.close()
                raise
        return [batch.outcomes[index] for index in range(len(items))]

    def _replace_keeper(self, batch: _Batch, error: WorkerError) -> None:
        """Start again, and retry the items of the killed keeper's workers."""
        batch.num_losses += 1
        if batch.num_losses > MOST_LOSSES:
            raise WorkerError(str(error))
        for worker in self._workers:
            if worker.index is not None:
                batch.try_again(worker.index, Graded(status=Status.ERROR, detail=str(error)))
        self.close()

    def _reap_idle(self) -> None:
        """Reap workers that exited while idle. Idle workers send nothing else."""
        for worker in list(self._workers):
            if worker.ready and worker.index is None and worker.connection.poll():
                self._bury(worker)

    def _start_workers(self, num_wanted: int) -> None:
        if self._keeper is None:
            self._keeper = _Keeper(self._setup)
        while len(self._workers) < min(self._num_workers, num_wanted):
            pool_end, worker_end = socket.socketpair()
            with worker_end:
                # A worker that does not read must not block the pool.
                limit = struct.pack("ll", int(self._timeout_seconds), int(self._timeout_seconds % 1 * 1e6) + 1)
                pool_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
                connection = Connection(pool_end.detach())
                pid = self._keeper.ask(None, worker_end.fileno())
            self._workers.append(_Worker(pid, connection, deadline=time.monotonic() + START_SECONDS))

    def _hand_out(self, batch: _Batch) -> None:
        budget = BUDGET_LIMITS * self._timeout_seconds + batch.useful_seconds
        if batch.queue and batch.lost_seconds >= budget:
            self._give_up(batch)
        brief = min(self._timeout_seconds, max(BRIEF_SECONDS, self._timeout_seconds / 10))
        for worker in list(self._workers):
            if batch.queue and worker.ready and worker.index is None:
                worker.index = batch.queue.popleft()
                worker.limit_seconds = brief if batch.lost_seconds >= budget / 2 else self._timeout_seconds
                worker.deadline = time.monotonic() + worker.limit_seconds
                try:
                    worker.connection.send(batch.items[worker.index])
                except OSError:
                    self._lose(worker, batch)

    def _give_up(self, batch: _Batch) -> None:
        """Count the remaining items of a batch as timed out: killed items have used up its budget."""
        of_all, lost = f"{len(batch.queue)} of {len(batch.items)}", f"{batch.lost_seconds:.1f}"
        text = "%s answers were not checked and count as timed out: others that were killed had cost %s seconds."
        _log.warning(text, of_all, lost)
        detail = f"not checked, as {of_all}: answers before it that were killed had cost {lost} s"
        batch.outcomes.update(dict.fromkeys(batch.queue, Graded(status=Status.TIMEOUT, detail=detail)))
        batch.queue.clear()

    def _collect(self, batch: _Batch) -> None:
        """Wait for the next outcome, death or time limit, and handle all that have occurred."""
        active = [worker for worker in self._workers if worker.index is not None or not worker.ready]
        if not active:
            return
        next_deadline = min(worker.deadline for worker in active)
        readable = wait([worker.connection for worker in active], max(0.0, next_deadline - time.monotonic()))
        for worker in active:
            if worker.connection in readable:
                self._listen(worker, batch)
            elif time.monotonic() >= worker.deadline:
                self._lose(worker, batch, timed_out=True)

    def _listen(self, worker: _Worker, batch: _Batch) -> None:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            self._lose(worker, batch)
            return
        if worker.index is None:
            worker.ready = True
            return
        batch.outcomes[worker.index], fit = message
        started = worker.deadline - worker.limit_seconds
        batch.useful_seconds += (time.monotonic() - started) / self._num_workers
        worker.index = None
        if not fit:
            self._bury(worker)

    def _lose(self, worker: _Worker, batch: _Batch, *, timed_out: bool = False) -> None:
        """Bury a worker that died or passed its limit, and record the outcome of its item or try the item again."""
        exit_code = self._bury(worker)
        killed = not timed_out and -exit_code in _FROM_OUTSIDE
        if worker.index is None:
            batch.num_losses += 1
            if killed and batch.num_losses <= MOST_LOSSES:
                return
            why = f"was not ready within {START_SECONDS:g} s" if timed_out else _cause_of_death(exit_code)
            raise WorkerError(
                f"a verification worker {why} before its first item. "
                f"Is memory_bytes = {self._setup.memory_bytes} too small, or does the grader's module crash on import?"
            )
        if timed_out:
            batch.lost_seconds += worker.limit_seconds / self._num_workers
            detail = f"killed after {worker.limit_seconds:g} s"
            batch.outcomes[worker.index] = Graded(status=Status.TIMEOUT, detail=detail)
            return
        outcome = Graded(status=Status.ERROR, detail=f"the worker {_cause_of_death(exit_code)}")
        if killed:
            batch.try_again(worker.index, outcome)
        else:
            batch.outcomes[worker.index] = outcome

    def _bury(self, worker: _Worker) -> int:
        """Kill a worker and return its exit code, which is its own if it was already dead."""
        assert self._keeper is not None
        exit_code = self._keeper.ask(worker.pid)
        self._workers.remove(worker)
        worker.connection.close()
        return exit_code


def _cause_of_death(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    return f"died of signal {-exit_code} ({signal.strsignal(-exit_code)})"


class _Keeper:
    """The pool's side of a keeper process, which stops at the latest when this object or the interpreter ends."""

    def __init__(self, setup: Setup) -> None:
        self._control, keeper_end = Pipe()
        serve = f"from gar.verify.keeper import main; main({keeper_end.fileno()})"
        with keeper_end:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {serve}"],
                pass_fds=[keeper_end.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal must not reach it
            )
        self._owner = os.getpid()
        self.stop = weakref.finalize(self, _stop, self._control, self._process, self._owner)
        with contextlib.suppress(OSError):  # if it died, the first request says so
            self._control.send(setup)

    def usable(self) -> bool:
        """Whether the keeper is alive and belongs to this process, not to a parent that forked it."""
        return os.getpid() == self._owner and self._process.poll() is None

    def ask(self, request: int | None, worker_fd: int = -1) -> int:
        """Send a request, as `keeper.main` describes them, and return the reply."""
        try:
            self._control.send(request)
            if request is None:
                send_handle(self._control, worker_fd, self._process.pid)
            if self._control.poll(START_SECONDS):
                return self._control.recv()
        except (EOFError, OSError):
            killed = self._process.wait(START_SECONDS) < 0
            raise (_KeeperKilledError if killed else WorkerError)(
                f"{_KEEPER} died. Its traceback, if there is one, is on the standard error stream"
            ) from None
        raise WorkerError(f"{_KEEPER} did not answer within {START_SECONDS:g} s")


def _stop(control: Connection, process: subprocess.Popen[bytes], owner: int) -> None:
    control.close()
    if os.getpid() != owner:
        return  # this is a fork of the owner, which has no right to stop the keeper
    try:
        process.wait(5.0)  # at the end of its pipe it kills all workers
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
