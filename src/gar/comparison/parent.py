"""A process that ends with the one that started it."""

import ctypes
import os
import signal
import sys

_KILL_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_LIBRARY = ctypes.CDLL(None)


def end_with_parent(parent: int | None = None) -> None:
    """Let the kernel kill this process when its parent ends. Linux only. Elsewhere it runs to its end."""
    if sys.platform == "linux":
        _LIBRARY.prctl(_KILL_WITH_PARENT, signal.SIGKILL)
        if parent not in (None, os.getppid()):  # it has ended already
            os._exit(1)
