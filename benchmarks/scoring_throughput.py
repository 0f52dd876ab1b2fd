"""Speed of GARScorer, which batches by length, compared with scoring one by one, interleaved in one run.

    python benchmarks/scoring_throughput.py [--responses 2000] [--rounds 2]

2,000 responses of 16 to 768 tokens (lognormal, seeded) to 250 prompts, a model with two layers of random weights, one
thread. Three ways to the same alignments:

* one by one: a forward pass for each response and anchor, through the closed form;
* one by one, autograd: a loop without this package, with a backward pass per response through the head (on every tenth
  group);
* batched: `GARScorer` with several values of `signal.max_batch_tokens`.

Prints response tokens per second (of the process's CPU time, so that other load on the machine matters little),
ratios within a round, padded share and peak memory, checks that all ways agree, and writes
results/scoring-throughput.json. Absolute numbers mean little. The ratios are the result.
"""

import argparse
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from common import machine, print_rows, resident_bytes, shown, spread, write_json
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from gar import GARScorer, ResponseGroup, SignalSettings, TokenSequence
from gar.core import alignment_scores, unit_rows
from gar.models import ModelParts, find_parts, load_embedded
from gar.scoring import batches_by_length, signal_means

MAX_BATCH_TOKENS = (1024, 4096, 16384, 65536)
DEFAULT = SignalSettings().max_batch_tokens
ONE_BY_ONE, AUTOGRAD = "one by one", "one by one, autograd"
GROUP_SIZE = 8
AUTOGRAD_EVERY = 10
VOCAB = 1024
AGREEMENT = 1e-4
"""Largest difference of two alignments: float32 forward passes in batches of other shapes."""

Way = Callable[[Sequence[ResponseGroup]], list[float]]


def tiny_model() -> Qwen3ForCausalLM:
    """The embedded model's widths with half its layers, a longer context and a larger head."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        initializer_range=0.08,
    )
    return Qwen3ForCausalLM(config).eval()


def draw_groups(num_responses: int, token_ids: Sequence[int]) -> list[ResponseGroup]:
    """Groups of eight with one anchor each. 16 to 64 tokens a prompt, 16 to 768 a response or anchor."""
    rng = random.Random(0)

    def text() -> list[int]:
        length = min(768, max(16, round(rng.lognormvariate(math.log(96), 0.8))))
        return rng.choices(token_ids, k=length)

    return [
        ResponseGroup(
            prompt=rng.choices(token_ids, k=rng.randint(16, 64)),
            responses=[text() for _ in range(GROUP_SIZE)],
            anchors=[text()],
            eligible=[True] * GROUP_SIZE,
        )
        for _ in range(num_responses // GROUP_SIZE)
    ]


def score_one_by_one(groups: Sequence[ResponseGroup], mean_of: Callable[[Any, Any], Tensor]) -> list[float]:
    """A loop that a user would write: each anchor, each response, their cosine."""
    alignments = []
    for group in groups:
        anchor = unit_rows(mean_of(group.prompt, group.anchors[0])[None])
        for response in group.responses:
            vector = unit_rows(mean_of(group.prompt, response)[None])
            alignments.append(float(alignment_scores(vector, anchor)))
    return alignments


def closed_form_mean(parts: ModelParts, prompt: list[int], ids: list[int]) -> Tensor:
    """Mean vector of one sequence: the package's own, a batch of one."""
    sequence = TokenSequence(context_ids=prompt, ids=ids, positions=range(len(ids)))
    return signal_means(parts, [sequence], SignalSettings())[0]


def autograd_mean(model: Qwen3ForCausalLM, prompt: list[int], ids: list[int]) -> Tensor:
    """Mean vector of one sequence, from the definition: the loss's gradient at the hidden states, times these."""
    tokens = torch.tensor([[*prompt, *ids]])
    with torch.no_grad():
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state[0, len(prompt) - 1 : -1]
    hidden.requires_grad_()
    loss = torch.nn.functional.cross_entropy(model.lm_head(hidden), tokens[0, len(prompt) :], reduction="sum")
    (gradient,) = torch.autograd.grad(loss, hidden)
    return (gradient * hidden).detach().mean(dim=0)


def score_batched(scorer: GARScorer, groups: Sequence[ResponseGroup]) -> list[float]:
    return [math.nan if score.alignment is None else score.alignment for score in scorer.score(groups)]


def all_ways() -> tuple[dict[str, Way], list[int]]:
    """The measured cases by name, smaller batches first, and the token ids to draw from."""
    model, (_, tokenizer) = tiny_model(), load_embedded()
    parts = find_parts(model)
    ways: dict[str, Way] = {
        AUTOGRAD: lambda groups: score_one_by_one(groups, lambda *text: autograd_mean(model, *text)),
        ONE_BY_ONE: lambda groups: score_one_by_one(groups, lambda *text: closed_form_mean(parts, *text)),
    }
    for size in MAX_BATCH_TOKENS:
        scorer = GARScorer(model, tokenizer, signal=SignalSettings(max_batch_tokens=size))
        ways[str(size)] = lambda groups, scorer=scorer: score_batched(scorer, groups)
    return ways, [token for token in tokenizer.get_vocab().values() if token not in tokenizer.all_special_ids]


def num_tokens(groups: Sequence[ResponseGroup]) -> int:
    return sum(len(response) for group in groups for response in group.responses)


def padded_fraction(groups: Sequence[ResponseGroup], max_batch_tokens: int) -> float:
    """Share of the columns of all forward passes that hold padding."""
    lengths = [len(g.prompt) + len(text) - 1 for g in groups for text in (*g.responses, *g.anchors)]
    batches = batches_by_length(lengths, max_batch_tokens)
    columns = sum(max(lengths[i] for i in batch) * len(batch) for batch in batches)
    return 1 - sum(lengths) / columns


def measure(way: Way, groups: Sequence[ResponseGroup]) -> tuple[list[float], float, int | None]:
    """Alignments, response tokens per second of CPU time, and peak memory."""
    if resident_bytes("VmHWM") is not None:
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    start = time.process_time()
    alignments = way(groups)
    return alignments, num_tokens(groups) / (time.process_time() - start), resident_bytes("VmHWM")


def run(num_responses: int, rounds: int) -> dict[str, Any]:
    """All measurements, A B C A B C."""
    ways, token_ids = all_ways()
    groups = draw_groups(num_responses, token_ids)
    few = groups[::AUTOGRAD_EVERY]
    for way in ways.values():
        way(groups[:1])  # warm-up
    baseline = resident_bytes("VmRSS")
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    peaks: dict[str, list[int]] = {name: [] for name in ways}
    alignments: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            alignments[name], speed, peak = measure(way, few if name == AUTOGRAD else groups)
            speeds[name].append(speed)
            peaks[name] += [peak - baseline] if peak is not None and baseline is not None else []
    expected = alignments[ONE_BY_ONE]
    differences = {name: largest_difference(expected, alignments[name]) for name in ways if name != ONE_BY_ONE}
    if not max(differences.values()) <= AGREEMENT:
        raise SystemExit(f"The ways disagree by up to {differences}, expected at most {AGREEMENT}.")
    ratios = {name: [a / b for a, b in zip(speeds[name], speeds[ONE_BY_ONE], strict=True)] for name in ways}
    return {
        "tokens_per_second": {name: statistics.median(values) for name, values in speeds.items()},
        "ratio_to_one_by_one": {name: spread(values) for name, values in ratios.items()},
        "padded_fraction": {str(size): padded_fraction(groups, size) for size in MAX_BATCH_TOKENS},
        # The allocator keeps the memory of larger batches, so the smallest peak of all rounds counts.
        "peak_bytes": {name: min(values) for name, values in peaks.items() if values},
        "largest_alignment_difference": max(differences.values()),
        "machine": machine(),
        "settings": {"responses": GROUP_SIZE * len(groups), "problems": len(groups), "rounds": rounds,
                     "response_tokens": num_tokens(groups), "default_max_batch_tokens": DEFAULT},
    }  # fmt: skip


def largest_difference(expected: Sequence[float], actual: Sequence[float]) -> float:
    """Largest difference between two lists of alignments. A shorter list covers every tenth group."""
    if len(actual) < len(expected):
        groups = [expected[i : i + GROUP_SIZE] for i in range(0, len(expected), GROUP_SIZE)]
        expected = [value for group in groups[::AUTOGRAD_EVERY] for value in group]
    return max(abs(a - b) if math.isfinite(b) else math.inf for a, b in zip(expected, actual, strict=True))


def print_result(result: dict[str, Any]) -> None:
    settings, rows = result["settings"], []
    for name, speed in result["tokens_per_second"].items():
        label = f"batched, {name}" + (", default" if name == str(DEFAULT) else "") if name.isdigit() else name
        padded = f"{result['padded_fraction'][name]:.1%}" if name.isdigit() else "-"
        peak = f"{result['peak_bytes'][name] / 2**20:.0f}" if name in result["peak_bytes"] else "-"
        rows.append([label, f"{speed:.0f}", shown(result["ratio_to_one_by_one"][name]), padded, peak])
    title = f"{settings['responses']} responses, {settings['response_tokens']} tokens"
    notes = [f"Largest difference of two alignments: {result['largest_alignment_difference']:.1e}"]
    print_rows(title, ["way", "tokens/s", "ratio to one by one", "padded", "peak MiB"], rows, notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=2000, help="a multiple of 8")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/scoring-throughput.json"))
    arguments = parser.parse_args()
    if arguments.responses < GROUP_SIZE or arguments.responses % GROUP_SIZE:
        parser.error(f"--responses must be a positive multiple of {GROUP_SIZE}, got {arguments.responses}")
    torch.set_num_threads(1)
    result = run(arguments.responses, arguments.rounds)
    print_result(result)
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
