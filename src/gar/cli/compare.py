"""`gar compare`: several methods over several seeds under equal conditions, with tables, tests and curves."""

from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from pydantic import Field

from gar.cli.arguments import parse
from gar.comparison.settings import comparison_names
from gar.errors import ConfigError, UsageError
from gar.settings import Settings

if TYPE_CHECKING:
    from gar.comparison.compare import Comparison
    from gar.comparison.executors import Executor

# Blank lines and indentation as tyro lays them out.
_DESCRIPTION = """Train every method with every seed on the same problems, and test differences:
  gar compare CONFIG.yaml [--ARGUMENT VALUE ...]

Each run has its own process. Tables and curves are written to results/NAME/.

If it is killed, run the same command again: it continues with missing runs.

Comparisons share equal runs.

As an array job of any scheduler, one run per job, in a shared folder:
  gar compare CONFIG.yaml --only LABEL --seed N
  gar compare CONFIG.yaml --report

Comparisons that ship with gar: """


class _Arguments(Settings):
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.yaml")]
    """A comparison, or one that ships with gar."""
    workers: Annotated[int, Field(ge=1)] | None = None
    """Runs at a time. By default the file's setting, else one per GPU, else one per core."""
    gpus: Annotated[int, Field(ge=1)] | None = None
    """GPUs to share among the workers. By default all visible ones."""
    launch: Annotated[str, tyro.conf.arg(metavar="COMMAND")] = ""
    """Start each run on several ranks, on all GPUs: 'accelerate launch --num_processes 8'."""
    only: Annotated[str | None, tyro.conf.arg(metavar="LABEL")] = None
    """Run only this row, and write no tables."""
    seed: int | None = None
    """Run only this seed, and write no tables."""
    executor: Literal["slurm", "local", "debug"] | None = None
    """Submit every run as a job, through submitit (extra 'cluster')."""
    slurm: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Parameters of the jobs: partition=gpu gpus_per_node=8 timeout_min=600. By default a day."""
    report: bool = False
    """Only write tables and curves of the results so far."""
    dry_run: bool = False
    """Show what would run, and stop."""


def main(arguments: list[str]) -> int:
    """Run `gar compare`. The exit status is 0 if every requested run has a result, else 1."""
    options = _parsed(arguments)
    from gar.comparison.compare import Comparison

    comparison = Comparison(options.source, only=options.only, seed=options.seed)
    if options.report:
        comparison.report()
    elif options.dry_run:
        comparison.show_plan()
    else:
        return 0 if comparison.run(_executor(options, comparison)) else 1
    return 0


def _parsed(arguments: list[str]) -> _Arguments:
    options = parse(_Arguments, arguments, prog="gar compare", description=_DESCRIPTION + ", ".join(comparison_names()))
    if options.report and options.dry_run:
        raise UsageError("choose one of --report and --dry-run.")
    if options.report and (options.only is not None or options.seed is not None):
        raise UsageError("--report covers the whole comparison: leave out --only and --seed.")
    if options.slurm and not options.executor:
        raise UsageError("--slurm is for jobs: add --executor slurm.")
    if options.gpus and options.executor:
        raise UsageError("--gpus is for this machine. Jobs ask for their own: --slurm gpus_per_node=N.")
    return options


def _executor(options: _Arguments, comparison: "Comparison") -> "Executor":
    from gar.comparison.executors import ClusterJobs, LocalPool, launcher_words, local_devices
    from gar.config import parse_yaml

    settings, launcher = comparison.settings, launcher_words(options.launch)
    if not options.executor:
        devices = local_devices(options.workers or settings.workers, options.gpus, launch=bool(launcher))
        return LocalPool(devices, settings.threads, launcher)
    parameters = {}
    for parameter in options.slurm:
        name, equals, value = parameter.partition("=")
        if not equals:
            raise ConfigError(f"--slurm {parameter}: expected NAME=VALUE, for example partition=gpu.")
        parameters[name] = parse_yaml(value, f"--slurm {name}")
    jobs, limit = comparison.chosen[0].folder.parent / "jobs", {"parallel": options.workers} if options.workers else {}
    return ClusterJobs(options.executor, parameters, jobs, threads=settings.threads, launcher=launcher, **limit)
