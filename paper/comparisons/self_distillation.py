"""Self-distillation from expert solutions: how it was tuned, curves, the predictions of self-distillation.md.

python -m paper.comparisons.self_distillation --tuning
"""

import argparse

import pandas as pd

from gar.evaluation import markdown_text
from paper.comparisons.results import NAMES, Committed, read_results
from paper.comparisons.tuning import best, curves

TASKS = {"which-way": "which-way", "chain": "arithmetic"}
"""The tasks, and how the folders of their problems are called."""
FORMS = ("shorthand", "half", "full")
WEIGHTS = ("1.0", "0.5", "0.1")
TEACHER = 'feedback_template: "{feedback_raw} <sep> ", reprompt_template: "{feedback}{prompt}"'


def tuned_rows(task: str, committed: Committed) -> dict[str, tuple[str, int]]:
    """The best weight and number of steps of each form that has been tuned, and its row of self-distillation-TASK.yaml.

    Returns:
        Row of the YAML file, and steps, by form.
    """
    found, chosen = curves(committed), {}
    for form in FORMS:
        labels = [f"sdpo-{form}-{weight}" for weight in WEIGHTS]
        if all(label in found for label in labels):
            label, steps = best(found, labels)
            source = f"data: {{source: runs/tasks/{TASKS[task]}-{form}/train.jsonl}}"
            sdpo = f"sdpo: {{{TEACHER}, distillation_weight: {label.rpartition('-')[2]}}}"
            row = f"  - {{label: sdpo-{form}, method: sdpo, against: [], settings: {{{source}, {sdpo}}}}}"
            chosen[form] = row, steps
    return chosen


def print_tuning() -> None:
    """Print the curves on the validation problems, and the rows that they choose."""
    for task in TASKS:
        if (name := f"tuning-self-distillation-{task}") not in NAMES:
            continue
        committed = read_results(name)
        table = pd.DataFrame(curves(committed)).T.sort_index(axis=1).map("{:.3f}".format)
        print(markdown_text({f"{task}, validation": table.rename_axis("row").reset_index()}, []))
        for row, steps in tuned_rows(task, committed).values():
            print(f"{row}  # best at {steps} steps")


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuning", action="store_true", help="how the rows were tuned")
    if parser.parse_args().tuning:
        print_tuning()


if __name__ == "__main__":
    main()
