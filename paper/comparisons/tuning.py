"""How imitation does best: the settings of its rows by the rule of shorthand.md, from the committed tuning runs.

python -m paper.comparisons.tuning which-way      # pass@1 on the validation problems, then the rows for the YAML
python -m paper.comparisons.tuning words          # pass@1 alone: the rule of word-problems.md chooses there
"""

import argparse
from pathlib import Path

import pandas as pd

from gar.evaluation import markdown_text
from gar.records import open_run
from paper.comparisons.results import Committed, read_results
from paper.comparisons.shorthand import MODELS, TESTED_FORMS

RATES = {"3e-5": "3.0e-5", "1e-4": "1.0e-4", "3e-4": "3.0e-4"}
STEPS = (10, 30, 100)
PEAKS = {"0.9": "0.05", "0.3": "0.02", "0.1": "0.0"}
"""CHORD's first mu, and its last."""
_METRIC = "eval/validation/pass@1"


def validation_curve(run: Path) -> dict[str, float]:
    """pass@1 on the validation problems by step, during training."""
    return {str(row["step"]): row[_METRIC] for row in open_run(run).metrics if _METRIC in row}


def curves(committed: Committed) -> dict[str, dict[int, float]]:
    """pass@1 on the validation problems by step, for each row, its end included."""
    found = {}
    for label in committed.against:
        for seed, result in committed.of_row(label).items():
            during = committed.measured[f"{label}-seed-{seed}"] or {}
            found[label] = {int(step): value for step, value in during.items()} | {
                result.steps: result.sets["validation"].known_rates[1]
            }
    return found


def best(curves: dict[str, dict[int, float]], labels: list[str]) -> tuple[str, int]:
    """The row and step of the highest pass@1, the first among equals."""
    points = [(label, step) for label in labels for step in sorted(curves[label])]
    return max(points, key=lambda point: curves[point[0]][point[1]])


def chosen_rows(model: str, curves: dict[str, dict[int, float]]) -> list[str]:
    """The rows of imitation for shorthand-MODEL.yaml."""
    task = MODELS[model].name
    rows = []
    for form in TESTED_FORMS:
        head, source = f"against: [grpo, gar-{form}]", f"data: {{source: runs/tasks/{task}-{form}/train.jsonl}}"
        label, step = best(curves, [f"sft-{form}-{rate}" for rate in RATES])
        trl = f"trl: {{learning_rate: {RATES[label.removeprefix(f'sft-{form}-')]}, max_steps: {step}}}"
        rows.append(f"{{label: sft-{form}, method: sft, {head}, settings: {{{source}, {trl}}}}}")
        steps = int(best(curves, [f"sft-grpo-{form}-{count}" for count in STEPS])[0].rpartition("-")[2])
        share = f"sft_grpo: {{share: {steps / (100 + steps):.6f}}}, trl: {{max_steps: {100 + steps}}}"
        rows.append(f"{{label: sft-grpo-{form}, method: sft-grpo, {head}, settings: {{{source}, {share}}}}}")
        peak = best(curves, [f"chord-{form}-{peak}" for peak in PEAKS])[0].rpartition("-")[2]
        mu = f"chord: {{peak: {peak}, valley: {PEAKS[peak]}}}"
        rows.append(f"{{label: chord-{form}, method: chord, {head}, settings: {{{source}, {mu}}}}}")
    label, step = best(curves, [f"rft-{rate}" for rate in RATES])
    trl = f"trl: {{learning_rate: {RATES[label.removeprefix('rft-')]}, max_steps: {step}}}"
    rows.append(f"{{label: rft, method: rft, against: [grpo, gar-half, gar-shorthand], settings: {{{trl}}}}}")
    return [f"  - {row}" for row in rows]


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=[*MODELS, "words", "words-lora", "words-sft"])
    model = parser.parse_args().model
    committed = read_results(f"tuning-imitation-{model}" if model in MODELS else f"tuning-{model}")
    found = curves(committed)
    steps = sorted({step for curve in found.values() for step in curve})
    rows = [[row, *(f"{curve[step]:.3f}" if step in curve else "-" for step in steps)] for row, curve in found.items()]
    print(markdown_text({"Validation": pd.DataFrame(rows, columns=["row", *map(str, steps)])}, []))
    if model not in MODELS:
        return
    if missing := [label for label in committed.against if label not in found]:
        parser.exit(1, f"Nothing is chosen yet. Missing: {', '.join(missing)}\n")
    print(*chosen_rows(model, found), sep="\n")


if __name__ == "__main__":
    main()
