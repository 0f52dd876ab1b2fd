"""How the signal's cost grows: linearly where the count predicts it.

    python benchmarks/scale.py [--rounds 3] [--device cpu] [--divide 1]

One quantity is varied at a time around a base case. For the closed form: scored tokens, vocabulary, width, and pieces
(the same tokens as more responses, which should cost the same). For a group with captured hidden states: its
responses, the pass rate in percent, and the span. For anchors (each a forward pass of a small Qwen3 and the closed
form): their number. Fits `seconds = a + b x` by least squares and prints R^2, b times the largest x over the measured
seconds there (1 if the cost is proportional to x, 0 if it does not depend on x, where R^2 is meaningless), and the
points. Writes results/scale-DEVICE.json.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import clock, machine, print_rows, write_json
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from gar.core import gradient_activation_means

BASE = dict(tokens=2048, vocab=16_384, width=256, pieces=8)
VARIED: dict[str, list[int]] = {
    "tokens": [512, 1024, 2048, 4096, 8192],
    "vocab": [4096, 8192, 16_384, 32_768, 65_536],
    "width": [64, 128, 256, 512],
    "pieces": [2, 8, 32, 128],
}
GROUP = dict(responses=16, pass_percent=50, span=256)
VARIED_IN_GROUP: dict[str, list[int]] = {
    "responses": [4, 8, 16, 32],
    "pass_percent": [25, 50, 75, 100],
    "span": [64, 128, 256, 512],
}
RESPONSE_TOKENS = 512
FLAT = 0.2
ANCHORS, ANCHOR_TOKENS = [1, 2, 4, 8], 256


def divide_sizes(by: int) -> None:
    """Smaller tokens, vocabulary and span, to try the script out."""
    for sizes in (VARIED, VARIED_IN_GROUP):
        for name in ("tokens", "vocab", "span"):
            if name in sizes:
                sizes[name] = [size // by for size in sizes[name]]
    for base in (BASE, GROUP):
        base.update({name: size // by for name, size in base.items() if name in ("tokens", "vocab", "span")})


def closed_form(device: str, *, tokens: int, vocab: int, width: int, pieces: int) -> Callable[[], Any]:
    hidden, weight, targets = random_case(device, tokens, vocab, width)
    index = torch.arange(tokens, device=device) * pieces // tokens
    return lambda: gradient_activation_means(hidden, weight, targets, index, num_responses=pieces)


def captured_group(device: str, *, responses: int, pass_percent: int, span: int) -> Callable[[], Any]:
    """The hidden states of all responses are given. The last `span` tokens of the right responses are scored."""
    hidden, weight, targets = random_case(device, responses * RESPONSE_TOKENS, BASE["vocab"], BASE["width"])
    eligible = round(responses * pass_percent / 100)
    index = torch.arange(eligible, device=device).repeat_interleave(span)

    def call() -> None:
        rows = (hidden.view(responses, RESPONSE_TOKENS, -1)[:eligible, -span:]).flatten(0, 1)
        ids = targets.view(responses, RESPONSE_TOKENS)[:eligible, -span:].flatten()
        gradient_activation_means(rows, weight, ids, index, num_responses=eligible)

    return call


def random_case(device: str, tokens: int, vocab: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, head and targets."""
    generator = torch.Generator(device).manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    weight = torch.randn(vocab, width, generator=generator, device=device).mul_(3 / width**0.5).to(dtype)
    hidden = torch.randn(tokens, width, generator=generator, device=device).to(dtype)
    return hidden, weight, torch.randint(vocab, (tokens,), generator=generator, device=device)


def anchors(device: str, number: int) -> Callable[[], Any]:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=BASE["vocab"], hidden_size=BASE["width"], intermediate_size=1024, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).to(device).eval()
    ids = torch.randint(BASE["vocab"], (number, ANCHOR_TOKENS), device=device)
    index = torch.arange(number, device=device).repeat_interleave(ANCHOR_TOKENS - 1)

    @torch.no_grad()
    def call() -> None:
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1].flatten(0, 1)
        gradient_activation_means(
            hidden, model.lm_head.weight.detach(), ids[:, 1:].flatten(), index, num_responses=number
        )

    return call


def line(xs: list[int], ys: list[float]) -> dict[str, float]:
    """Least squares, and how straight and how proportional the points are."""
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    slope, intercept = statistics.linear_regression(xs, ys)
    explained = sum((slope * (x - mean_x)) ** 2 for x in xs)
    total = sum((y - mean_y) ** 2 for y in ys)
    return {
        "slope": slope,
        "intercept": intercept,
        "r_squared": explained / total if total else 1.0,
        "proportional_part_at_the_largest": slope * xs[-1] / ys[-1],
    }


def run(device: str, rounds: int) -> dict[str, Any]:
    cases = {name: {x: closed_form(device, **BASE | {name: x}) for x in xs} for name, xs in VARIED.items()}
    cases |= {
        name: {x: captured_group(device, **GROUP | {name: x}) for x in xs} for name, xs in VARIED_IN_GROUP.items()
    }
    cases["anchors"] = {number: anchors(device, number) for number in ANCHORS}
    times: dict[str, dict[int, list[float]]] = {name: {x: [] for x in points} for name, points in cases.items()}
    for number in range(rounds + 1):  # the first is a warm-up
        for name, points in cases.items():
            for x, call in points.items():
                start = clock(device)
                call()
                if number:
                    times[name][x].append(clock(device) - start)
    result = {}
    for name, points in times.items():
        medians = {x: statistics.median(values) for x, values in points.items()}
        result[name] = {"seconds": medians, **line(list(medians), list(medians.values()))}
    return {"base": BASE, "group": GROUP, "varied": result, "rounds": rounds, "machine": machine()}


def print_table(result: dict[str, Any]) -> None:
    rows = []
    for name, fit in result["varied"].items():
        points = ", ".join(f"{x}: {y:.3g}" for x, y in fit["seconds"].items())
        proportional = fit["proportional_part_at_the_largest"]
        straight = f"{fit['r_squared']:.3f}" if proportional > FLAT else "-"
        rows.append([name, straight, f"{proportional:.2f}", points])
    print_rows("Cost by size", ["varied", "R^2", "proportional part", "seconds at each"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--divide", type=int, default=1, help="tokens, vocabulary and span, to try the script out")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    divide_sizes(arguments.divide)
    result = run(arguments.device, arguments.rounds)
    print_table(result)
    write_json(arguments.out or Path(f"results/scale-{arguments.device}.json"), result)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
