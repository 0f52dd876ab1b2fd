"""`gar compare`: several methods over several seeds under equal conditions, with tables, tests and figures."""

import argparse
from typing import TYPE_CHECKING

from gar.cli.parser import Parser, positive
from gar.comparison.settings import ComparisonSettings, comparison_names
from gar.errors import ConfigError

if TYPE_CHECKING:
    from gar.comparison.cluster import Cluster
    from gar.comparison.workers import Workers

_EXECUTORS = ("slurm", "local", "debug")

_DESCRIPTION = """Train every method with every seed on the same problems in the same order, each
run in its own process, and write tables with paired tests and figures into
results/NAME/.

A run is finished once its small JSON file exists: an interrupted comparison
continues with the missing runs, and failed runs are tried again.

As an array job of any scheduler, one run per job, in a shared folder:
  gar compare CONFIG.yaml --only LABEL --seed N
  gar compare CONFIG.yaml --report
"""


def main(arguments: list[str]) -> int:
    """Run `gar compare`. Exit status 0 where every run that was asked for has a result, else 1."""
    options = _parsed(arguments)

    from gar.comparison.compare import Comparison

    comparison = Comparison(options.source, only=options.only, seed=options.seed)
    if options.report:
        comparison.report()
        return 0
    if options.dry_run:
        comparison.show_plan(_workers(options, comparison.settings))
        return 0
    if options.overwrite:
        comparison.remove_others()
    run_by = _cluster if options.executor else _workers
    try:
        return 0 if comparison.run(run_by(options, comparison.settings)) else 1
    except KeyboardInterrupt:
        comparison.show_missing()
        raise


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(prog="gar compare", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(comparison_names())
    parser.add_argument("source", metavar="CONFIG.yaml", help=f"a comparison, or one that ships with gar: {names}")
    parser.add_argument(
        "--workers",
        type=positive,
        help="runs at a time (default: the file's setting, else one per GPU, else one per core)",
    )
    parser.add_argument("--gpus", type=positive, help="GPUs to share among the workers (default: all visible ones)")
    parser.add_argument(
        "--launch",
        default="",
        metavar="COMMAND",
        help="start each run on several ranks, on all GPUs: 'accelerate launch --num_processes 8'",
    )
    parser.add_argument("--only", metavar="LABEL", help="run only this row, and write no tables")
    parser.add_argument("--seed", type=int, metavar="N", help="run only this seed, and write no tables")
    parser.add_argument(
        "--executor", choices=_EXECUTORS, help="submit every run as a job, through submitit (extra 'cluster')"
    )
    parser.add_argument(
        "--slurm",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="parameters of the jobs: partition=gpu gpus_per_node=8 timeout_min=600 (default: a day)",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--report", action="store_true", help="only write tables and figures of the results so far")
    mode.add_argument("--dry-run", action="store_true", help="show what would run and how long it takes, and stop")
    mode.add_argument("--overwrite", action="store_true", help="run again what was made under other settings")
    options = parser.parse_args(arguments)
    if options.report and (options.only is not None or options.seed is not None):
        parser.error("--report covers the whole comparison: leave out --only and --seed")
    if options.slurm and not options.executor:
        parser.error("--slurm is for jobs: add --executor slurm")
    if options.gpus and options.executor:
        parser.error("--gpus is for this machine. Jobs ask for their own: --slurm gpus_per_node=N")
    return options


def _workers(options: argparse.Namespace, settings: ComparisonSettings) -> "Workers":
    from gar.comparison.workers import local_workers

    return local_workers(
        number=options.workers or settings.workers, gpus=options.gpus, threads=settings.threads, launch=options.launch
    )


def _cluster(options: argparse.Namespace, settings: ComparisonSettings) -> "Cluster":
    from gar.comparison.cluster import Cluster
    from gar.config import parse_yaml

    parameters = {}
    for parameter in options.slurm:
        name, equals, value = parameter.partition("=")
        if not equals:
            raise ConfigError(f"--slurm {parameter}: expected NAME=VALUE, for example partition=gpu.")
        parameters[name] = parse_yaml(value, f"--slurm {name}")
    limit = {"parallel": options.workers} if options.workers else {}
    return Cluster(
        executor=options.executor, parameters=parameters, threads=settings.threads, launch=options.launch, **limit
    )
