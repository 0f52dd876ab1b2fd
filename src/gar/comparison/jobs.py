"""`gar compare` as jobs of a cluster, through submitit: each runs cells that no other process runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.comparison.compare import Comparison
from gar.comparison.pool import LocalPool, launcher_words, local_devices
from gar.errors import ConfigError
from gar.extras import install_command

_DAY_MINUTES = 24 * 60


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job. If preempted or out of time, it returns to the queue, and its run resumes from its checkpoint."""

    source: str
    launch: str

    def __call__(self) -> bool:
        """Run cells one after the other on all devices of the job. Returns whether all cells have a result."""
        comparison, launcher = Comparison(self.source), launcher_words(self.launch)
        return comparison.run(LocalPool(local_devices(1, launch=bool(launcher)), launcher), wait=False)

    def checkpoint(self) -> Any:
        """Return the job that submitit queues again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit_jobs(job: Job, number: int, *, executor: str, parameters: Mapping[str, Any], folder: Path) -> list[str]:
    """Submit `number` copies of a job. Returns their ids.

    `executor` is slurm or, to try it out, local (processes of this machine) or debug (this process). `parameters` go to
    submitit's `AutoExecutor.update_parameters`. Logs go to `folder`. A `ConfigError` if submitit rejects something.
    """
    try:
        import submitit
    except ImportError as error:
        raise ConfigError(f"--executor needs submitit: {install_command('cluster')}") from error
    try:
        jobs = submitit.AutoExecutor(folder=folder / "%j", cluster=executor)
        jobs.update_parameters(**{"name": "gar-compare", "timeout_min": _DAY_MINUTES} | dict(parameters))
    except (RuntimeError, NameError, ValueError, AssertionError) as error:
        raise ConfigError(f"--executor {executor}: {str(error).partition(chr(10))[0]}") from error
    return [str(jobs.submit(job).job_id) for _ in range(number)]
