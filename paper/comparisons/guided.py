"""Groups without a correct response in training: what guided.md counts in a run, and its table.

python -m paper.comparisons.guided
"""

from pathlib import Path
from typing import Any

import pandas as pd

from gar.evaluation import markdown_text
from gar.records import open_run
from paper.comparisons.results import mean_text, read_results

WINDOW = 10


def all_wrong_shares(run: Path) -> dict[str, Any]:
    """The share of groups without a correct response, in the first and the last steps of a run."""
    opened = open_run(run)
    shares = {}
    for name, steps in (("first", opened.steps[:WINDOW]), ("last", opened.steps[-WINDOW:])):
        rows = opened.rollouts(["step", "group_index", "verified"], steps).to_pandas()
        shares[name] = float((~rows.groupby(["step", "group_index"])["verified"].any()).mean())
    return shares


def table() -> pd.DataFrame:
    """A row for each row of the comparison: pass@k on the test problems, and all-wrong groups in training."""
    committed = read_results("guided")
    rows = []
    for label in committed.against:
        runs = committed.of_row(label)
        measured = [committed.measured[f"{label}-seed-{seed}"] for seed in runs]
        rows.append(
            {
                "row": label,
                **{f"pass@{k}": mean_text([run.sets["test"].known_rates[k] for run in runs.values()]) for k in (1, 4)},
                **{
                    f"all wrong, {name} {WINDOW} steps": mean_text([one[name] for one in measured])
                    for name in ("first", "last")
                },
            }
        )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    print(markdown_text({"Test problems without a beginning in the prompt, three seeds": table()}, []))
