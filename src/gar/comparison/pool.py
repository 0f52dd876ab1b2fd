"""Run cells as processes of this machine: each is one command of `gar train`.

python -m gar train CELL.yaml --resume-if-exists
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gar.comparison.plan import PlannedRun
from gar.config import dump_yaml
from gar.errors import ConfigError
from gar.interrupts import END_WITH_PARENT, end_with_parent
from gar.records import write_atomic
from gar.records.files import system_errors

_GAR = ("-m", "gar")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What the process of a run used, with its ranks if it has a launcher. Memory is the largest resident set."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Process:
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

    def start(self, cell: PlannedRun, lock: contextlib.ExitStack) -> None:
        """Write the configuration of a cell and start its run. The pool closes `lock` when the cell has ended."""
        write_atomic(cell.config_path, dump_yaml(cell.config.model_dump(mode="json")))
        devices, start = self.free[0], time.perf_counter()
        process = self._popen(cell, devices)
        self.free.popleft()
        self.running.append(
            _Process(cell=cell, process=process, devices=devices, start_time=start, lock=lock.pop_all())
        )

    def _popen(self, cell: PlannedRun, devices: str | None) -> subprocess.Popen[bytes]:
        parent = os.getpid()

        def begin() -> None:
            end_with_parent(parent)  # a launcher, too
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs start with it ignored

        threads = os.environ.get("OMP_NUM_THREADS", "1")
        variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, END_WITH_PARENT: "1"}
        if devices is not None:
            variables["CUDA_VISIBLE_DEVICES"] = devices
        with system_errors(cell.log_path, "written, or the run started"), cell.log_path.open("ab") as log:
            return subprocess.Popen(
                [*(self._launcher or [sys.executable]), *_GAR, "train", str(cell.config_path), "--resume-if-exists"],
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only the comparison, which then ends its cells
                preexec_fn=begin,
            )

    def ended(self) -> Iterator[tuple[PlannedRun, int, Usage]]:
        """The cells that have ended, each with its exit status. Its lock holds until the next one is asked for."""
        # `wait4` of each child, since only it gives the processor time and memory of one process with its children.
        for run in tuple(self.running):
            process, status, used = os.wait4(run.process.pid, os.WNOHANG)
            if not process:
                continue
            run.process.returncode = os.waitstatus_to_exitcode(status)
            self.running.remove(run)
            self.free.append(run.devices)
            with run.lock:
                yield (
                    run.cell,
                    run.process.returncode,
                    Usage(
                        wall_seconds=time.perf_counter() - run.start_time,
                        cpu_seconds=used.ru_utime + used.ru_stime,
                        peak_memory_bytes=used.ru_maxrss * _MEMORY_UNIT,
                    ),
                )

    def stop(self) -> None:
        """Interrupt the processes, as Ctrl-C would, and wait until each has written its checkpoint.

        Another Ctrl-C kills them.
        """
        # All get the signal before any is waited for, so that they write their checkpoints at the same time.
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


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
