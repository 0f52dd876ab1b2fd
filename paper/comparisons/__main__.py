"""Tables and figures of a committed comparison. `--collect` adds new results of `gar compare`.

python -m paper.comparisons lower-rate                       # the tables, in Markdown
python -m paper.comparisons lower-rate --figures FOLDER      # and curves.png, curves.svg
gar compare paper/comparisons/lower-rate.yaml                # run what has no result
python -m paper.comparisons lower-rate --collect             # then put the results in place of the old ones
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gar.analysis import save_figure
from gar.comparison import (
    check_paired,
    comparison_tables,
    finished_results,
    planned_runs,
    read_comparison,
    result_notes,
    row_curves,
)
from gar.evaluation import markdown_text
from paper.analyses.solution_methods import method_shares
from paper.comparisons.budget import counted as counted_budget
from paper.comparisons.guided import all_wrong_shares
from paper.comparisons.leaky import counted as counted_leaky
from paper.comparisons.results import HERE, Committed, collect, marked, notes, read_results
from paper.comparisons.self_distillation import counted as counted_self_distillation
from paper.comparisons.shorthand import counted
from paper.comparisons.tuning import validation_curve
from paper.comparisons.word_compete import counted as counted_methods
from paper.comparisons.word_problems import responses

COUNTED: Mapping[str, Callable[[Path], Any]] = {
    "signals": method_shares,
    "word-compete": counted_methods,
    "word": responses,
    "shorthand-budget": counted_budget,
    "shorthand": counted,
    "tuning": validation_curve,
    "guided": all_wrong_shares,
    "leaky": counted_leaky,
    "self-distillation": counted_self_distillation,
}
"""What is counted in the run folders, by how a comparison's name begins. The first that fits."""


def tables(committed: Committed) -> str:
    """All tables of a comparison in Markdown."""
    check_paired(committed.results)
    first = next(iter(committed.results.values()))
    ks = sorted(next(iter(first.sets.values())).known_rates)
    seeds = sorted({seed for _, seed in committed.results})
    against = {marked(committed.name, label): [marked(committed.name, other) for other in others]
               for label, others in committed.against.items()}  # fmt: skip
    results = {(marked(committed.name, label), seed): result for (label, seed), result in committed.results.items()}
    shown = comparison_tables(results, against=against, seeds=seeds, ks=ks)
    remarks = [*result_notes(committed.results), *notes([committed.name])]
    return markdown_text(shown, remarks, heading=(f"# {committed.name}", ""))


def main() -> None:
    """Collect or read, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(path.stem for path in HERE.glob("*.yaml")), metavar="NAME")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="where curves.png and curves.svg go")
    parser.add_argument("--collect", action="store_true", help="take the results of gar compare, and count methods")
    options = parser.parse_args()
    if options.collect:
        source = str(HERE / f"{options.name}.yaml")
        cells = planned_runs(read_comparison(source), source)
        results = finished_results(cells)
        count = next((count for start, count in COUNTED.items() if options.name.startswith(start)), lambda run: None)
        done = [cell for cell in cells if (cell.label, cell.seed) in results]
        counted = {f"{cell.label}-seed-{cell.seed}": count(cell.folder) for cell in done}
        collect(options.name, [*results.values()], counted)
    committed = read_results(options.name)
    print(tables(committed))
    if options.figures:
        results = {(r.label, r.seed): r for label in committed.against for r in committed.of_row(label).values()}
        save_figure(row_curves(results), options.figures / "curves")


if __name__ == "__main__":
    main()
