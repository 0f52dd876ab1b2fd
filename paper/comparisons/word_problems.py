"""How the responses of the runs on word problems change in training (word-problems.md).

    python -m paper.comparisons.word_problems word-problems
    python -m paper.comparisons.word_problems word-methods --figure docs/images/word-methods

Prints two Markdown tables. In the first, each pair of numbers belongs to the first and the last quarter of the steps.
By steps and with units are shares of the correct responses: a solution by steps has an `=` in several sentences, one
with units a word behind a value. Preference for steps is the mean alignment of correct responses by steps less that of
the other correct ones. The second table is about the test set after training: the share of responses by steps, and how
many of those and of the others are correct. The figure shows the share by steps in all quarters.
"""

import argparse
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from gar.analysis import COLORS, INK, MUTED, STYLE, save_figure
from gar.evaluation import markdown_text
from gar.records import open_run
from paper.analyses.outputs import MARKERS
from paper.comparisons.results import read_results

COMPARISONS = ("word-problems", "word-methods", "word-shorthand")
QUARTERS = 4
TRAINING = ("correct", "by steps", "with units", "alignment", "preference for steps")
TEST = ("by steps", "correct by steps", "correct otherwise")
_UNITS = re.compile(r"= *\d+ +[a-z]")

Means = Mapping[str, float | None]


def by_steps(response: str) -> bool:
    """Whether several sentences of a response have an `=`. An expression and its reduction are one sentence."""
    return sum("=" in sentence for sentence in response.split(".")) > 1


def quarters(run: Path) -> list[Means]:
    """Means over the training responses in each quarter of a run: None if no response counts, [] for fine-tuning."""
    opened = open_run(run)
    size = len(opened.steps) // QUARTERS
    columns = ["response", "verified", "alignment"]
    means = []
    for first in range(0, size * QUARTERS, size or 1):
        rows = opened.rollouts(columns, opened.steps[first : first + size]).to_pylist()
        correct = [row for row in rows if row["verified"]]
        steps, others = (
            _alignments(row for row in correct if by_steps(row["response"]) is wanted) for wanted in (True, False)
        )
        values = (
            _mean([row["verified"] for row in rows]),
            _mean([by_steps(row["response"]) for row in correct]),
            _mean([_UNITS.search(row["response"]) is not None for row in correct]),
            _mean([*steps, *others]),
            statistics.fmean(steps) - statistics.fmean(others) if steps and others else None,
        )
        means.append(dict(zip(TRAINING, values, strict=True)))
    return means


def after(run: Path) -> Means:
    """Shares of the responses to the test problems after training."""
    rows = open_run(run).samples("after").select(["set_name", "response", "verified"]).to_pylist()
    split = {True: [], False: []}
    for row in rows:
        if row["set_name"] == "test":
            split[by_steps(row["response"])].append(row["verified"])
    share = _mean([True] * len(split[True]) + [False] * len(split[False]))
    return dict(zip(TEST, (share, _mean(split[True]), _mean(split[False])), strict=True))


def tables(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """A row for each run, by title: the first and the last quarter of training, and the test set."""
    training = {name: (run["training"][0], run["training"][-1]) for name, run in runs.items() if run["training"]}
    test = {name: (run["test"],) for name, run in runs.items()}
    titles = ("Training responses, first and last quarter", "Responses to the test problems after training")
    return {
        title: pd.DataFrame(
            [[name, *(", ".join(_cell(m[c]) for m in means) for c in columns)] for name, means in part.items()],
            columns=["run", *columns],
        )
        for title, columns, part in zip(titles, (TRAINING, TEST), (training, test), strict=True)
    }


def draw(runs: Mapping[str, Mapping[str, Any]], stem: Path) -> list[Path]:
    """Share of the correct training responses by steps in each quarter: a color for a row, a line for a seed."""
    runs = {name: run for name, run in runs.items() if run["training"]}
    labels = sorted({_label(name) for name in runs}, key=lambda label: (label != "grpo", label))  # plain GRPO in ink
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for label, color, marker in zip(labels, (INK, *COLORS), MARKERS, strict=False):
            lines = [[q["by steps"] for q in run["training"]] for name, run in runs.items() if _label(name) == label]
            for line in lines:
                axes.plot(range(1, QUARTERS + 1), line, color=color, marker=marker)
            axes.annotate(
                label, (QUARTERS, statistics.fmean(line[-1] for line in lines)), (10, 0), textcoords="offset points",
                color=color, va="center", annotation_clip=False,
            )  # fmt: skip
        axes.set_ylim(0, 1)
        axes.set_xticks(range(1, QUARTERS + 1))
        axes.set_xlabel("quarter of the training steps")
        axes.set_title("Share of correct responses that go by steps", loc="left")
        figure.supxlabel("A line is a seed.", x=0.988, ha="right", size=8, color=MUTED)
    return save_figure(figure, stem)


def _label(run: str) -> str:
    return run.partition("-seed-")[0]


def responses(run: Path) -> dict[str, Any]:
    """What is counted in a run folder."""
    return {"training": quarters(run), "test": after(run)}


def _alignments(rows: Any) -> list[float]:
    return [row["alignment"] for row in rows if row["alignment"] is not None]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def main() -> None:
    """Print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", choices=COMPARISONS)
    parser.add_argument("--figure", type=Path, help="where the figure goes, without its ending")
    options = parser.parse_args()
    runs = dict(sorted(read_results(options.comparison).measured.items()))
    print(markdown_text(tables(runs), []))
    if options.figure is not None:
        draw(runs, options.figure)


if __name__ == "__main__":
    main()
