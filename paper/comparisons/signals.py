"""The three comparisons of signals together: scores, one family of tests, methods, speed. signals.md has the design.

python -m paper.comparisons.signals
python -m paper.comparisons.signals --figure docs/images/signal-comparison
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gar.analysis import COLORS, INK, MUTED, STYLE, save_figure
from gar.comparison import RunResult, check_paired
from gar.evaluation import contrasts, markdown_text, p_text, problem_counts
from paper.analyses.outputs import bare_rows
from paper.comparisons.results import Committed, marked, mean_text, notes, read_results

TASKS = ("chain", "which-way", "whose-voice")
REFERENCES = ("grpo", "gar-grpo")
WINDOW = 10
SHARE_OF_END = 0.9

Family = Mapping[tuple[str, str, str], Sequence[float]]
"""Mean difference, corrected p-value and p of the sign-flip test by task, row and reference."""


def read_tasks() -> dict[str, Committed]:
    """The results of each task, checked for equal problems in each seed."""
    tasks = {name: read_results(f"signals-{name}") for name in TASKS}
    for task in tasks.values():
        check_paired(task.results)
    return tasks


def pass_rates(task: Committed, label: str, set_name: str, k: int) -> list[float]:
    """pass@k of each seed of a row."""
    return [run.sets[set_name].known_rates[k] for run in task.of_row(label).values()]


def one_family(tasks: Mapping[str, Committed]) -> Family:
    """Every row against each reference on test pass@1: paired t-tests with Holm's correction, and sign-flip tests."""
    keys = [
        (name, label, other)
        for name, task in tasks.items()
        for other in REFERENCES
        for label in task.against
        if label not in REFERENCES[: REFERENCES.index(other) + 1]
    ]
    counts = problem_counts(
        (f"{name} {run.label}", run.seed, name, run.sets["test"])
        for name, task in tasks.items()
        for run in task.results.values()
    )
    against: dict[str, list[str]] = {}
    for name, label, other in keys:
        against.setdefault(f"{name} {label}", []).append(f"{name} {other}")
    tests = contrasts(
        counts, against=against, measures={name: [("pass", 1)] for name in tasks}, pair_by="seed", num_tests=len(keys)
    )
    columns = [tests[name].tolist() for name in ("label", "against", "difference", "p_corrected", "p_permutation")]
    found = {(label, other): test for label, other, *test in zip(*columns, strict=True)}
    return {key: found[names] for key in keys if (names := (f"{key[0]} {key[1]}", f"{key[0]} {key[2]}")) in found}


def steps_to_end(run: RunResult) -> float | None:
    """The step from which the share of right responses, averaged over ten steps, stays above 90% of its last value."""
    curve = run.curves.get("gar/eligible_fraction")
    if curve is None:
        return None
    steps, values = np.array(curve["step"], dtype=float), np.array(curve["value"], dtype=float)
    ends = np.arange(len(steps))
    means = np.array([values[(steps > steps[i] - WINDOW) & (steps <= steps[i])].mean() for i in ends])
    below = ends[means < SHARE_OF_END * means[-1]]
    return float(steps[below[-1] + 1 if len(below) else 0])


def score_table(name: str, task: Committed, family: Family) -> tuple[str, pd.DataFrame]:
    """pass@1 and pass@4, and test pass@1 against both references."""
    rows = []
    for label in task.against:
        cells = [mean_text(pass_rates(task, label, name, 1)) for name in ("test", "harder")]
        fours = [statistics.fmean(pass_rates(task, label, name, 4)) for name in ("test", "harder")]
        tests = [_verdict(family.get((name, label, other))) for other in REFERENCES]
        rows.append([marked(task.name, label), *cells, *(f"{value:.3f}" for value in fours), *tests])
    columns = ["row", "test pass@1", "harder pass@1", "test pass@4", "harder pass@4"]
    headings = [*columns, *(f"test pass@1 against {other}" for other in REFERENCES)]
    return f"{name}, after training", pd.DataFrame(rows, columns=headings)


def training_table(name: str, task: Committed) -> tuple[str, pd.DataFrame]:
    """Speed, methods and wording of right responses, alignment at both ends, expert tokens."""
    rows = []
    for label in task.against:
        runs = task.of_row(label)
        shares = [share for seed in runs if (share := task.measured[f"{label}-seed-{seed}"])]
        steps = [step for run in runs.values() if (step := steps_to_end(run)) is not None]
        aligned = [run.curves.get("gar/alignment_mean") for run in runs.values()]
        ends = [_mean([v for c in aligned if c for v in part(c["value"]) if v is not None]) for part in (_first, _last)]
        tokens = [
            statistics.fmean(value for value in curve["value"] if value is not None) * run.steps
            for run in runs.values()
            if (curve := run.curves.get("gar/expert_tokens"))
        ]
        rows.append(
            [
                marked(task.name, label),
                f"{statistics.median(steps):.0f}" if steps else "-",
                *(_mean([share[name] for share in shares]) for name in ("expert", "habit", "words")),
                *ends,
                f"{statistics.fmean(tokens) / 1000:.0f}" if tokens else "0",
            ]
        )
    columns = ["row", "steps to 90%", "expert's method", "habit", "words", "alignment, first", "last"]
    headings = [*columns, "expert tokens, thousands"]
    return f"{name}, during training", pd.DataFrame(rows, columns=headings)


def all_tables(tasks: Mapping[str, Committed]) -> dict[str, pd.DataFrame]:
    """Both tables of every task by title, as the page has them."""
    family = one_family(tasks)
    return dict(
        table for name, task in tasks.items() for table in (score_table(name, task, family), training_table(name, task))
    )


def draw(tasks: Mapping[str, Committed], stem: Path) -> list[Path]:
    """Test pass@1 of every row: dots are seeds, rings are means, the line is plain GRPO's mean."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.4, 5.6))
        figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
        panels = figure.subplots(1, len(tasks), sharey=True)
        for axes, (name, task) in zip(panels, tasks.items(), strict=True):
            axes.set_title(name)
            for y, label in enumerate(task.against):
                values = pass_rates(task, label, "test", 1)
                color = INK if label in REFERENCES else COLORS[0]
                axes.plot(values, np.full(len(values), y), ".", color=color, alpha=0.45, markersize=7, mew=0)
                axes.plot(statistics.fmean(values), y, "o", color=color, markersize=7, mfc="none", mew=1.6)
                if label == "grpo":
                    axes.axvline(statistics.fmean(values), color=MUTED, linewidth=0.8, linestyle="--", zorder=0)
            axes.set_yticks(range(len(task.against)), [*task.against])
            axes.set_ylim(len(task.against) - 0.4, -0.6)
            axes.set_xlabel("test pass@1")
            bare_rows(axes)
        figure.supxlabel("Dots are seeds, rings their means.", x=0.988, ha="right", size=8, color=MUTED)
    return save_figure(figure, stem)


def _verdict(test: Sequence[float] | None) -> str:
    return "-" if test is None else f"{test[0]:+.3f}, p {p_text(test[1])}, {p_text(test[2])}"


def _first(values: Sequence[float | None]) -> Sequence[float | None]:
    return values[: max(1, len(values) // 10)]


def _last(values: Sequence[float | None]) -> Sequence[float | None]:
    return values[-max(1, len(values) // 10) :]


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.2f}" if values else "-"


def main() -> None:
    """Read, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path, help="where the figure goes, without its ending")
    options = parser.parse_args()
    tasks = read_tasks()
    print(markdown_text(all_tables(tasks), notes([task.name for task in tasks.values()])))
    if options.figure:
        draw(tasks, options.figure)


if __name__ == "__main__":
    main()
