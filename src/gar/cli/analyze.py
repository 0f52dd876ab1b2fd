"""`gar analyze`: what a run or a model does, as data, a figure and a short table."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _SubParsersAction as _SubParsers

    from gar.analysis.outputs import Output

_DESCRIPTION = """Analyse a run folder or a model:
  gar analyze NAME RUN_OR_MODEL [--out FOLDER] [options of NAME]

Writes NAME.parquet and NAME.svg, NAME.png (tokens: NAME.html), and prints a short table. gar analyze NAME --help says
what it takes. Of a run:
"""


def main(arguments: list[str]) -> int:
    """Run one analysis.

    Returns:
        0; what could not be shown is said.

    Raises:
        GarError: There is nothing to analyse; its text is for the user.
    """
    options = _parser().parse_args(arguments)
    from rich.console import Console

    from gar.analysis.outputs import render_output, write_output

    output: Output = options.run(options)
    paths = write_output(output, options.out or _beside(options.subject, output.name))
    console = Console(highlight=False)
    console.print(render_output(output))
    for note in output.notes:
        console.print(f"- {note}", style="yellow", markup=False, soft_wrap=True)
    for path in paths:
        console.print(str(path), soft_wrap=True, markup=False)
    return 0


def _beside(subject: str, name: str) -> Path:
    """`RUN/analysis/NAME`; of what is no folder, `analysis/NAME` here."""
    return (Path(subject) if Path(subject).is_dir() else Path()) / "analysis" / name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gar analyze", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = parser.add_subparsers(metavar="NAME", required=True)
    _add_alignment(names)
    _add_silent_groups(names)
    return parser


def _add(names: "_SubParsers", name: str, subject: str, help: str, run: Callable) -> argparse.ArgumentParser:
    parser = names.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    parser.add_argument("subject", metavar=subject)
    parser.add_argument("--out", metavar="FOLDER", help="where the files go (default: SUBJECT/analysis/NAME)")
    parser.set_defaults(run=run)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


# ---------------------------------------------------------------------------------------------- one after the other


def _add_alignment(names: "_SubParsers") -> None:
    parser = _add(names, "alignment", "RUN", "alignment of correct responses over training, as histograms", _alignment)
    parser.add_argument("--steps", type=_positive, nargs="+", help="where histograms begin (default: four, evenly)")
    parser.add_argument("--window", type=_positive, help="recorded steps in a histogram (default: a tenth of the run)")


def _alignment(options: argparse.Namespace) -> "Output":
    from gar.analysis.alignment import alignment_course, alignment_output

    return alignment_output(alignment_course(options.subject, at_steps=options.steps, window_steps=options.window))


def _add_silent_groups(names: "_SubParsers") -> None:
    _add(names, "silent-groups", "RUN", "groups without a signal, those that GAR rescues, and their advantages",
         _silent_groups)  # fmt: skip


def _silent_groups(options: argparse.Namespace) -> "Output":
    from gar.analysis.silent_groups import silent_groups, silent_groups_output

    return silent_groups_output(silent_groups(options.subject))
