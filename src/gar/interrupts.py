"""Stop a run by a signal. After the first the running step ends and is saved. A second request ends the run at once."""

import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)

_KILL_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)

END_WITH_PARENT = "GAR_END_WITH_PARENT"
"""Environment variable. With it `gar train` ends with its parent: in a comparison, a rank with its launcher."""

SAME_REQUEST_SECONDS = 10.0
"""Signals within this time are one request: a scheduler signals every process, and torchrun's agent its ranks again."""

CTRL_C_SECONDS = 0.5
"""The same without a launcher, where a person presses Ctrl-C again to end at once. SIGTERM stays one request."""

_AGAIN = {CTRL_C_SECONDS: " Again to end at once.", SAME_REQUEST_SECONDS: " Again after 10 s to end at once."}

AGAIN_SECONDS = 0.1
"""When a signal is sent again that came during a finalizer of Python, which drops exceptions."""


class Interrupted(KeyboardInterrupt):
    """A signal ends the run. `number` is the signal's."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


class Interrupts:
    """Catches signals, and keeps the first one for the work to see.

    Attributes:
        number: The first signal, 0 for none.
        waits: Whether the running work looks at `number` and ends by itself. Otherwise a signal raises `Interrupted`.
        served: Whether the run is ending. Further signals are ignored.
        caught: Whether signals are caught at all.
    """

    def __init__(self) -> None:
        self.number = 0
        self.waits = self.served = self.caught = False
        self._pid, self._time = os.getpid(), 0.0

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Catch Ctrl-C, and what clusters send: SIGTERM, SIGUSR1, and SIGHUP of a closed terminal. Main thread only.

        Signals that are ignored, as under `nohup`, or that a library handles, stay as they are.
        """
        before = {number: signal.getsignal(number) for number in _NUMBERS}
        taken = {number: was for number, was in before.items() if was in _DEFAULTS}
        for number in taken:
            signal.signal(number, self._receive)
        report = sys.unraisablehook

        def raise_later(unraisable: Any) -> None:
            if isinstance(unraisable.exc_value, Interrupted):  # a finalizer ran when the signal came, and dropped it
                self._time = -math.inf  # what is sent again counts
                threading.Timer(AGAIN_SECONDS, self._send_again).start()
            else:
                report(unraisable)

        sys.unraisablehook = raise_later
        self.caught = True
        try:
            yield
        finally:
            self.caught = False
            sys.unraisablehook = report
            for number, was in taken.items():
                signal.signal(number, was)

    def _send_again(self) -> None:
        if self.caught and not self.served:
            os.kill(self._pid, self.number)

    def _receive(self, number: int, frame: Any) -> None:
        if os.getpid() != self._pid:  # a fork, for example a worker of a data loader: its parent decides
            if number != signal.SIGINT:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        now = time.monotonic()
        window = _same_request_seconds(self.number, number)
        if self.served or (self.number and now - self._time < window):
            return
        first, self.number, self._time = not self.number, self.number or number, now
        if not (first and self.waits):
            raise Interrupted(self.number)
        if os.environ.get("RANK", "0") == "0":
            name, again = signal.Signals(number).name, _AGAIN.get(_same_request_seconds(number, number), "")
            with suppress(OSError):  # no print: the signal may have come within one
                os.write(2, f"\ngar: {name}: finishing this step, then a checkpoint.{again}\n".encode())


def _same_request_seconds(first: int, second: int) -> float:
    """For how long a second signal is the same request as the first. Launchers set LOCAL_RANK and forward SIGINT."""
    if "LOCAL_RANK" in os.environ or first != second:
        return SAME_REQUEST_SECONDS
    return math.inf if first == signal.SIGTERM else CTRL_C_SECONDS


def end_with_parent(parent: int | None = None) -> None:
    """Let the kernel kill this process when its parent ends. Does nothing on systems other than Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_KILL_WITH_PARENT, signal.SIGKILL)
        if parent not in (None, os.getppid()):  # it has ended already
            os._exit(1)
