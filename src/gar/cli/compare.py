"""`gar compare`: several methods over several seeds under equal conditions, with tables, tests and curves."""

import signal
from typing import Annotated, Literal

import tyro
from pydantic import Field

from gar.cli.arguments import parse
from gar.errors import UsageError
from gar.settings import Settings


class _Compare(Settings):
    """Train every method with every seed on the same problems, and test differences.

      gar compare CONFIG.yaml [--ARGUMENT VALUE ...]

    Each run has its own process. Tables and curves are written to results/NAME/.

    If it is killed, run the same command again. It continues with the missing runs.

    On several machines, start the same command in a shared folder.

    One comparison ships with gar: gar compare demo
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG.yaml")]
    """A comparison file, or the name of one that ships with gar."""
    workers: Annotated[int, Field(ge=1)] | None = None
    """Number of runs at the same time. By default one per GPU or core."""
    gpus: Annotated[int, Field(ge=1)] | None = None
    """GPUs to share among the workers. By default all visible ones."""
    launch: Annotated[str, tyro.conf.arg(metavar="COMMAND")] = ""
    """Start each run on several ranks, on all GPUs: 'accelerate launch --num_processes 8'."""
    format: Annotated[Literal["text", "markdown"], tyro.conf.arg(metavar="FMT")] = "text"
    """text prints tables for a terminal, markdown prints Markdown. Files and pipes always get Markdown."""
    report: bool = False
    """Train nothing. Write tables and curves of the results so far."""
    dry_run: bool = False
    """Show what would run, and stop."""


def main(arguments: list[str]) -> int:
    """Run `gar compare`. The exit status is 0 if every run has a result, else 1.

    A report ends with 1 only if a folder is damaged.
    """
    options = parse(_Compare, arguments, prog="gar compare")
    if options.report and options.dry_run:
        raise UsageError("choose one of --report and --dry-run.")
    from gar.comparison.plan import planned_runs, read_comparison

    planned_runs(read_comparison(options.source), options.source)  # a mistake ends here, before the slow imports
    from gar.comparison.compare import Comparison
    from gar.comparison.pool import LocalPool, launcher_words, local_devices

    comparison = Comparison(options.source, markdown=options.format == "markdown")
    launcher = launcher_words(options.launch)
    if options.report:
        comparison.report()
        return 1 if comparison.failed else 0
    if options.dry_run:
        comparison.show_plan()
    else:
        devices = local_devices(options.workers, options.gpus, launch=bool(launcher))
        earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's end is a Ctrl-C
        try:
            return 0 if comparison.run(LocalPool(devices, launcher)) else 1
        finally:
            signal.signal(signal.SIGTERM, earlier)
    return 0
