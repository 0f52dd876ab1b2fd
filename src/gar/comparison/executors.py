"""Run cells as processes of this machine, or as jobs of a cluster through submitit."""

import os
import shlex
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.comparison.plan import PlannedRun
from gar.errors import ConfigError
from gar.records.files import io_error

_CELL = (sys.executable, "-m", "gar.comparison.cell")
_STOP_SECONDS = 30.0
_DAY_MINUTES = 24 * 60


def local_devices(number: int | None = None, gpus: int | None = None, *, launch: bool = False) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each of `number` runs at a time on this machine. None leaves the variable unchanged.

    Without a launcher a run trains on one GPU. With one, GPUs are divided evenly. If there are fewer GPUs than runs,
    runs share them. By default one run with a launcher, else one per GPU, or one per core if there is no GPU.
    """
    import torch

    count, named = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = named.split(",")[:count] if named else [str(i) for i in range(count)]
    if gpus is not None and gpus > len(visible):
        raise ConfigError(f"--gpus {gpus}: {len(visible)} are visible. CUDA_VISIBLE_DEVICES says which those are.")
    names = visible[:gpus]
    number = number or (1 if launch else len(names) or _num_cores())
    size = len(names) // number if launch else 1
    shared: list[str | None] = [
        ",".join(names[i * size : (i + 1) * size]) or names[i % len(names)] for i in range(number) if names
    ]
    return shared or [None] * number


def launcher_words(launch: str) -> list[str]:
    """The words of the command that starts the ranks of a run."""
    try:
        return shlex.split(launch)
    except ValueError as error:
        raise ConfigError(f"--launch: {launch!r} is no command: {error}.") from error


class LocalPool:
    """Run cells in processes of this machine with this many threads, one at a time per entry of `local_devices`."""

    def __init__(self, devices: Sequence[str | None], threads: int = 1, launcher: Sequence[str] = ()):
        self._free, self._threads, self._launcher = deque(devices), threads, launcher
        self.running = list[Any]()  # cell, process, devices

    @property
    def has_room(self) -> bool:
        """Whether a worker is free."""
        return bool(self._free)

    def start(self, cell: PlannedRun) -> str:
        """Start a cell on free devices."""
        devices, count = self._free.popleft(), str(self._threads)
        visible = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
        try:
            with cell.log_path.open("wb") as log:
                process = subprocess.Popen(
                    [*_CELL, str(os.getpid()), str(cell.config_path), *self._launcher],
                    env={**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, **visible},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches the comparison alone, which then ends its cells
                )
        except OSError as error:
            raise io_error(cell.log_path, "written, or the run started", error) from error
        self.running.append((cell, process, devices))
        return "started"

    def ended(self) -> list[tuple[PlannedRun, int]]:
        """Cells whose process has ended."""
        done = [entry for entry in self.running if entry[1].poll() is not None]
        self.running = [entry for entry in self.running if entry not in done]
        self._free.extend(devices for _, _, devices in done)
        return [(cell, process.returncode) for cell, process, _ in done]

    def stop(self) -> str:
        """Interrupt the processes, as Ctrl-C would, and wait for them."""
        for _, process, _ in self.running:
            process.send_signal(signal.SIGINT)
        for _, process, _ in self.running:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return ""


class ClusterJobs:
    """Cells as jobs of a cluster, `parallel` at a time. Ctrl-C leaves them running.

    `executor` is slurm or, to try it out, local (processes of this machine) or debug (this process). `parameters` are
    those of submitit's `AutoExecutor.update_parameters`. `slurm_` may be left out.
    """

    def __init__(
        self,
        executor: str,
        parameters: Mapping[str, Any],
        folder: Path,
        *,
        parallel: int = 256,
        threads: int = 1,
        launcher: Sequence[str] = (),
    ):
        self._executor, self._threads, self._launcher = _submitit(executor, parameters, folder), threads, launcher
        self.running, self._parallel = list[Any](), parallel  # cell, job

    @property
    def has_room(self) -> bool:
        """Whether one more job may be submitted."""
        return len(self.running) < self._parallel

    def start(self, cell: PlannedRun) -> str:
        """Submit a cell."""
        job = self._executor.submit(_Cell(cell=cell, threads=self._threads, launcher=self._launcher))
        self.running.append((cell, job))
        return f"job {job.job_id}"

    def ended(self) -> list[tuple[PlannedRun, int]]:
        """Cells whose job has ended."""
        done = [entry for entry in self.running if entry[1].done()]
        self.running = [entry for entry in self.running if entry not in done]
        return [(cell, 1 if job.exception() is not None else job.result()) for cell, job in done]

    def stop(self) -> str:
        """Print the jobs that keep running."""
        names = ", ".join(str(job.job_id) for _, job in self.running)
        return f"Jobs still running: {names}. Wait for them or cancel them before you repeat the command." * bool(names)


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """One cell as a job. If preempted or out of time, it returns to the queue and resumes from its checkpoint."""

    cell: PlannedRun
    threads: int
    launcher: Sequence[str]

    def __call__(self) -> int:
        """Train on all devices of the job. Returns the exit status."""
        pool = LocalPool(local_devices(1, launch=bool(self.launcher)), self.threads, self.launcher)
        pool.start(self.cell)
        return pool.running[0][1].wait()

    def checkpoint(self) -> Any:
        """Return the job that submitit queues again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _submitit(name: str, parameters: Mapping[str, Any], folder: Path) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ConfigError(
            "--executor needs submitit, which is not installed: pip install submitit, or install gar with its extra "
            "'cluster'."
        ) from error
    try:
        executor = submitit.AutoExecutor(folder=folder / "%j", cluster=name)
        shared = executor._typed_parameters()
        named = {
            key if key in shared else f"slurm_{key.removeprefix('slurm_')}": value for key, value in parameters.items()
        }
        executor.update_parameters(**{"name": "gar-compare", "timeout_min": _DAY_MINUTES} | named)
    except (RuntimeError, NameError, ValueError, AssertionError) as error:
        raise ConfigError(f"--executor {name}: {str(error).partition(chr(10))[0]}") from error
    return executor


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Executor = LocalPool | ClusterJobs
