"""Run cells as processes of this machine.

A cell is run as `gar train` would, or resumed. The process that starts it holds the lock of its configuration file
until it has written `result.json`. So two comparisons never run one cell at the same time.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from gar.comparison.plan import PlannedRun
from gar.comparison.result import finished_result, write_result
from gar.config import dump_yaml
from gar.errors import ConfigError, GarError
from gar.interrupts import end_with_parent
from gar.methods import METHODS
from gar.records import RunFolder, write_atomic
from gar.records.checkpoints import find_checkpoint
from gar.records.files import system_errors
from gar.records.lock import writer_lock
from gar.train.resume import resumed_config

_CHILD = ("-m", "gar.cli.child")
_REPLACED = ".replaced"
_MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


def local_devices(number: int | None = None, gpus: int | None = None, *, launch: bool = False) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each of `number` runs at a time on this machine. None leaves the variable unchanged.

    A run trains on one GPU. If it has a launcher, GPUs are divided evenly. Runs share GPUs if there are too few. By
    default one run with a launcher, else one per GPU, or one per core if there is no GPU. The first `gpus` are used.
    """
    import torch

    count, named = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    names = named.split(",")[:count] if named else [str(i) for i in range(count)]
    if gpus is not None and gpus > len(names):
        raise ConfigError(f"--gpus {gpus}: only {len(names)} are visible. Was CUDA_VISIBLE_DEVICES set?")
    names = names[:gpus]
    number = number or (1 if launch else len(names) or _num_cores())
    size = len(names) // number if launch else 1
    shared: list[str | None] = [
        ",".join(names[i * size : (i + 1) * size]) or names[i % len(names)] for i in range(number) if names
    ]
    return shared or [None] * number


def launcher_words(launch: str) -> list[str]:
    """The words of the command that starts the ranks of a run."""
    try:
        words = shlex.split(launch)
    except ValueError as error:
        raise ConfigError(f"--launch: {launch!r} is no command: {error}.") from error
    if words and not shutil.which(words[0]):
        raise ConfigError(f"--launch: there is no command '{words[0]}'.")
    return words


class _Process(NamedTuple):
    """A cell that runs, the devices it runs on, and the lock that keeps other comparisons out."""

    cell: PlannedRun
    process: subprocess.Popen[bytes]
    devices: str | None
    start_time: float
    lock: contextlib.ExitStack


class LocalPool:
    """Run cells in processes of this machine, one at a time per entry of `local_devices`. Those in no use are `free`.

    Each process has OMP_NUM_THREADS threads, by default one. `launcher` is the command that starts its ranks.
    """

    def __init__(self, devices: Sequence[str | None], launcher: Sequence[str] = ()):
        self.free, self._launcher = deque(devices), launcher
        self.running: list[_Process] = []

    def start(self, cell: PlannedRun) -> bool:
        """Train or resume a cell, unless another process does (`LockedError`). False if it has its result by now.

        A `GarError` if its folder is damaged or cannot be read. The folder is then left as it is.
        """
        with contextlib.ExitStack() as lock:
            lock.enter_context(writer_lock(cell.config_path))
            arguments = _train_arguments(cell, launched=bool(self._launcher))
            if not arguments:
                return False
            devices, start = self.free.popleft(), time.perf_counter()
            process = self._popen(cell, arguments, devices)
            self.running.append(_Process(cell, process, devices, start, lock.pop_all()))
        return True

    def _popen(self, cell: PlannedRun, arguments: Sequence[str], devices: str | None) -> subprocess.Popen[bytes]:
        threads = os.environ.get("OMP_NUM_THREADS", "1")
        visible = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
        with system_errors(cell.log_path, "written, or the run started"), cell.log_path.open("ab") as log:
            return subprocess.Popen(
                [*(self._launcher or [sys.executable]), *_CHILD, *arguments],
                env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **visible},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the comparison alone, which then ends its cells
                preexec_fn=partial(end_with_parent, os.getpid()),  # a launcher, too
            )

    def ended(self) -> list[tuple[PlannedRun, int, GarError | None]]:
        """The cells that have ended, each with its exit status, and why its result could not be written.

        Writes the result of each cell with status 0.
        """
        done = []
        for run in tuple(self.running):
            process, status, used = os.wait4(run.process.pid, os.WNOHANG)
            if process:
                run.process.returncode, error = os.waitstatus_to_exitcode(status), None
                self.running.remove(run)
                self.free.append(run.devices)
                with run.lock:
                    try:
                        if status == 0:
                            write_result(
                                run.cell,
                                wall_seconds=time.perf_counter() - run.start_time,
                                cpu_seconds=used.ru_utime + used.ru_stime,
                                peak_memory_bytes=used.ru_maxrss * _MEMORY_UNIT,
                            )
                    except GarError as failure:
                        error = failure
                done.append((run.cell, run.process.returncode, error))
        return done

    def stop(self) -> None:
        """Interrupt the processes, as Ctrl-C would, and wait until each has written its checkpoint.

        Another Ctrl-C kills them.
        """
        for run in self.running:
            run.process.send_signal(signal.SIGINT)
        try:
            for run in self.running:
                run.process.wait()
        except KeyboardInterrupt:
            for run in self.running:
                run.process.kill()
                run.process.wait()
            raise
        finally:
            for run in self.running:
                run.lock.close()


def _train_arguments(cell: PlannedRun, *, launched: bool) -> list[str]:
    """Arguments of `gar train` that finish a cell. Empty if its run has finished, and now has its result.

    A damaged folder is a `GarError`. If the run must begin anew, its old folder is renamed. Nothing is removed.
    """
    if finished_result(cell):  # another comparison has just written it
        return []
    if cell.folder.is_dir():
        with writer_lock(cell.folder):  # a `gar train --resume` by hand may write there
            reason = _reason_to_begin_anew(cell)
            if reason:
                print(f"{cell.title}: {reason}, so it begins anew. The old folder is {_put_aside(cell.folder)}")
            elif RunFolder(cell.folder).read_run().status == "finished":
                write_result(cell)
                return []
            else:
                find_checkpoint(RunFolder(cell.folder), num_ranks=None if launched else 1)
                return ["--resume", str(cell.folder)]
    write_atomic(cell.config_path, dump_yaml(cell.config.model_dump(mode="json")))
    return [str(cell.config_path)]


def _reason_to_begin_anew(cell: PlannedRun) -> str:
    """Why the run in the folder of a cell cannot become its result. "" if it can, or already is."""
    folder, method = RunFolder(cell.folder), cell.config.method
    if not folder.is_begun():
        return "its folder has no step"
    record = folder.read_run()
    if resumed_config(folder) != cell.config or record.overrides:
        return "its run has other settings"
    if record.status == "failed":
        return "its run has failed"
    if record.status != "finished" and METHODS[method].cannot_resume:
        return f"a run of {method} cannot be resumed"
    return ""


def _put_aside(folder: Path) -> Path:
    """Rename a folder to `.replaced/NAME`, or `NAME-2`, `NAME-3`, ... there. Reports do not look into it."""
    target = folder.parent / _REPLACED / folder.name
    with system_errors(folder, "renamed"):
        target.parent.mkdir(exist_ok=True)
        for number in count(2):
            if not os.path.lexists(target):
                break
            target = target.with_name(f"{folder.name}-{number}")
        folder.rename(target)
    return target


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
