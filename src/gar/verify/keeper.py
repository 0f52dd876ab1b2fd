"""Fork server for verification workers: a process that forks, kills and reaps workers, and the workers.

Why a keeper between the pool and its workers? The training process has threads and a GPU context, so it must not fork.
A fresh interpreter for every worker would spend half a second on imports. The keeper is a fresh interpreter without
torch and without threads. Forking from it is safe and takes milliseconds. When the pool's process ends, for whatever
reason, the keeper kills every worker, even one that hangs in C code. Unix only. Tested on Linux.
"""

import contextlib
import gc
import logging
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

from gar.types import Status
from gar.verify.answers import Graded, error_text

_OBJECTS_PER_COLLECTION = 50_000
"""A parser makes thousands of objects per answer. Python's default of 700 costs a sixth of the grading time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """The first message to a keeper: the pickled function, as `WorkerPool` describes the arguments."""

    function: bytes
    warm_up: tuple[tuple[str, ...], ...]  # without any, only workers load `function`
    memory_bytes: int


def main(control_fd: int) -> None:
    """Serve the pool at the other end of `control_fd` until it ends.

    A request is either None, followed by a descriptor: fork a worker that communicates through it, and reply with its
    process id. Or it is a process id: kill that worker, and reply with its exit code, negative for a signal.
    """
    os.set_inheritable(control_fd, False)
    os.dup2(2, 1)  # what a grader prints does not belong in the program's output
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own time limits are off
    control = Connection(control_fd)
    workers: set[int] = set()
    try:
        setup: Setup = control.recv()
        for item in setup.warm_up:
            pickle.loads(setup.function)(*item)
        gc.freeze()  # workers must not collect inherited objects, which would copy their pages
        gc.set_threshold(_OBJECTS_PER_COLLECTION)
        _serve(control, setup, workers)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the pool's process is gone
    finally:
        for pid in workers:
            _kill(pid)


def _serve(control: Connection, setup: Setup, workers: set[int]) -> None:
    pool = os.getppid()
    while True:
        # A fork of the pool's process may hold the pipe open, so the end of the pipe is not the only sign.
        while not control.poll(1.0):
            if os.getppid() != pool:
                return
        request: int | None = control.recv()
        if request is None:
            worker_fd = recv_handle(control)
            pid = os.fork()
            if pid == 0:
                control.close()
                _work(worker_fd, setup)
            os.close(worker_fd)
            with contextlib.suppress(OSError):  # the worker does the same, and one of the two comes first
                os.setpgid(pid, pid)
            workers.add(pid)
            control.send(pid)
        else:
            workers.discard(request)
            control.send(_kill(request))


def _kill(pid: int) -> int:
    """Kill a worker and its child processes, and return its exit code, which is its own if it was already dead."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it is dead, or has left its group
            kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _work(worker_fd: int, setup: Setup) -> None:
    """Run a worker: set its limits, load the function, then send one outcome per item until the pool disconnects.

    With each outcome it says whether it takes another item. It does not near its memory limit, which that item may hit.
    """
    exit_code = 1
    try:
        os.set_inheritable(worker_fd, False)
        os.setpgid(0, 0)
        if sys.platform == "linux":
            _die_with_keeper()
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_DATA, setup.memory_bytes)
        connection = Connection(worker_fd)
        function = _loaded(setup.function)
        connection.send(None)  # ready
        while True:
            outcome = _outcome(function, connection.recv())
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


def _die_with_keeper() -> None:
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def _loaded(function: bytes) -> Callable[..., Graded]:
    try:
        return pickle.loads(function)
    except BaseException as error:
        failure = Graded(status=Status.ERROR, detail=f"the grader cannot be loaded in a worker: {error_text(error)}")
        return lambda *item: failure


def _outcome(function: Callable[..., Graded], item: tuple[str, ...]) -> Graded:
    # BaseException: math-verify's TimeoutException is one, and so is SystemExit in a user's grader.
    try:
        return function(*item)
    except BaseException as error:
        return Graded(status=Status.ERROR, detail=error_text(error))
