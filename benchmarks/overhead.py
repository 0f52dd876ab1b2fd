"""Cost of a method: seconds per step and peak memory compared with plain GRPO, interleaved in one run.

    python benchmarks/overhead.py [--methods grpo gar-grpo] [--rounds 6] [--steps 6] [--updates 1]

Every method trains the embedded model on the embedded task from the same checkpoint, each time in a separate process,
so that peak memory is separate. Rounds alternate A B C A B C. The first of each is dropped as warm-up. Prints
medians and spreads, and writes results/overhead.json. Absolute seconds mean little. Shares and ratios to the first
method are the result.
"""

import argparse
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import in_a_process, machine, print_rows, shown, spread, write_json
from transformers import PrinterCallback
from trl import GRPOConfig

from gar import GARTrainer
from gar.comparison import step_times
from gar.data import load_arithmetic
from gar.methods import METHODS
from gar.models import load_embedded
from gar.verify import Verifier

MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


def measure(method: str, steps: int, problems: int, updates: int) -> dict[str, Any]:
    """Seconds of a step and its parts over one short training run, shares, and peak memory of this process."""
    torch.set_num_threads(1)
    model, tokenizer = load_embedded()
    with Verifier() as verifier, tempfile.TemporaryDirectory() as folder:
        trainer = GARTrainer(
            model,
            train_dataset=load_arithmetic("train"),
            verifier=verifier,
            method=method,
            processing_class=tokenizer,
            args=GRPOConfig(
                output_dir=folder,
                max_steps=steps * updates,
                per_device_train_batch_size=problems * 8,
                num_generations=8,
                num_iterations=updates,
                max_completion_length=64,
                loss_type=METHODS[method].trl.get("loss_type", "grpo"),
                # Nothing is learned, so that every round does the same work.
                learning_rate=0.0,
                gradient_checkpointing=False,
                save_strategy="no",
                report_to="none",
                logging_steps=1,
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
            ),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    seconds, shares = step_times(trainer.state.log_history)
    return {
        "seconds": seconds,
        "shares": shares,
        "peak_bytes": MEMORY_UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def summary_of(rounds: list[dict[str, Any]], first: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over rounds, and ratios to the first method's run of the same round."""
    pairs = list(zip(rounds, first, strict=True))
    parts = rounds[0]["seconds"]
    return {
        "seconds": {part: statistics.median(row["seconds"][part] for row in rounds) for part in parts},
        "shares": {part: spread([row["shares"][part] for row in rounds]) for part in rounds[0]["shares"]},
        "step_ratio": spread([a["seconds"]["step"] / b["seconds"]["step"] for a, b in pairs]),
        "peak_bytes": statistics.median(row["peak_bytes"] for row in rounds),
        "memory_ratio": spread([a["peak_bytes"] / b["peak_bytes"] for a, b in pairs]),
    }


def print_result(result: dict[str, Any]) -> None:
    methods, rows = result["methods"], []
    for method, summary in methods.items():
        share = summary["shares"].get("gar")
        rows.append(
            [
                method,
                f"{summary['seconds']['step']:.3f}",
                shown(summary["step_ratio"]),
                f"{share['median']:.1%}" if share else "-",
                f"{summary['peak_bytes'] / 2**20:.0f}",
                f"{summary['memory_ratio']['median']:.2f}",
            ]
        )
    title = f"Seconds per step, GAR's share of them, peak memory; ratios to {next(iter(methods))}"
    print_rows(title, ["method", "s/step", "ratio", "GAR", "MiB", "ratio"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["grpo", "gar-grpo"], help="ratios are to the first")
    parser.add_argument("--rounds", type=int, default=6, help="runs of each method, the first is warm-up")
    parser.add_argument("--steps", type=int, default=6, help="generations of a run, the first is warm-up")
    parser.add_argument("--problems", type=int, default=8, help="problems per step, 8 responses each")
    parser.add_argument("--updates", type=int, default=1, help="optimizer steps per generation")
    parser.add_argument("--out", type=Path, default=Path("results/overhead.json"))
    arguments = parser.parse_args()
    if arguments.rounds < 2 or arguments.steps < 2:
        parser.error("--rounds and --steps must be at least 2: the first of each is warm-up")
    sizes = (arguments.steps, arguments.problems, arguments.updates)
    rounds: dict[str, list[dict[str, Any]]] = {method: [] for method in arguments.methods}
    for _ in range(arguments.rounds):
        for method, measured in rounds.items():
            measured.append(in_a_process(measure, method, *sizes))
    first = rounds[arguments.methods[0]][1:]
    methods = {method: summary_of(measured[1:], first) for method, measured in rounds.items()}
    torch.set_num_threads(1)
    result = {
        "methods": methods,
        "machine": machine(),
        "settings": {"rounds": arguments.rounds, "steps": arguments.steps, "problems": arguments.problems,
                     "updates": arguments.updates},
    }  # fmt: skip
    print_result(result)
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
