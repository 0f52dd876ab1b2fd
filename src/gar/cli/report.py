"""`gar report`: one self-contained HTML page about one run or several."""

from pathlib import Path
from typing import Annotated, Literal

import tyro
from pydantic import Field

from gar.settings import Settings

# Blank lines and indentation as tyro lays them out.
_DESCRIPTION = """Write a page about one run or several, to read anywhere without a network:
  gar report RUN [RUN ...] --out FILE.html

A run may still be going on, be from an older version, or lack files: the page says what it cannot show.
  RUN        a run folder; those that differ in their seed alone are shown as one, others are held against the first
  FILE.html  verdict, curves, rollouts, figures, settings; below 8 MB
"""


class _Arguments(Settings):
    runs: Annotated[tuple[Path, ...], Field(min_length=1), tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run folders."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE.html")]
    """The file to write."""
    max_rollouts: Annotated[int, Field(ge=1)] = 2000
    """Rollouts to show over all runs; the page says how they were drawn."""
    problems: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """The training problems, for their expert solutions, where the runs' own source is not at hand."""
    token_shares: Literal["final", "start"] | None = None
    """Run the model to show what each token adds to the alignment: under the final weights of each run, or those that
    it started from."""


def main(arguments: list[str]) -> int:
    """Run `gar report`.

    Returns:
        0.

    Raises:
        GarError: Anything that keeps the command from its work; its text is for the user.
    """
    settings = tyro.cli(_Arguments, args=arguments, prog="gar report", description=_DESCRIPTION)
    from gar.report.build import ReportOptions, write_report

    if settings.token_shares:
        import transformers

        transformers.utils.logging.disable_progress_bar()
    report = write_report(
        settings.runs,
        settings.out,
        ReportOptions(
            max_rollouts=settings.max_rollouts, problems=settings.problems, token_shares=settings.token_shares
        ),
    )
    print(report.headline)
    for note in (*report.notes, *report.rollouts.notes):
        print(f"- {note}")
    print(f"Report  {settings.out} ({settings.out.stat().st_size / 1e6:.1f} MB)")
    return 0
