"""`gar report`: one self-contained HTML page about one run or several."""

import time
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field

from gar.cli.arguments import parse
from gar.cli.console import show
from gar.cli.outcomes import DONE, REFUSED
from gar.errors import ConfigError, UsageError
from gar.report import ReportOptions


class _Report(ReportOptions):
    """Write one page about one or several runs, readable without a network.

      gar report RUN [RUN ...] [--out FILE.html]
      gar report RUN --text

    A run may be unfinished or lack files. The page lists what it cannot show.

    Damaged runs are left out, and the exit status is 1.
    """

    runs: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="")
    ]
    """Run folders, or folders of runs. Runs that differ only in the seed form a group.
    Other groups are compared with the first."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE.html")] | None = None
    """The page to write, always below 8 MB. By default report.html, in RUN, or in this folder for several runs.
    An earlier report is replaced."""
    watch: Annotated[float, Field(gt=0), tyro.conf.arg(metavar="SECONDS")] | None = None
    """Rewrite the page every SECONDS seconds, until Ctrl-C."""
    text: bool = False
    """Write no page. Print groups of responses with the expert solution, the clearest signal first."""
    groups: Annotated[int, Field(ge=1)] = 5
    """With --text: how many groups to print."""
    skip: Annotated[int, Field(ge=0)] = 0
    """With --text: how many groups to skip first."""
    step: int | None = None
    """With --text: print only groups of this training step."""


def main(arguments: list[str]) -> int:
    """Run `gar report`."""
    settings = parse(_Report, arguments, prog="gar report")
    if not settings.runs:
        raise UsageError("name a run folder, or a folder of them, for example runs/NAME.")
    if settings.text:
        return _print_groups(settings)
    out = settings.out or (settings.runs[0] / "report.html" if len(settings.runs) == 1 else Path("report.html"))
    if settings.out and not out.parent.is_dir():
        raise ConfigError(f"{out.parent}: no such folder to write {out.name} into. Make it first.")
    from gar.report.runs import find_runs

    find_runs(settings.runs)  # a mistake ends here, before the slow imports
    from gar.report.build import write_report

    if settings.token_shares:
        from gar.models.load import quiet_libraries

        quiet_libraries()
    report = write_report(settings.runs, out, settings)
    show(report.headline)
    for note in (*report.notes, *report.rollout_notes):
        show(f"- {note}")
    show(f"Report  {out} ({out.stat().st_size / 1e6:.1f} MB)")
    while settings.watch is not None:
        time.sleep(settings.watch)
        report = write_report(settings.runs, out, settings)
        show(f"{time.strftime('%H:%M:%S')}  {report.headline}")
    return REFUSED if report.faults else DONE


def _print_groups(settings: _Report) -> int:
    if settings.out or settings.watch or settings.token_shares:
        raise UsageError("--text writes no page. Leave out --out, --watch and --token-shares.")
    from gar.report.page import MAX_BYTES
    from gar.report.rollouts import browser_rollouts
    from gar.report.runs import open_runs
    from gar.report.text import chosen_groups, group_table

    runs, faults = open_runs(settings.runs)
    groups, notes = browser_rollouts(runs, settings, MAX_BYTES)
    for group in chosen_groups(groups, step=settings.step, skip=settings.skip, most=settings.groups):
        show(group_table(group, runs[group.run].name))
    for note in (*(f"Left out: {fault}" for fault in faults), *notes):
        show(f"- {note}")
    return REFUSED if faults else DONE
