"""`gar train` as a run of a comparison: it ends with the process that started it, even after kill -9.

    python -m gar.cli.child CONFIG.yaml
    LAUNCHER ... -m gar.cli.child --resume RUN        # one of several ranks

What it has written stays, and the next `gar compare` resumes from its last whole checkpoint.
"""

import signal
import sys

from gar.cli.main import main as gar
from gar.interrupts import end_with_parent


def main(arguments: list[str]) -> int:
    """Run `gar train` with these arguments. Returns its exit status."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
    return gar(["train", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
