"""Where cells run: in processes of this machine, on its GPUs, or as jobs of a cluster through submitit."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from gar.comparison.plan import PlannedRun
from gar.errors import ConfigError
from gar.records.files import io_error

ExecutorName = Literal["slurm", "local", "debug"]
_CELL = (sys.executable, "-m", "gar.comparison.cell")
_STOP_SECONDS = 30.0
_DAY_MINUTES = 24 * 60


class Job(Protocol):
    """A cell under way."""

    name: str

    def status(self) -> int | None:
        """The exit status of its process, negative for a signal; None while it runs."""
        ...


class Executor(Protocol):
    """Starts cells."""

    @property
    def has_room(self) -> bool:
        """Whether another cell can start now."""
        ...

    def start(self, cell: PlannedRun) -> Job:
        """Start a cell."""
        ...

    def stop(self, jobs: Sequence[Any]) -> str:
        """What happens to jobs under way when the comparison is interrupted, for the user."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """The devices and processes of one `gar compare`.

    Attributes:
        devices: One entry per run at a time: its CUDA_VISIBLE_DEVICES, or None to leave the variable unchanged.
        threads: OMP_NUM_THREADS of every process.
        launcher: Words of the command that starts the ranks of a run; none for a run of one process.
    """

    devices: Sequence[str | None]
    threads: int = 1
    launcher: Sequence[str] = ()


def local_workers(*, number: int | None = None, gpus: int | None = None, threads: int = 1, launch: str = "") -> Workers:
    """The workers of this machine. GPUs are divided evenly, or shared if there are fewer GPUs than workers.

    Without a launcher a run is one process, which trains on one GPU.

    Args:
        number: Runs at a time. None is one with a launcher, else one per GPU, or one per core where there is no GPU.
        gpus: How many of the visible GPUs to use; None is all.
        threads: As in `Workers`.
        launch: The launcher as one text, in a shell's syntax.

    Raises:
        ConfigError: Fewer GPUs are visible, or the launcher is no command.
    """
    try:
        launcher = shlex.split(launch)
    except ValueError as error:
        raise ConfigError(f"--launch: {launch!r} is no command: {error}.") from error
    visible = _visible_gpus()
    if gpus is not None and gpus > len(visible):
        raise ConfigError(f"--gpus {gpus}: {len(visible)} are visible. CUDA_VISIBLE_DEVICES says which those are.")
    names = visible[:gpus]
    number = number or (1 if launcher else len(names) or _num_cores())
    size = len(names) // number if launcher else 1
    return Workers(devices=[_share(names, i, size) for i in range(number)], threads=threads, launcher=launcher)


class LocalPool:
    """Cells in processes of this machine, one per worker at a time."""

    def __init__(self, workers: Workers):
        self._workers, self._free = workers, deque(workers.devices)

    @property
    def has_room(self) -> bool:
        """Whether a worker is free."""
        return bool(self._free)

    def start(self, cell: PlannedRun) -> "_Process":
        """Start a cell on free devices."""
        return _Process(cell, self._workers, self._free)

    def stop(self, jobs: Sequence["_Process"]) -> str:
        """Interrupt the processes, as Ctrl-C would, and wait for them."""
        for job in jobs:
            job.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _STOP_SECONDS
        for job in jobs:
            try:
                job.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
        return ""


class _Process:
    def __init__(self, cell: PlannedRun, workers: Workers, free: deque[str | None]):
        self.name, self._free, self._devices = "", free, free.popleft()
        count = str(workers.threads)
        visible = {} if self._devices is None else {"CUDA_VISIBLE_DEVICES": self._devices}
        try:
            with cell.log_path.open("wb") as log:
                self.process = subprocess.Popen(
                    [*_CELL, str(os.getpid()), str(cell.config_path), *workers.launcher],
                    env={**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, **visible},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches the comparison alone, which then ends its cells
                )
        except OSError as error:
            raise io_error(cell.log_path, "written, or the run started", error) from error

    def status(self) -> int | None:
        if self.process.poll() is not None and self._devices is not _RETURNED:
            self._free.append(self._devices)
            self._devices = _RETURNED
        return self.process.returncode


_RETURNED = "returned"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A cluster, and how to submit jobs to it.

    Attributes:
        executor: slurm; or, to try it out, local (processes of this machine) or debug (this process).
        parameters: Arguments of submitit's `AutoExecutor.update_parameters`; `slurm_` may be left out.
        parallel: Jobs that may run at a time.
        threads: OMP_NUM_THREADS of every process.
        launch: Command that starts the ranks of a run.
    """

    executor: ExecutorName
    parameters: Mapping[str, Any] = field(default_factory=dict)
    parallel: int = 256
    threads: int = 1
    launch: str = ""


class ClusterJobs:
    """Cells as jobs of a cluster. The scheduler decides how many run; Ctrl-C leaves them running.

    Raises:
        ConfigError: submitit is not installed, finds no cluster, or rejects a parameter.
    """

    has_room = True

    def __init__(self, cluster: Cluster, folder: Path):
        self._cluster, self._executor = cluster, _submitit(cluster, folder)

    def start(self, cell: PlannedRun) -> "_ClusterJob":
        """Submit a cell."""
        work = _Cell(cell=cell, threads=self._cluster.threads, launch=self._cluster.launch)
        return _ClusterJob(self._executor.submit(work))

    def stop(self, jobs: Sequence["_ClusterJob"]) -> str:
        """Name the jobs that keep running."""
        names = ", ".join(job.name.removeprefix("job ") for job in jobs)
        return (
            f"Jobs still running: {names}. Wait for them or cancel them before you repeat the command." if jobs else ""
        )


class _ClusterJob:
    def __init__(self, job: Any):
        self._job, self.name = job, f"job {job.job_id}"

    def status(self) -> int | None:
        if not self._job.done():
            return None
        return 1 if self._job.exception() is not None else self._job.result()


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """One cell as a job. If preempted or out of time, it returns to the queue and resumes from its checkpoint."""

    cell: PlannedRun
    threads: int
    launch: str

    def __call__(self) -> int:
        """Train on all devices of the job. Returns the exit status."""
        process = LocalPool(local_workers(number=1, threads=self.threads, launch=self.launch)).start(self.cell).process
        return process.wait()

    def checkpoint(self) -> Any:
        """The job that submitit puts back into the queue."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _submitit(cluster: Cluster, folder: Path) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ConfigError(
            "--executor needs submitit, which is not installed: pip install submitit, or install gar with its extra "
            "'cluster'."
        ) from error
    try:
        executor = submitit.AutoExecutor(folder=folder / "%j", cluster=cluster.executor)
        shared = executor._typed_parameters()
        named = {name if name in shared else f"slurm_{name.removeprefix('slurm_')}": value
                 for name, value in cluster.parameters.items()}  # fmt: skip
        executor.update_parameters(
            **{"name": "gar-compare", "timeout_min": _DAY_MINUTES, "slurm_array_parallelism": cluster.parallel} | named
        )
    except (RuntimeError, NameError, ValueError, AssertionError) as error:
        raise ConfigError(f"--executor {cluster.executor}: {str(error).partition(chr(10))[0]}") from error
    return executor


def _share(names: Sequence[str], worker: int, size: int) -> str | None:
    """The GPUs of one worker; one that it shares with others if there are too few."""
    if not names:
        return None
    return ",".join(names[worker * size : (worker + 1) * size]) or names[worker % len(names)]


def _visible_gpus() -> list[str]:
    """The GPUs that a process sees, as CUDA_VISIBLE_DEVICES would name them."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:count] if named else [str(i) for i in range(count)]


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
