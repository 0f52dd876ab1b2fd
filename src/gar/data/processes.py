"""Work on a data source in processes on all cores."""

import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
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

    The first batch is worked on here, so that little data needs no process. The processes are forks: `work` need not be
    pickled. On one core, in a daemon and elsewhere than on Linux there are none. A pool of the standard library does
    not do: it waits forever for the rest of a result whose process was killed.

    Raises:
        GarError: A process was killed.
    """
    rest = iter(batches)
    forks = sys.platform == "linux" and not multiprocessing.current_process().daemon
    number = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES) if forks else 1
    yield from map(work, rest if number == 1 else islice(rest, 1))
    workers: list[tuple[BaseProcess, Connection]] = []
    try:
        for batch in islice(rest, number):
            workers.append(_started(work))
            workers[-1][1].send(batch)
        busy = deque(pipe for _, pipe in workers)  # the first one's result comes next
        while busy:
            pipe = busy.popleft()
            result, error = pipe.recv()
            if error is not None:
                raise error
            for batch in islice(rest, 1):
                pipe.send(batch)
                busy.append(pipe)
            yield result
    except (EOFError, ConnectionError) as error:
        text = "a process that reads the data was killed. Is there too little memory?"
        raise GarError(text, code="killed") from error
    finally:
        for process, pipe in workers:
            process.kill()
            process.join()
            pipe.close()


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
    while True:
        batch = pipe.recv()
        try:
            answer = work(batch), None
        except Exception as error:
            error.add_note(traceback.format_exc())
            answer = None, error
        pipe.send(answer)
