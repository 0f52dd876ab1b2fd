"""Tables and figures of a committed comparison; or put new results of `gar compare` beside them.

python -m paper.comparisons lower-rate                       # the tables, in Markdown
python -m paper.comparisons lower-rate --figures FOLDER      # and curves.png, curves.svg
gar compare paper/comparisons/lower-rate.yaml                # run what has no result in results/lower-rate/, then:
python -m paper.comparisons lower-rate --collect results/lower-rate --runs runs/compare/lower-rate
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gar.comparison import check_paired, curves_figure, markdown, numbers_of_results
from paper.analyses.solution_methods import method_shares
from paper.comparisons.results import HERE, Committed, collect, marked, notes, read_results
from paper.comparisons.shorthand import counted
from paper.comparisons.word_problems import responses

COUNTED: Mapping[str, Callable[[Path], Any]] = {"signals": method_shares, "word": responses, "shorthand": counted}
"""What is counted in the run folders, by the first word of a comparison's name."""


def tables(committed: Committed) -> str:
    """All tables of a comparison in Markdown."""
    check_paired(committed.results)
    ks = sorted(int(k) for k in next(iter(next(iter(committed.results.values())).pass_at.values())))
    seeds = sorted({seed for _, seed in committed.results})
    against = {marked(committed.name, label): [marked(committed.name, other) for other in others]
               for label, others in committed.against.items()}  # fmt: skip
    results = {(marked(committed.name, label), seed): result for (label, seed), result in committed.results.items()}
    numbers = numbers_of_results(committed.name, results, against=against, seeds=seeds, ks=ks)
    return markdown(replace(numbers, notes=[*numbers.notes, *notes([committed.name])]))


def main() -> None:
    """Collect or read, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(path.stem for path in HERE.glob("*.yaml")), metavar="NAME")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="where curves.png and curves.svg go")
    parser.add_argument("--collect", type=Path, metavar="RESULTS", help="take the results of gar compare from here")
    parser.add_argument("--runs", type=Path, help="with --collect: also count methods in the run folders that lie here")
    options = parser.parse_args()
    if options.collect:
        count = COUNTED.get(options.name.partition("-")[0])
        folders = sorted(options.runs.glob("*-seed-*")) if options.runs and count else []
        print(collect(options.name, options.collect, {run.name: count(run) for run in folders if count}))
    committed = read_results(options.name)
    print(tables(committed))
    if options.figures:
        curves_figure(
            {label: [*committed.of_row(label).values()] for label in committed.against}, options.figures / "curves"
        )


if __name__ == "__main__":
    main()
