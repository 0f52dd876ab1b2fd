"""`gar compare`: methods times seeds under equal terms, with tables, tests and figures."""

import argparse

from gar.comparison.settings import comparison_names

_DESCRIPTION = """Train every method with every seed on the same problems in the same order, each run a process of its
own, and write tables with paired tests and figures into results/NAME/.

A run is finished when its small JSON lies there: an interrupted comparison goes on with what is missing, and failed
runs are tried again.

As an array job of any scheduler, one run per job, on machines that share this folder:
  gar compare CONFIG.yaml --only LABEL --seed N
  gar compare CONFIG.yaml --report
"""


def main(arguments: list[str]) -> int:
    """Run `gar compare`. Exit status 0 where every run that was asked for has a result, else 1."""
    parser = argparse.ArgumentParser(
        prog="gar compare", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(comparison_names())
    parser.add_argument("source", metavar="CONFIG.yaml", help=f"a comparison, or one that ships with gar: {names}")
    parser.add_argument("--workers", type=_positive, help="runs side by side (default: as the file says, or all cores)")
    parser.add_argument("--only", metavar="LABEL", help="run this row alone, and write no tables")
    parser.add_argument("--seed", type=int, metavar="N", help="run this seed alone, and write no tables")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--report", action="store_true", help="only write tables and figures from what is there")
    mode.add_argument("--dry-run", action="store_true", help="show what would run and how long it takes, and stop")
    mode.add_argument("--overwrite", action="store_true", help="start runs anew that were made under other settings")
    options = parser.parse_args(arguments)
    if options.report and (options.only is not None or options.seed is not None):
        parser.error("--report is of the whole comparison; leave --only and --seed out")

    from gar.comparison.compare import Comparison

    comparison = Comparison(options.source, workers=options.workers, only=options.only, seed=options.seed)
    if options.dry_run:
        comparison.show_plan()
        return 0
    if options.overwrite:
        comparison.remove_others()
    complete = comparison.report() if options.report else comparison.run()
    return 0 if complete or options.report else 1


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number
