"""Methods and wordings of the right responses of runs on an embedded task, late in training.

    python -m paper.analyses.solution_methods paper/comparisons/lower-rate.yaml

Prints, for each row of a comparison, shares among the right responses in the last ten generations of its finished runs:
the mean share of the expert's method, of the base model's habit, of guesses and of responses in words, and the range of
the expert's share over seeds. On the chain task the methods are stepwise, running and guess.
"""

import argparse
import json
import statistics
from collections import Counter, defaultdict
from pathlib import Path

import pandas as pd

from gar import Problem, read_config
from gar.comparison import planned_runs, read_comparison
from gar.evaluation import print_tables
from gar.records import open_run
from paper.tasks.chains import ARITHMETIC, ROLES, TASKS, ChainTask, parse_solution

LAST = 10
SHARES = (*ROLES, "words")


def method_shares(run: Path) -> dict[str, float] | None:
    """Shares of the methods by their roles, and of words, among right responses. None if no response is right."""
    opened, task = open_run(run), task_of_run(run)
    counts: Counter[str | None] = Counter()
    total = 0
    names = ["prompt", "response", "verified"]
    table = opened.rollouts(names, opened.steps[-LAST:])
    for prompt, text, verified in zip(*(table[name].to_pylist() for name in names), strict=True):
        if verified:
            parsed = parse_solution(text)
            counts.update(
                [task.role_of(parsed.method, Problem(id="", prompt=json.loads(prompt), answer="")), parsed.wording]
            )
            total += 1
    return {name: counts[name] / total for name in SHARES} if total else None


def task_of_run(run: Path) -> ChainTask:
    """The embedded task that a run was trained on."""
    source = Path(read_config(run / "config.yaml")["data"]["source"])
    return TASKS.get(source.parent.name or source.name, ARITHMETIC)


def main() -> None:
    """Read, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", help="the YAML file of a comparison whose runs gar compare has finished")
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    source = parser.parse_args().comparison
    for cell in planned_runs(read_comparison(source), source):
        shares = method_shares(cell.folder) if (cell.folder / "evaluation" / "after").is_dir() else None
        if shares is not None:
            rows[cell.label].append(shares)
    cells = []
    for label, runs in rows.items():
        means = (f"{statistics.fmean(shares[method] for shares in runs):.2f}" for method in SHARES)
        experts = [shares["expert"] for shares in runs]
        cells.append([label, len(runs), *means, f"{min(experts):.2f} to {max(experts):.2f}"])
    print_tables({source: pd.DataFrame(cells, columns=["row", "runs", *SHARES, "expert, range"])}, [])


if __name__ == "__main__":
    main()
