"""`gar train` that sends itself signals: python -m tests.train.signalled "2:SIGINT 3:SIGTERM" ARGUMENTS

Each comes when its step begins, in the processes of rank SIGNALLED_RANK if that is set.
"""

import os
import signal
import sys
import time
from typing import Any
from unittest import mock

from gar.cli.main import main
from gar.integrations.trl.callbacks import RunCallback
from gar.interrupts import CTRL_C_SECONDS


def train(signals: str, *arguments: str) -> int:
    """Exit status of `gar train` in this process."""
    begin = RunCallback.on_step_begin

    def begin_signalled(callback: RunCallback, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        begin(callback, args, state, control, **kwargs)
        for event in signals.split():
            step, name = event.split(":")
            if int(step) == state.global_step + 1 and os.environ.get("RANK") == os.environ.get("SIGNALLED_RANK"):
                os.kill(os.getpid(), signal.Signals[name])
                time.sleep(1.2 * CTRL_C_SECONDS)  # a Ctrl-C that follows is a second request

    with mock.patch.object(RunCallback, "on_step_begin", begin_signalled):
        return main(["train", *arguments])


if __name__ == "__main__":
    sys.exit(train(*sys.argv[1:]))
