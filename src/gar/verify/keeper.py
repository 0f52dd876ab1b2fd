"""Keepers: processes that fork, feed, kill and reap one worker each. A worker checks one item at a time.

Why a process between the pool and a worker? The training process has threads and a GPU context, so it must not fork.
A fresh interpreter for every worker would spend half a second on imports. The first keeper is a fresh interpreter
without torch and without threads. The others are its forks, and forking a worker is safe and takes milliseconds. When
the pool's process ends, for whatever reason, its keepers kill their workers, even one that hangs in C code.
"""

import contextlib
import gc
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from gar.interrupts import end_with_parent
from gar.types import Status
from gar.verify.grades import Graded, error_text

START_SECONDS = 60.0  # time to import the module of a user's grader, on a busy machine
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_OBJECTS_PER_COLLECTION = 50_000
"""A parser makes thousands of objects per answer. Python's default of 700 costs a sixth of the grading time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """The settings of a pool, and the first message to the first keeper.

    Attributes:
        function: Pickled. Takes the strings of an item: a text, a gold answer, maybe more.
        warm_up: Items on which `function` is called once before workers start, so that all workers inherit imports and
            caches and no item waits for them. Not for functions that may crash or hang: without any, only workers load
            `function`.
        timeout_seconds: Wall-clock limit for each item, from when a worker gets it.
        memory_bytes: Limit for each worker's own memory (RLIMIT_DATA, without effect on macOS).
    """

    function: bytes
    warm_up: tuple[tuple[str, ...], ...]
    timeout_seconds: float
    memory_bytes: int


class _PoolGoneError(Exception):
    """The pool's process has ended."""


def timed_pair(seconds: float) -> tuple[Connection, Connection]:
    """The two ends of a pipe. The first raises `BlockingIOError` if a message takes so long."""
    ends = socket.socketpair()
    limit = struct.pack("ll", *divmod(int(seconds * 1e6) + 1, 10**6))
    for direction in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        ends[0].setsockopt(socket.SOL_SOCKET, direction, limit)
    return Connection(ends[0].detach()), Connection(ends[1].detach())


def main(*control_fds: int) -> None:
    """Start a keeper for each end of a pipe to the pool, and serve the pool until it ends.

    The pool sends items, one at a time, each with its limit in seconds. The reply is the item's outcome, or the
    reason why no worker starts, as text.
    """
    os.dup2(2, 1)  # what a grader prints does not belong in the program's output
    controls = [Connection(fd) for fd in control_fds]
    pool = os.getppid()
    try:
        setup: Setup = controls[0].recv()
        for item in setup.warm_up:
            pickle.loads(setup.function)(*item)
        gc.freeze()  # workers must not collect inherited objects, which would copy their pages
        gc.set_threshold(_OBJECTS_PER_COLLECTION)
        mine = controls[0]
        for control in controls[1:]:
            if os.fork() == 0:
                mine = control
                break
        for control in controls:
            if control is not mine:
                control.close()
        _Keeper(mine, setup).serve()
    except (EOFError, BrokenPipeError, ConnectionResetError, _PoolGoneError):
        if os.getppid() == pool:  # the pool has closed all pipes, so the other keepers end too
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.wait()


class _Keeper:
    def __init__(self, control: Connection, setup: Setup) -> None:
        self._control = control
        self._setup = setup
        self._parent = os.getppid()
        self._worker: Connection | None = None
        self._worker_pid = 0

    def serve(self) -> None:
        """Check items until the pool is gone, which raises an error."""
        try:
            while True:
                while not self._control.poll(1.0):
                    self._check_parent()
                item, seconds = self._control.recv()
                self._control.send(self._outcome(item, seconds))
        finally:
            self._bury()

    def _outcome(self, item: tuple[str, ...], seconds: float, *, again: bool = True) -> Graded | str:
        """The outcome of an item, tried again if something else killed its worker, or why no worker starts."""
        if self._worker is not None and self._worker.poll():  # it exited while idle
            self._bury()
        starts, limit = self._worker is None, START_SECONDS
        try:
            if self._worker is None:
                self._worker = self._fork()
                self._receive(limit)
            starts, limit = False, seconds
            self._worker.send(item)
            outcome, fit = self._receive(limit)
            if not fit:
                self._bury()
        except (TimeoutError, BlockingIOError):  # no message, or half of one
            self._bury()
            outcome = Graded(status=Status.TIMEOUT, detail=f"killed after {limit:g} s")
        except (EOFError, OSError, pickle.UnpicklingError):
            exit_code = self._bury()
            if again and -exit_code in _FROM_OUTSIDE:
                return self._outcome(item, seconds, again=False)
            cause = f"exited with code {exit_code}"
            if exit_code < 0:
                cause = f"died of signal {-exit_code} ({signal.strsignal(-exit_code)})"
            outcome = Graded(status=Status.ERROR, detail=f"the worker {cause}")
        if not starts:
            return outcome
        return (
            f"no verification worker starts: {outcome.detail}. "
            f"Is memory_bytes = {self._setup.memory_bytes} too small, or does the grader's module crash on import?"
        )

    def _fork(self) -> Connection:
        keeper_end, worker_end = timed_pair(self._setup.timeout_seconds)
        self._worker_pid = os.fork()
        if self._worker_pid == 0:
            keeper_end.close()
            self._control.close()
            _work(worker_end, self._setup)
        worker_end.close()
        with contextlib.suppress(OSError):  # the worker does the same, and one of the two comes first
            os.setpgid(self._worker_pid, self._worker_pid)
        return keeper_end

    def _receive(self, seconds: float) -> Any:
        """The worker's next message. TimeoutError after the limit, EOFError or OSError if it died."""
        assert self._worker is not None
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            readable = wait([self._control, self._worker], min(1.0, left))
            if self._control in readable:  # the pool sends nothing before it has the outcome
                raise _PoolGoneError
            if self._worker in readable:
                return self._worker.recv()
            self._check_parent()
        raise TimeoutError

    def _check_parent(self) -> None:
        # A fork of the pool's process may hold the pipe open, so the end of the pipe is not the only sign.
        if os.getppid() != self._parent:
            raise _PoolGoneError

    def _bury(self) -> int:
        """Kill the worker and its child processes. Its exit code is its own if it was already dead."""
        if self._worker is None:
            return 0
        self._worker.close()
        self._worker = None
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it is dead, or has left its group
                kill(self._worker_pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self._worker_pid, 0)[1])


def _work(connection: Connection, setup: Setup) -> None:
    """Run a worker: set its limits, load the function, then send one outcome per item until the keeper disconnects.

    With each outcome it sends whether it takes another item. Near its memory limit it does not: an item could hit it.
    """
    exit_code = 1
    try:
        os.setpgid(0, 0)
        end_with_parent()  # its keeper
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_DATA, setup.memory_bytes)
        function = _loaded(setup.function)
        connection.send(None)  # ready
        while True:
            outcome = _called(function, connection.recv())
            connection.send((outcome, _peak_bytes() < setup.memory_bytes / 2))
    except (EOFError, OSError):
        exit_code = 0
    finally:
        os._exit(exit_code)  # never return to the keeper's code


def _limit(kind: int, value: int) -> None:
    """Lower a limit, unless the machine's own is lower."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _loaded(function: bytes) -> Callable[..., Graded]:
    try:
        return pickle.loads(function)
    except BaseException as error:
        failure = Graded(status=Status.ERROR, detail=f"the grader cannot be loaded in a worker: {error_text(error)}")
        return lambda *item: failure


def _called(function: Callable[..., Graded], item: tuple[str, ...]) -> Graded:
    # BaseException: SystemExit in a user's grader is one.
    try:
        return function(*item)
    except BaseException as error:
        return Graded(status=Status.ERROR, detail=error_text(error))
