"""The generation of `gar eval run` beside a bare loop of `generate` over the same batches, with the embedded model.

    python benchmarks/evaluation.py [--samples 8] [--batch-size 256] [--rounds 3]

Each round runs the command, then the bare loop: the same prompts, random numbers and settings, and the responses
decoded. The command's seconds are from its first call of `generate` to its last, so they hold all that it does
between: decoding, cutting, writing and listing. Prints CPU seconds and their ratio.
"""

import argparse
import contextlib
import io
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
from common import machine, spread, write_json
from transformers import GenerationMixin

from gar.models import load_embedded


@contextlib.contextmanager
def watched_generate() -> Iterator[list[dict[str, Any]]]:
    """The calls of `generate` inside: when, with which arguments and random state."""
    mixin: Any = GenerationMixin
    generate, calls = mixin.generate, []

    def watched(model: Any, **arguments: Any) -> Any:
        state = torch.get_rng_state()
        calls.append({"start": time.process_time(), "state": state, "arguments": arguments})
        return generate(model, **arguments)

    with patch.object(GenerationMixin, "generate", watched):
        yield calls


def command(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run `gar eval run`. Returns its calls of `generate`."""
    with tempfile.TemporaryDirectory() as folder, watched_generate() as calls:
        sys.argv = [
            "gar", "eval", "run", "embedded", "--benchmark", "arithmetic",
            "--samples", str(arguments.samples), "--batch-size", str(arguments.batch_size),
            "--max-new-tokens", "48", "--out", folder,
        ]  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            runpy.run_module("gar", run_name="__main__")
    return calls


def bare_loop(calls: list[dict[str, Any]], model: Any, tokenizer: Any) -> float:
    """CPU seconds of the same calls, but for the last one, with nothing between them."""
    start = time.process_time()
    for call in calls[:-1]:
        torch.set_rng_state(call["state"])
        given = {name: call["arguments"][name] for name in ("input_ids", "attention_mask", "generation_config")}
        written = model.generate(**given)
        tokenizer.batch_decode(written[:, given["input_ids"].shape[1] :], skip_special_tokens=True)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=8, help="of each of the 200 problems")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/evaluation-cpu.json"))
    arguments = parser.parse_args()
    model, tokenizer = load_embedded()
    model.eval()
    ratios, seconds = [], []
    for _ in range(arguments.rounds):
        calls = command(arguments)
        if len(calls) < 2:
            raise SystemExit(f"got {len(calls)} batches, expected several: raise --samples or lower --batch-size.")
        ours = calls[-1]["start"] - calls[0]["start"]
        bare = bare_loop(calls, model, tokenizer)
        seconds.append({"gar eval run": ours, "bare loop": bare})
        ratios.append(ours / bare)
        print(
            f"{len(calls) - 1} batches: gar eval run {ours:.2f} s, bare loop {bare:.2f} s, {ours / bare:.2f} times",
            flush=True,
        )
    write_json(arguments.out, {"ratio": spread(ratios), "cpu_seconds": seconds, "machine": machine()})


if __name__ == "__main__":
    main()
