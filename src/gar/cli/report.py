"""`gar report`: one self-contained HTML page about one run or several."""

import time
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field

from gar.cli.arguments import parse
from gar.errors import ConfigError, UsageError
from gar.report import ReportOptions

# Blank lines and indentation as tyro lays them out.
_DESCRIPTION = """Write one page about one or several runs, readable without a network:
  gar report RUN [RUN ...] --out FILE.html

A run may be unfinished, old, or lack files: the page says what it cannot show.
  RUN        a run folder, or a folder of them; runs that differ in their seed
             alone are shown as one, others are compared with the first
  FILE.html  verdict, curves, rollouts, figures, settings; below 8 MB
"""


class _Arguments(ReportOptions):
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run folders, or folders of them."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE.html")] = None
    """The file to write. An earlier one is replaced."""
    watch: Annotated[float, Field(gt=0), tyro.conf.arg(metavar="SECONDS")] | None = None
    """Write the page again every so many seconds, until Ctrl-C."""


def main(arguments: list[str]) -> int:
    """Run `gar report`."""
    settings = parse(_Arguments, arguments, prog="gar report", description=_DESCRIPTION)
    if not settings.runs:
        raise UsageError("name a run folder, or a folder of them, for example runs/NAME.")
    if settings.out is None:
        raise UsageError("name the file to write: --out FILE.html.")
    if not settings.out.parent.is_dir():
        raise ConfigError(f"{settings.out.parent}: no such folder to write {settings.out.name} into. Make it first.")
    from gar.report.build import write_report

    if settings.token_shares:
        from gar.models.load import quiet_libraries

        quiet_libraries()
    out = settings.out
    report = write_report(settings.runs, out, settings)
    print(report.headline)
    for note in (*report.notes, *report.rollout_notes):
        print(f"- {note}")
    print(f"Report  {out} ({out.stat().st_size / 1e6:.1f} MB)")
    while settings.watch is not None:
        time.sleep(settings.watch)
        report = write_report(settings.runs, out, settings)
        print(f"{time.strftime('%H:%M:%S')}  {report.headline}")
    return 0
