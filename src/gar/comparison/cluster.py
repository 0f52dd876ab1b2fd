"""`gar compare --executor slurm`: every run is a job of a cluster, through submitit (extra `cluster`)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from gar.comparison.plan import PlannedRun
from gar.comparison.progress import ComparisonProgress
from gar.comparison.runner import last_lines, run_side_by_side
from gar.comparison.store import Failure, Results, check_paired, failures, finished_results, write_failure
from gar.comparison.workers import local_workers
from gar.errors import ConfigError

ExecutorName = Literal["slurm", "local", "debug"]
_POLL_SECONDS = 1.0
_DAY_MINUTES = 24 * 60


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


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """One run as a job. A job that is preempted or out of time returns to the queue and resumes from its checkpoint."""

    run: PlannedRun
    threads: int
    launch: str

    def __call__(self) -> bool:
        """Train on all devices of the job. Returns whether there is a result."""
        workers = local_workers(number=1, threads=self.threads, launch=self.launch)
        plain = Console(force_terminal=False, highlight=False)  # it goes into a log
        with ComparisonProgress(1, 0, 1, [], console=plain) as progress:
            run_side_by_side([self.run], {}, workers=workers, progress=progress)
        return self.run.result_path.exists()

    def checkpoint(self) -> Any:
        """The job that submitit puts back into the queue."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def run_on_cluster(
    planned: Sequence[PlannedRun], finished: Results, *, cluster: Cluster, progress: ComparisonProgress
) -> None:
    """Submit a job for each run and wait for them. A job that dies without a recorded failure is submitted once more.

    Ctrl-C leaves the jobs running.

    Args:
        planned: Runs of one comparison that have no result yet.
        finished: Results of its other runs.
        cluster: The cluster.
        progress: Shows what happens.

    Raises:
        ConfigError: submitit is not installed, finds no cluster, or rejects a parameter.
        RecordError: A result is not paired with the others, or a file cannot be written.
    """
    if not planned:
        return
    jobs = _Jobs(_executor(cluster, planned[0].folder.parent / "jobs"), cluster, finished, progress)
    jobs.submit(planned)
    try:
        while jobs.waiting:
            jobs.collect()
            time.sleep(_POLL_SECONDS if jobs.waiting else 0)
    except KeyboardInterrupt:
        progress.left([job.job_id for _, job in jobs.waiting])
        raise


class _Jobs:
    """Submitted jobs, and the results so far."""

    def __init__(self, executor: Any, cluster: Cluster, finished: Results, progress: ComparisonProgress):
        self.waiting = list[tuple[PlannedRun, Any]]()
        self._executor, self._cluster, self._progress = executor, cluster, progress
        self._results, self._died = dict(finished), set[str]()

    def submit(self, runs: Sequence[PlannedRun]) -> None:
        """Submit runs, as one array."""
        cluster = self._cluster
        with self._executor.batch():
            cells = [_Cell(run=run, threads=cluster.threads, launch=cluster.launch) for run in runs]
            jobs = [self._executor.submit(cell) for cell in cells]
        self.waiting += zip(runs, jobs, strict=True)
        for run, job in zip(runs, jobs, strict=True):
            self._progress.submitted(run, job.job_id)

    def collect(self) -> None:
        """Collect results, and submit again what died without a recorded failure."""
        for run, job in list(self.waiting):
            over = job.done()
            result = finished_results([run])
            if not result and not over:
                continue
            self.waiting.remove((run, job))
            if result:
                self._results |= result
                self._progress.finished(run, result[run.label, run.seed])
                check_paired(self._results)
                continue
            failure, recorded = _failure(run, job)
            again = not recorded and run.title not in self._died
            self._died.add(run.title)
            self._progress.failed(run, failure, again=again)
            if again:
                self.submit([run])


def _executor(cluster: Cluster, folder: Path) -> Any:
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


def _failure(run: PlannedRun, job: Any) -> tuple[Failure, bool]:
    """Why a job has left no result, and whether the run itself recorded it."""
    error = job.exception()
    if error is None:
        written = failures([run])
        if written:
            return written[run.label, run.seed], True
    reason = f"job {job.job_id} ended without a result"
    return write_failure(run, reason, last_lines(str(error or job.stderr() or ""))), False
