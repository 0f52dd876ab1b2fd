"""Child processes that end with their test, and whose tests end."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

SECONDS = 600.0
"""The limit of every wait in a test: ten times what it takes and more, for a machine that is slow or busy."""


def completed(
    command: Sequence[Any], *, input: str | None = None, check: bool = False, seconds: float = SECONDS, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and bring back its output as text."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with running(command, **pipes, text=True, **options) as process:
        output = process.communicate(input, timeout=seconds)
    done = subprocess.CompletedProcess(command, process.returncode, *output)
    if check:
        done.check_returncode()
    return done


@contextmanager
def running(command: Sequence[Any], **options: Any) -> Iterator[subprocess.Popen]:
    """Start a command that is killed at the end of the block, with what it started."""
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_until(condition: Callable[[], object], seconds: float = SECONDS) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
