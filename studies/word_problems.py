"""How the responses of the runs on word problems change in training (docs/word-problems.md).

    python -m studies.word_problems --runs runs/compare/word-problems    # count in the run folders
    python -m studies.word_problems                                      # from the committed counts

Prints a Markdown table. Each pair of numbers belongs to the first and the last quarter of the steps. By steps and with
units are shares of the correct responses: a solution by steps has several `=`, one with units a word behind a value.
The counts are kept in results/word-problems-training.json.
"""

import argparse
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from gar.evaluation.text_tables import TextTable, markdown_text
from gar.records import RunFolder
from gar.records.files import json_text, read_json, write_atomic

COUNTS = Path("results/word-problems-training.json")
QUARTERS = 4
COLUMNS = ("correct", "by steps", "with units", "alignment")
_UNITS = re.compile(r"= *\d+ +[a-z]")

Quarters = Sequence[Mapping[str, float | None]]


def quarters(run: Path) -> Quarters:
    """Means over the training responses in each quarter of a run; None where no response counts."""
    reader = RunFolder(run).rollout_reader()
    size = len(reader.steps) // QUARTERS
    columns = ["response", "verified", "alignment"]
    means = []
    for first in range(0, size * QUARTERS, size):
        rows = [row for step in reader.steps[first : first + size] for row in reader.read(step, columns).to_pylist()]
        correct = [row for row in rows if row["verified"]]
        values = (
            [row["verified"] for row in rows],
            [row["response"].count("=") > 1 for row in correct],
            [_UNITS.search(row["response"]) is not None for row in correct],
            [row["alignment"] for row in correct if row["alignment"] is not None],
        )
        means.append({name: statistics.fmean(v) if v else None for name, v in zip(COLUMNS, values, strict=True)})
    return means


def table(runs: Mapping[str, Quarters]) -> TextTable:
    """A row for each run: the first and the last quarter."""
    rows = [[name, *(f"{_cell(q[0][c])}, {_cell(q[-1][c])}" for c in COLUMNS)] for name, q in runs.items()]
    return TextTable(title="Training responses, first and last quarter", headings=("run", *COLUMNS), rows=rows)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def main() -> None:
    """Count if there are run folders, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="where the run folders of the comparison lie")
    folder = parser.parse_args().runs
    if folder is not None:
        finished = sorted(path.parents[1] for path in folder.glob("*/evaluation/after.json"))
        write_atomic(COUNTS, json_text({run.name: quarters(run) for run in finished}))
    print(markdown_text([table(read_json(COUNTS))], []))


if __name__ == "__main__":
    main()
