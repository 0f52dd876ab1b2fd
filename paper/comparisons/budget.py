"""Faster, or higher in the end: curves of 300 steps, steps to an accuracy, the predictions of budget.md.

python -m paper.comparisons.budget
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from gar.evaluation import markdown_text
from gar.records import open_run
from paper.comparisons.results import NAMES, Committed, mean_text, read_results

COMPARISONS = ("shorthand-budget-which-way", "shorthand-budget-chain")
FORMS = ("half", "shorthand")
NUM_SEEDS = 10
WINDOW = 10
_METRIC, _ACCURACY = "eval/test/pass@1", "gar/eligible_fraction"
_LEVEL, _WITHIN, _RATIO = 0.8, 0.03, 0.5


Measured = Mapping[str, Any]
"""What `counted` has found in a run."""


def counted(run: Path) -> dict[str, Any]:
    """pass@1 on the test problems by step, and the share of correct responses of each training step."""
    metrics = open_run(run).metrics
    return {
        "test": {str(row["step"]): row[_METRIC] for row in metrics if _METRIC in row},
        "correct": [row[_ACCURACY] for row in metrics if _ACCURACY in row],
    }


def accuracies(measured: Measured) -> np.ndarray:
    """Training accuracy from step `WINDOW` on: the share of correct responses of the last `WINDOW` steps, [steps]."""
    return np.convolve(measured["correct"], np.ones(WINDOW) / WINDOW, mode="valid")


def steps_to(measured: Measured, level: float) -> int:
    """The first step at which training accuracy reaches a level, the run's last step if it never does."""
    reached = np.flatnonzero(accuracies(measured) >= level - 1e-12)
    return int(reached[0]) + WINDOW if len(reached) else len(measured["correct"])


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% t-interval of a mean."""
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values) - half, statistics.fmean(values) + half


def row_table(committed: Committed) -> pd.DataFrame:
    """pass@1 on the test problems, steps to two levels and the area of each row, means over seeds."""
    rows = []
    for label in committed.against:
        pairs = _with_baseline(committed, label)
        rows.append(
            {
                "row": label,
                "seeds": len(pairs),
                **{f"pass@1 at {at}": mean_text([own["test"][str(at)] for own, _ in pairs]) for at in (100, 200, 300)},
                "steps to 0.8": _steps_text([steps_to(own, _LEVEL) for own, _ in pairs]),
                "steps to GRPO's final value": _steps_text([steps_to(own, accuracies(b)[-1]) for own, b in pairs]),
                "area": mean_text([float(accuracies(own).mean()) for own, _ in pairs]),
            }
        )
    return pd.DataFrame(rows)


def predictions(committed: Committed) -> pd.DataFrame:
    """Whether P1 and P2 are shown, refuted or open in each form."""
    rows = []
    for form in FORMS:
        pairs = _with_baseline(committed, f"gar-{form}")
        ends = interval([own["test"]["300"] - other["test"]["300"] for own, other in pairs])
        ratios = [math.log(steps_to(own, _LEVEL) / steps_to(other, _LEVEL)) for own, other in pairs]
        low, high = map(math.exp, interval(ratios))
        first = "shown" if ends[0] > -_WITHIN and ends[1] < _WITHIN else "refuted" if ends[0] > _WITHIN else "open"
        second = "shown" if high < _RATIO else "refuted" if low > _RATIO else "open"
        rows += [
            {"prediction": "P1", "form": form, "interval": f"{ends[0]:+.3f} to {ends[1]:+.3f}", "outcome": first},
            {"prediction": "P2", "form": form, "interval": f"{low:.2f} to {high:.2f}", "outcome": second},
        ]
    return pd.DataFrame(rows)


def _with_baseline(committed: Committed, label: str) -> list[tuple[Measured, Measured]]:
    """What was counted in the runs of a row and in plain GRPO's of the same seeds."""
    of = committed.measured
    seeds = [seed for seed in committed.of_row(label) if seed in committed.of_row("grpo")]
    return [(of[f"{label}-seed-{seed}"], of[f"grpo-seed-{seed}"]) for seed in seeds]


def _steps_text(values: Sequence[int]) -> str:
    return f"{statistics.fmean(values):.0f} ({min(values)} to {max(values)})"


def main() -> None:
    """Print the tables of every comparison that has results. Predictions are judged once all seeds are complete."""
    for name in filter(NAMES.__contains__, COMPARISONS):
        committed = read_results(name)
        complete = all(len(committed.of_row(label)) == NUM_SEEDS for label in committed.against)
        shown = {name: row_table(committed)} | ({"Predictions": predictions(committed)} if complete else {})
        notes = [] if complete else [f"Not all {NUM_SEEDS} seeds have ended: no prediction is judged yet."]
        print(markdown_text(shown, notes))


if __name__ == "__main__":
    main()
