"""Work on a data source in processes on all cores."""

import gc
import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from gar.errors import GarError
from gar.interrupts import end_with_parent

Batch = TypeVar("Batch")
Result = TypeVar("Result")
_MOST_PROCESSES = 16


def in_processes(work: Callable[[Batch], Result], batches: Iterable[Batch]) -> Iterator[Result]:
    """`work(batch)` for each batch, in their order. Memory holds a batch or a result for each process.

    An error of `batches` is raised after all results of those before it.
    The processes are forks, so `work` need not be pickled. On one core, in a daemon and elsewhere than on Linux there
    are none. A pool of the standard library does not do: it waits forever for the rest of a result whose process was
    killed.

    Raises:
        GarError: A process was killed.
    """
    forks = sys.platform == "linux" and not multiprocessing.current_process().daemon
    number = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES) if forks else 1
    if number == 1:
        yield from map(work, batches)
        return
    workers: list[BaseProcess] = []
    busy = deque[Connection]()  # the first one's result comes next
    failure: list[GarError] = []
    try:
        for batch in _until_error(batches, failure.append):
            if len(workers) < number:
                worker, pipe = _started(work)
                workers.append(worker)
                _send(pipe, batch)
            else:
                pipe = busy.popleft()
                result = _received(pipe)
                _send(pipe, batch)
                yield result
            busy.append(pipe)
        yield from map(_received, busy)
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    if failure:
        raise failure[0]


def _until_error(batches: Iterable[Batch], on_error: Callable[[GarError], None]) -> Iterator[Batch]:
    try:
        yield from batches
    except GarError as error:
        on_error(error)


def _send(pipe: Connection, batch: Any) -> None:
    with _killed():
        pipe.send(batch)


def _received(pipe: Connection) -> Any:
    with _killed():
        result, error = pipe.recv()
    if error is not None:
        raise error
    return result


@contextmanager
def _killed() -> Iterator[None]:
    try:
        yield
    except (EOFError, ConnectionError) as error:
        text = "a process that reads the data was killed. Is there too little memory?"
        raise GarError(text, code="killed") from error


def _started(work: Callable[[Any], Any]) -> tuple[BaseProcess, Connection]:
    """A new process and the pipe to it, whose other end it alone holds: so its end shows."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(work, theirs, os.getpid()), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(work: Callable[[Any], Any], pipe: Connection, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent kills it
    end_with_parent(parent)
    gc.freeze()  # else each collection writes to the parent's objects, and so copies their memory
    while True:
        batch = pipe.recv()
        try:
            answer = work(batch), None
        except Exception as error:
            error.add_note(traceback.format_exc())
            answer = None, error
        pipe.send(answer)
