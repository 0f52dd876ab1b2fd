"""One run of a comparison in a process of its own: `gar train CONFIG.yaml`, exits when the comparison does.

    python -m gar.comparison.child CONFIG.yaml [LAUNCHER ...]
    LAUNCHER ... -m gar.comparison.child train CONFIG.yaml        # or resume RUN: one of several ranks

Standard input is a pipe from the comparison. When it closes, even by kill -9 of the comparison, the run is interrupted
as by Ctrl-C and keeps its last whole checkpoint. The run holds the lock of CONFIG.yaml until it ends, and a successor
waits for the lock, also on another machine, where a lock is valid until its heartbeat is overdue.
A killed run is resumed. A finished run without a result is not trained again.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from gar.comparison.plan import PlannedRun
from gar.comparison.result import USAGE, result_of
from gar.config import make_config, read_config
from gar.errors import ConfigError, GarError, RecordError
from gar.records import RunFolder
from gar.records.checkpoints import find_checkpoint
from gar.records.files import io_error
from gar.records.lock import refuse_writer, writer_lock
from gar.train.resume import read_resumption

_INTERRUPTED = 130
_TRAINING = ("train", "resume")
_GRACE_SECONDS = 20.0
_RANKS_SECONDS = 10.0
_WAIT_SECONDS = 30.0


def main(arguments: list[str]) -> int:
    """Train, or resume what an interrupted comparison left.

    Returns:
        The exit status, as that of `gar train`.
    """
    start = time.perf_counter()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
    threading.Thread(target=_end_with_the_comparison, daemon=True).start()
    source, *launcher = arguments
    try:
        if source in _TRAINING:
            from gar.integrations.trl.ranks import leave_ranks

            _train(source, arguments[1])
            leave_ranks()
        else:
            with writer_lock(Path(source), wait_seconds=_WAIT_SECONDS):
                _run(source, launcher, start)
    except GarError as error:
        print(f"gar train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _run(source: str, launcher: Sequence[str], start: float) -> None:
    config = make_config(read_config(source), source=source)
    planned = PlannedRun(label=config.method, config=config, result_path=Path(source))
    refuse_writer(planned.folder, wait_seconds=_WAIT_SECONDS)  # a predecessor, or a `gar train --resume` by hand
    if _is_finished(planned, start):
        return
    mode, target = ("resume", str(planned.folder)) if _can_resume(planned, launcher) else ("train", source)
    if mode == "train":
        _remove(planned.folder)
    if launcher:
        _launch([*launcher, "-m", "gar.comparison.child", mode, target])
    else:
        _train(mode, target)
    _write_usage(RunFolder.open(planned.folder), start, resource.RUSAGE_CHILDREN if launcher else resource.RUSAGE_SELF)


def _train(mode: str, target: str) -> None:
    """Train with a configuration file, or resume a run folder."""
    from gar.train.run import resume, train

    if mode == "resume":
        resume(target)
    else:
        train(make_config(read_config(target), source=target), command=["gar", "train", target])


def _launch(command: Sequence[str]) -> None:
    """Run all ranks to their end. They inherit the pipe on standard input."""
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        raise ConfigError(f"--launch: '{command[0]}' cannot be started: {error.strerror}.") from error
    try:
        status = process.wait()
    except KeyboardInterrupt:
        try:  # if the comparison is gone, the ranks see it themselves and keep their last whole checkpoint
            process.wait(_RANKS_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
        raise
    if status:
        raise RecordError(f"{' '.join(command)} ended with status {status}; its output is above.")


def _is_finished(planned: PlannedRun, start: float) -> bool:
    """Whether the run folder holds a finished run. Writes its usage if a kill prevented that."""
    try:
        folder = RunFolder.open(planned.folder)
        if folder.read_run().status != "finished" or read_resumption(folder).config != planned.config:
            return False
        if not (folder.path / USAGE).exists():  # mark the run as resumed, so that its cost is left out
            folder.update_run(status="running")
            folder.update_run(status="finished")
            _write_usage(folder, start, resource.RUSAGE_SELF)
        result_of(planned)
    except GarError:
        return False
    return True


def _can_resume(planned: PlannedRun, launcher: Sequence[str]) -> bool:
    """Whether an interrupted run has the same settings and a whole checkpoint. A failed run would fail again."""
    try:
        folder = RunFolder.open(planned.folder)
        if folder.read_run().status not in ("running", "interrupted"):
            return False
        if read_resumption(folder).config != planned.config:
            return False
        return find_checkpoint(folder, num_ranks=None if launcher else 1).path is not None
    except GarError:
        return False


def _remove(path: Path) -> None:
    try:
        if path.exists():
            shutil.rmtree(path)
    except OSError as error:
        raise io_error(path, "removed for a new start", error) from error


def _write_usage(folder: RunFolder, start: float, processes: int) -> None:
    """Wall time since `start`; processor time and largest resident set of this process, or of its children."""
    usage = resource.getrusage(processes)
    used = {
        "wall_seconds": time.perf_counter() - start,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_memory_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }
    folder.write_json(USAGE, used)


def _end_with_the_comparison() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock would be held when the interpreter ends
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
