"""Which methods compete in the responses to word problems, and whether plain GRPO chooses by itself (word-problems.md).

    python -m paper.comparisons.word_compete evals/four/validation      # the methods in a folder of gar eval
    python -m paper.comparisons.word_compete word-compete-tuning        # the curves of committed runs

For a folder: the share of each method among all responses and among the correct ones, pass@1 of the method, and the
gap, which is pass@1 by steps less pass@1 of the method. For runs: at each measured step pass@1, the share by steps of
the correct responses in the ten training steps before, and mean length and entropy of the responses in these.
"""

import argparse
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gar.evaluation import markdown_text
from gar.records import open_run
from paper.comparisons.results import NAMES, read_results
from paper.tasks.word_problems import METHODS, method_of

WINDOW = 10
_COLUMNS = ["prompt", "response", "verified", "num_tokens"]


def counted(run: Path) -> dict[str, Any]:
    """What is counted in a run folder: methods and lengths by training step, pass@1 by step, methods in evaluations."""
    opened = open_run(run)
    training = {str(step): _methods(opened.rollouts(_COLUMNS, [step]).to_pylist()) for step in opened.steps}
    curves: dict[str, dict[str, float]] = {"entropy": {}}
    for row in opened.metrics:
        for name in [name for name in row if name.startswith("eval/") and name.endswith("/pass@1")]:
            curves.setdefault(name, {})[str(row["step"])] = row[name]
        if "entropy" in row:
            curves["entropy"][str(row["step"])] = row["entropy"]
    samples = {moment: _methods(opened.samples(moment).to_pylist()) for moment in ("before", "after")}
    return {"training": training, "curves": curves, "samples": samples}


def _methods(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Responses and correct ones of each method, and the mean number of tokens."""
    methods = [method_of(row["response"], row["prompt"]) or "other" for row in rows]
    correct = Counter(method for method, row in zip(methods, rows, strict=True) if row["verified"])
    length = statistics.fmean(row["num_tokens"] for row in rows) if rows else None
    return {"responses": Counter(methods), "correct": correct, "length": length}


def methods_table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Shares and pass@1 of the methods in the samples of an evaluation."""
    found = _methods(rows)
    total, right = sum(found["responses"].values()), sum(found["correct"].values())
    pass_at_1 = {method: found["correct"][method] / number for method, number in found["responses"].items()}
    cells = []
    for method in (method for method in (*METHODS, "other") if method in pass_at_1):
        values = (
            found["responses"][method] / total,
            found["correct"][method] / max(right, 1),
            pass_at_1[method],
            pass_at_1.get(METHODS[0], float("nan")) - pass_at_1[method],
        )
        cells.append([method, *(f"{value:.3f}" for value in values)])
    return pd.DataFrame(cells, columns=["method", "share", "share of correct", "pass@1", "gap"])


def curve_table(measured: dict[str, Any]) -> pd.DataFrame:
    """The measured steps of a run, and the training steps before each."""
    before = measured["samples"]["before"]
    total, right = (sum(before[key].values()) for key in ("responses", "correct"))
    cells = [["0", f"{right / total:.3f}", "-", "-", "-"]] if total else []
    (name,) = [name for name in measured["curves"] if name != "entropy"]
    for step, value in measured["curves"][name].items():
        window = [str(s) for s in range(int(step) - WINDOW + 1, int(step) + 1) if str(s) in measured["training"]]
        parts = [measured["training"][s] for s in window]
        if not parts:  # fine-tuning samples nothing in training
            cells.append([step, f"{value:.3f}", "-", "-", "-"])
            continue
        correct = sum((Counter(part["correct"]) for part in parts), Counter())
        share = correct[METHODS[0]] / max(correct.total(), 1)
        length = statistics.fmean(part["length"] for part in parts)
        entropy = statistics.fmean(measured["curves"]["entropy"][s] for s in window)
        cells.append([step, f"{value:.3f}", f"{share:.2f}", f"{length:.1f}", f"{entropy:.3f}"])
    return pd.DataFrame(cells, columns=["step", "pass@1", "by steps", "length", "entropy"])


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a folder of gar eval, or the name of a committed comparison")
    source = parser.parse_args().source
    if source in NAMES:
        tables = {name: curve_table(run) for name, run in sorted(read_results(source).measured.items())}
    else:
        tables = {source: methods_table(open_run(source).samples("after").to_pylist())}
    print(markdown_text(tables, []))


if __name__ == "__main__":
    main()
