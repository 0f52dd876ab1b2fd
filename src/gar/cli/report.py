"""`gar report`: one self-contained HTML page about one run or several."""

from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field

from gar.report.options import ReportOptions

# Blank lines and indentation as tyro lays them out.
_DESCRIPTION = """Write a page about one run or several, to read anywhere without a network:
  gar report RUN [RUN ...] --out FILE.html

A run may be unfinished, from an older version, or lack files: the page says what it cannot show.
  RUN        a run folder; those that differ in their seed alone are shown as one, others are compared with the first
  FILE.html  verdict, curves, rollouts, figures, settings; below 8 MB
"""


class _Arguments(ReportOptions):
    runs: Annotated[tuple[Path, ...], Field(min_length=1), tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run folders."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE.html")]
    """The file to write."""


def main(arguments: list[str]) -> int:
    """Run `gar report`.

    Returns:
        0.

    Raises:
        GarError: Anything that keeps the command from its work; its text is for the user.
    """
    settings = tyro.cli(_Arguments, args=arguments, prog="gar report", description=_DESCRIPTION)
    from gar.report.build import write_report

    if settings.token_shares:
        import transformers

        transformers.utils.logging.disable_progress_bar()
    report = write_report(settings.runs, settings.out, settings)
    print(report.headline)
    for note in (*report.notes, *report.rollouts.notes):
        print(f"- {note}")
    print(f"Report  {settings.out} ({settings.out.stat().st_size / 1e6:.1f} MB)")
    return 0
