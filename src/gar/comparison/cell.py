"""Run one cell of a comparison in its own process: train or resume as `gar train` does, and write `result.json`.

    python -m gar.comparison.cell PARENT CONFIG.yaml [LAUNCHER ...]
    LAUNCHER ... -m gar.comparison.cell train CONFIG.yaml        # or resume RUN: one of several ranks

PARENT is the process id of the comparison. On Linux the kernel kills the cell when the comparison ends, even by
kill -9. What it has written stays, and the next call resumes from its last whole checkpoint. The cell holds the lock of
CONFIG.yaml, so two comparisons never run it at the same time.
"""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from gar.comparison.plan import PlannedRun
from gar.comparison.result import Usage, write_result
from gar.config import make_config, read_config
from gar.errors import ConfigError, GarError, LockedError, RecordError
from gar.methods import METHODS
from gar.records import RunFolder
from gar.records.checkpoints import find_checkpoint
from gar.records.files import io_error
from gar.records.lock import writer_lock
from gar.train.resume import read_resumption

LOCKED = 75
"""Exit status if another process runs the cell."""
INTERRUPTED = 130
_TRAINING = ("train", "resume")
_KILL_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def main(arguments: list[str]) -> int:
    """Run one cell, or one of its ranks. Returns the exit status of `gar train`, or `LOCKED`."""
    start = time.perf_counter()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
    first, source, *launcher = arguments
    _die_with_parent(None if first in _TRAINING else int(first))
    try:
        if first in _TRAINING:
            from gar.integrations.trl.ranks import leave_ranks

            _train(first, source)
            leave_ranks()
        else:
            with writer_lock(Path(source)):
                run_cell(source, launcher, start)
    except LockedError as error:
        print(error, file=sys.stderr)
        return LOCKED
    except GarError as error:
        print(f"gar train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def run_cell(source: str, launcher: Sequence[str], start: float) -> None:
    """Train or resume the run of a configuration file, and write its result. A finished run is not trained again.

    `launcher` holds the words of the command that starts the ranks. It is empty for one process. `start` is the time
    at which the process started, from `time.perf_counter`.
    """
    config = make_config(read_config(source), source=source)
    cell = PlannedRun(label=config.method, config=config)
    state = _state(cell, launcher)
    if state == "finished":
        return
    mode, target = ("resume", str(cell.folder)) if state == "resumable" else ("train", source)
    if state == "new" and cell.folder.exists():
        _remove(cell.folder)
    if launcher:
        _launch([*launcher, "-m", "gar.comparison.cell", mode, target])
    else:
        _train(mode, target)
    used = resource.getrusage(resource.RUSAGE_CHILDREN if launcher else resource.RUSAGE_SELF)
    usage = Usage(
        wall_seconds=time.perf_counter() - start,
        cpu_seconds=used.ru_utime + used.ru_stime,
        peak_memory_bytes=used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    )
    write_result(cell, usage)


def _train(mode: str, target: str) -> None:
    from gar.train.run import resume, train

    if mode == "resume":
        resume(target)
    else:
        train(make_config(read_config(target), source=target), command=["gar", "train", target])


def _launch(command: Sequence[str]) -> None:
    try:
        process = subprocess.Popen(command, preexec_fn=partial(_die_with_parent, os.getpid()))
    except OSError as error:
        raise ConfigError(f"--launch: '{command[0]}' cannot be started: {error.strerror}.") from error
    if status := process.wait():
        raise RecordError(f"{' '.join(command)} ended with status {status}. Its output is above.")


def _state(cell: PlannedRun, launcher: Sequence[str]) -> Literal["finished", "resumable", "new"]:
    """The state of the cell's run folder. A failed run counts as new, because it would fail again.

    If a finished run was killed before its result was written, the result is written now, without its cost.
    """
    try:
        folder = RunFolder.open(cell.folder)
        status = folder.read_run().status
        if read_resumption(folder).config != cell.config:
            return "new"
        if status == "finished":
            write_result(cell, None)
            return "finished"
        if status == "failed" or METHODS[cell.config.method].cannot_resume:
            return "new"
        return "resumable" if find_checkpoint(folder, num_ranks=None if launcher else 1).path else "new"
    except GarError:
        return "new"


def _remove(path: Path) -> None:
    with writer_lock(path):  # a `gar train --resume` by hand may write there
        pass
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise io_error(path, "removed for a new start", error) from error


def _die_with_parent(parent: int | None) -> None:
    """Let the kernel kill this process when its parent ends. Linux only. Elsewhere the process runs to its end."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_KILL_WITH_PARENT, signal.SIGKILL)
        if parent not in (None, os.getppid()):  # it has ended already
            os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
