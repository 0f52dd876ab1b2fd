"""`gar train` as a run of a comparison: it ends with the process that started it, even after kill -9.

    python -m gar.comparison.child CONFIG.yaml
    LAUNCHER ... -m gar.comparison.child --resume RUN        # one of several ranks

What it has written stays, and the next `gar compare` resumes from its last whole checkpoint.
"""

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


def main(arguments: list[str]) -> int:
    """Run `gar train` with these arguments. Returns its exit status."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
    from gar.cli.main import main as gar

    return gar(["train", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
