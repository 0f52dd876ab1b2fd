"""Standard streams that outlive their terminal and their readers: nothing that is printed ends a command."""

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)
"""Errors of a closed pipe, a closed terminal, a closed descriptor."""


class _Lasting(io.FileIO):
    """Writes to a descriptor until that fails, and then to /dev/null."""

    fault: OSError | None = None

    def write(self, data: Any) -> int:
        """As `FileIO.write`, without errors. A descriptor that does not block is waited for."""
        rest = memoryview(data).cast("B")
        try:
            while rest:  # an unbuffered stream writes the rest of a short write itself
                if (written := super().write(rest)) is None:
                    select.select([], [self], [])
                else:
                    rest = rest[written:]
            return memoryview(data).nbytes
        except OSError as error:
            self.fault = error
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), self.fileno())  # for libraries that write to the descriptor, too
            return memoryview(data).nbytes


@contextmanager
def lasting_output() -> Iterator[list[OSError]]:
    """Drop what stdout and stderr do not take, instead of raising an error.

    Streams that were replaced, for example by `contextlib.redirect_stdout`, stay as they are.

    Yields:
        At the end, the errors other than a terminal or a reader that has gone, such as a full disk.
    """
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:  # a file of ours must not take a closed stream's number
        pass
    os.close(spare)
    faults: list[OSError] = []
    with _lasting("stdout", 1, faults), _lasting("stderr", 2, faults):
        yield faults


@contextmanager
def _lasting(name: str, descriptor: int, faults: list[OSError]) -> Iterator[None]:
    """Replace one stream, if it writes to its own descriptor. It is None if that was closed when Python started."""
    before: TextIO | None = getattr(sys, name)
    if before is not None and _number(before) != descriptor:
        yield
        return
    raw, unbuffered = _Lasting(descriptor, "wb", closefd=False), getattr(before, "write_through", False)
    stream = io.TextIOWrapper(
        cast(Any, raw) if unbuffered else io.BufferedWriter(raw),
        encoding=getattr(before, "encoding", "utf-8"),
        errors=getattr(before, "errors", "replace"),
        line_buffering=getattr(before, "line_buffering", False),
        write_through=unbuffered,  # python -u
    )
    setattr(sys, name, stream)
    try:
        yield
    finally:
        setattr(sys, name, before)
        stream.flush()
        if raw.fault is not None and raw.fault.errno not in _GONE:
            faults.append(raw.fault)


def _number(stream: TextIO) -> int | None:
    """The descriptor that a stream writes to, once it is flushed."""
    with suppress(OSError, ValueError, AttributeError):
        number = stream.fileno()
        with suppress(OSError):
            stream.flush()
        return number
    return None
