"""Self-distillation from expert solutions: how it was tuned, curves, the predictions of self-distillation.md.

python -m paper.comparisons.self_distillation
python -m paper.comparisons.self_distillation --tuning
"""

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gar.evaluation import markdown_text
from gar.records import open_run
from paper.comparisons import budget, shorthand
from paper.comparisons.leaky import interval_text
from paper.comparisons.results import NAMES, Committed, mean_text, read_results
from paper.comparisons.tuning import best, curves

TASKS = {"which-way": "which-way", "chain": "arithmetic"}
"""The tasks, and how the folders of their problems are called."""
FORMS = ("shorthand", "half", "full")
STEPS = (100, 200, 300)
NUM_SEEDS = 10
WEIGHTS = ("1.0", "0.5", "0.1")
TEACHER = 'feedback_template: "{feedback_raw} <sep> ", reprompt_template: "{feedback}{prompt}"'


def tuned_rows(task: str, committed: Committed, *, at: int | None = None) -> dict[str, tuple[str, int]]:
    """The best weight and number of steps of each form that has been tuned, and its row of the YAML file.

    `at` fixes the steps: then the row is of self-distillation-100-TASK.yaml, else of self-distillation-TASK.yaml.

    Returns:
        Row of the YAML file, and steps, by form.
    """
    found, chosen = curves(committed), {}
    if at is not None:
        found = {label: {at: curve[at]} for label, curve in found.items()}
    for form in FORMS:
        labels = [f"sdpo-{form}-{weight}" for weight in WEIGHTS]
        if all(label in found for label in labels):
            label, steps = best(found, labels)
            source = f"data: {{source: runs/tasks/{TASKS[task]}-{form}/train.jsonl}}"
            sdpo = f"sdpo: {{{TEACHER}, distillation_weight: {label.rpartition('-')[2]}}}"
            name = f"sdpo-{form}" if at is None else f"sdpo-{form}-{at}"
            row = f"  - {{label: {name}, method: sdpo, against: [], settings: {{{source}, {sdpo}}}}}"
            chosen[form] = row, steps
    return chosen


def counted(run: Path) -> dict[str, Any]:
    """Kinds of responses as in shorthand.md, and pass@1 on the test problems by step, before training included."""
    of_steps = budget.counted(run)
    before = [bool(row) for row in open_run(run).samples("before")["verified"].to_pylist()]
    return shorthand.counted(run) | {
        "correct": of_steps["correct"],
        "curve": {"0": statistics.fmean(before)} | of_steps["test"],
    }


def measured_curves(task: str) -> dict[str, dict[int, Mapping[str, float]]]:
    """pass@1 on the test problems by row, seed and step: these rows, and plain GRPO and GAR of budget.md."""
    found: dict[str, dict[int, Mapping[str, float]]] = {}
    of_task = {
        f"shorthand-budget-{task}": "test",
        f"self-distillation-{task}": "curve",
        f"self-distillation-100-{task}": "curve",
    }
    for name, key in of_task.items():
        committed = read_results(name)
        for label in committed.against:
            found[label] = {seed: committed.measured[f"{label}-seed-{seed}"][key] for seed in committed.of_row(label)}
    return found


def row_table(task: str) -> pd.DataFrame:
    """pass@1 on the test problems at three steps, means over the seeds that a row has."""
    rows = []
    for label, runs in measured_curves(task).items():
        means = {
            f"pass@1 at {at}": mean_text([curve[str(at)] for curve in runs.values()])
            for at in STEPS
            if runs and all(str(at) in curve for curve in runs.values())
        }
        rows.append({"row": label, "seeds": len(runs), **means})
    return pd.DataFrame(rows).fillna("")


def tuned_steps(task: str) -> dict[str, int]:
    """The steps that the tuning chose, by form."""
    return {
        form: steps for form, (_, steps) in tuned_rows(task, read_results(f"tuning-self-distillation-{task}")).items()
    }


def predictions(task: str) -> pd.DataFrame:
    """D1 to D4 at 100, 300 and the tuned steps: intervals, and outcomes once all seeds are there."""
    found, steps = measured_curves(task), tuned_steps(task)
    rows = []
    for claim, label, other, at in _planned(steps):
        after = next(step for step in STEPS if step >= at) if other != "sft-full" else at
        seeds = sorted(found.get(label, {}).keys() & found.get(other, {}).keys())
        leads = [found[label][seed][str(at)] - found[other][seed][str(after)] for seed in seeds]
        places = {"steps": at, "difference": f"{label} minus {other}" + (f" at {after}" if after != at else "")}
        rows.append(
            {"claim": claim}
            | places
            | {"seeds": len(leads), "interval": interval_text(leads), "outcome": outcome(claim, leads)}
        )
    return pd.DataFrame(rows)


def _planned(steps: Mapping[str, int]) -> Iterator[tuple[str, str, str, int]]:
    """Claim, row, the row that it is compared with, and steps."""
    for form, tuned in steps.items():
        points = sorted({100, 300, tuned})
        if form == "full":
            yield from (("D3", "sdpo-full", "sft-full", at) for at in points)
        else:
            yield from (("D1", f"sdpo-{form}", "grpo", at) for at in points)
            yield "D2", f"sdpo-{form}", f"gar-{form}", 100
            yield "D4", f"sdpo-{form}-100", f"gar-{form}", 100


def outcome(claim: str, leads: Sequence[float]) -> str:
    """Shown, refuted or open by the 95% interval. Waiting until all seeds are there."""
    if len(leads) < NUM_SEEDS:
        return "waiting"
    low, high = budget.interval(leads)
    if claim == "D3":
        return "shown" if low > -0.03 and high < 0.03 else "refuted" if low > 0.03 or high < -0.03 else "open"
    if claim == "D4":
        return "shown" if low > 0 else "refuted" if high < 0 else "open"
    bound = {"D1": 0.03, "D2": 0.0}[claim]
    return "shown" if high < bound else "refuted" if low > bound else "open"


def print_tuning() -> None:
    """Print the curves on the validation problems, and the rows that they choose."""
    for task in TASKS:
        if (name := f"tuning-self-distillation-{task}") not in NAMES:
            continue
        committed = read_results(name)
        table = pd.DataFrame(curves(committed)).T.sort_index(axis=1).map("{:.3f}".format)
        print(markdown_text({f"{task}, validation": table.rename_axis("row").reset_index()}, []))
        for at in (None, 100):
            for row, steps in tuned_rows(task, committed, at=at).values():
                print(f"{row}  # {'best' if at is None else 'chosen'} at {steps} steps")


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuning", action="store_true", help="how the rows were tuned")
    if parser.parse_args().tuning:
        print_tuning()
        return
    for task in TASKS:
        if f"self-distillation-{task}" in NAMES:
            print(markdown_text({task: row_table(task), f"{task}, predictions": predictions(task)}, []))


if __name__ == "__main__":
    main()
