"""Child processes that end with their test, and whose tests end."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

SECONDS = 600.0
"""The limit of every wait in a test: a hundred times what it takes, for a machine that is slow or busy."""


def run(command: Sequence[Any], **options: Any) -> subprocess.CompletedProcess:
    """Run a command to its end, and bring back its output as text."""
    return subprocess.run(command, **{"capture_output": True, "text": True, "timeout": SECONDS} | options)


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


def in_time(function: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """The function's result. It runs in a thread, because it may hang."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, f"no result after {seconds:g} s"
    return results[0]
