"""By which method the right responses of runs on the embedded task were written, late in training.

    python -m studies.solution_methods runs/compare/lower-rate

Prints, for each row of a comparison, the mean share of stepwise, running and guess among right responses of the last
ten generations of its finished runs, and the smallest and largest share of stepwise over seeds.
"""

import argparse
import statistics
from collections import Counter, defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gar.data.arithmetic import parse_solution
from gar.records import RunFolder

LAST = 10
METHODS = ("stepwise", "running", "guess")


def method_shares(run: Path) -> dict[str, float] | None:
    """Shares of the methods among right responses; None where no response is right."""
    reader = RunFolder(run).rollout_reader()
    counts: Counter[str | None] = Counter()
    for step in reader.steps[-LAST:]:
        table = reader.read(step, ["response", "verified"])
        for text, verified in zip(table["response"].to_pylist(), table["verified"].to_pylist(), strict=True):
            if verified:
                counts[parse_solution(text).method] += 1
    return {method: counts[method] / counts.total() for method in METHODS} if counts else None


def main() -> None:
    """Read, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the run folders of a comparison lie")
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    for run in sorted(path.parents[1] for path in parser.parse_args().folder.glob("*/evaluation/after.json")):
        shares = method_shares(run)
        if shares is not None:
            rows[run.name.rpartition("-seed-")[0]].append(shares)
    table = Table("row", "runs", *METHODS, "stepwise, range")
    for label, runs in rows.items():
        means = (f"{statistics.fmean(shares[method] for shares in runs):.2f}" for method in METHODS)
        stepwise = [shares["stepwise"] for shares in runs]
        table.add_row(label, str(len(runs)), *means, f"{min(stepwise):.2f} to {max(stepwise):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
