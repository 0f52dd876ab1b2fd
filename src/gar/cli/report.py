"""`gar report`: one self-contained HTML page about one run or several, or the same page live."""

from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field

from gar.cli.arguments import parse
from gar.errors import ConfigError, UsageError
from gar.report.options import ReportOptions

# Blank lines and indentation as tyro lays them out.
_DESCRIPTION = """Write one page about one or several runs, readable without a network:
  gar report RUN [RUN ...] --out FILE.html

Or follow runs that are still training, in a browser on this machine:
  gar report RUN [RUN ...] --serve

A run may be unfinished, old, or lack files: the page says what it cannot show.
  RUN        a run folder, or a folder of them; runs that differ in their seed
             alone are shown as one, others are compared with the first
  FILE.html  verdict, curves, rollouts, figures, settings; below 8 MB
"""


class _Arguments(ReportOptions):
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run folders, or folders of them."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE.html")] = None
    """The file to write. An earlier report about the same runs is replaced."""
    overwrite: bool = False
    """Replace the file, whatever it is."""
    serve: bool = False
    """Show the page at 127.0.0.1 until Ctrl-C; it follows the runs."""
    port: Annotated[int, Field(ge=0, lt=2**16)] = 8765
    """Where to serve; 0 takes a free port."""


def main(arguments: list[str]) -> int:
    """Run `gar report`."""
    settings = parse(_Arguments, arguments, prog="gar report", description=_DESCRIPTION)
    if not settings.runs:
        raise UsageError("name a run folder, or a folder of them, for example runs/NAME.")
    if settings.serve == (settings.out is not None):
        raise ConfigError("either --out FILE.html, to write the page, or --serve, to follow the runs in a browser")
    if settings.serve:
        return _serve(settings)
    if settings.out is not None and not settings.out.parent.is_dir():
        raise ConfigError(f"{settings.out.parent}: no such folder to write {settings.out.name} into. Make it first.")
    from gar.report.build import write_report

    if settings.token_shares:
        from gar.models.load import quiet_libraries

        quiet_libraries()
    out = settings.out
    assert out is not None
    report = write_report(settings.runs, out, settings, overwrite=settings.overwrite)
    print(report.headline)
    for note in (*report.notes, *(report.rollouts.notes if report.rollouts else ())):
        print(f"- {note}")
    print(f"Report  {out} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0


def _serve(settings: _Arguments) -> int:
    if settings.token_shares:
        raise ConfigError("--token-shares runs a model, which takes too long for a page that follows a run: use --out")
    from gar.report.serve import serve

    serve(settings.runs, settings.port, settings)
    return 0
