"""How far the paper's rate moves weights: shares and distances after steps of GAR-GRPO on the embedded model.

    python benchmarks/moved_weights.py [--steps 30] [--rate 1e-6] [--ways float32 bfloat16 rounded]

Prints a row for each way. The last column is the part of the first row's move that a row made too.
float32: AdamW on float32 weights, which ZeRO-3 and FSDP keep too. bfloat16: AdamW on bfloat16 weights. rounded:
torchao's 8-bit AdamW with stochastic rounding, on them too (pip install '.[lowbit]'). It compiles for minutes.
"""

import argparse
import tempfile
import warnings
from typing import Any

import torch
from torch import Tensor
from transformers import PrinterCallback
from trl import GRPOConfig

from gar import GARTrainer
from gar.data import load_arithmetic
from gar.models import load_embedded
from gar.verify import Verifier

METRIC = "gar/changed_weight_fraction"
WAYS: dict[str, tuple[torch.dtype, dict[str, str]]] = {
    "float32": (torch.float32, {}),
    "bfloat16": (torch.bfloat16, {}),
    "rounded": (torch.bfloat16, {"optim": "adamw_torch_8bit", "optim_args": "bf16_stochastic_round=True"}),
}


def moved(way: str, steps: int, rate: float, verifier: Verifier) -> tuple[list[float], Tensor]:
    """The share of weights that each step changes, and the move of every weight, float32 [weights]."""
    dtype, optimizer = WAYS[way]
    loaded, tokenizer = load_embedded()
    model: Any = loaded
    model.to(dtype)
    before = [parameter.detach().float().clone() for parameter in model.parameters()]
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            folder, max_steps=steps, learning_rate=rate, lr_scheduler_type="constant", per_device_train_batch_size=64,
            num_generations=8, max_completion_length=64, loss_type="grpo", gradient_checkpointing=False,
            logging_steps=1, report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True, bf16=False,
            **optimizer,
        )  # fmt: skip
        problems = load_arithmetic("train")
        trainer = GARTrainer(model, args=args, train_dataset=problems, processing_class=tokenizer, verifier=verifier)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    shares = [row[METRIC] for row in trainer.state.log_history if METRIC in row]
    pairs = zip(model.parameters(), before, strict=True)
    return shares, torch.cat([(parameter.detach().float() - old).flatten() for parameter, old in pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rate", type=float, default=1e-6)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    options = parser.parse_args()
    print(
        "| weights | changed by a step | moved by all | mean distance | in float32's direction |\n|---|---|---|---|---|"
    )
    reference = None
    with Verifier() as verifier, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for way in options.ways:
            shares, moves = moved(way, options.steps, options.rate, verifier)
            reference = moves if reference is None else reference
            along = float(moves @ reference / (reference @ reference))
            found = f"{min(shares):.4f} to {max(shares):.4f} | {float((moves != 0).float().mean()):.4f}"
            print(f"| {way} | {found} | {float(moves.abs().mean()):.2e} | {along:.2f} |", flush=True)


if __name__ == "__main__":
    main()
