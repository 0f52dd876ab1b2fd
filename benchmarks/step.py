"""Cost of the signal in a training step, for a real model or a random Qwen3 with the head's share of an 8B model.

    python benchmarks/step.py [--rounds 2] [--response-tokens 1024] [--device cpu]
    python benchmarks/step.py --model smollm2 [--dtype bfloat16] --ways released forward captured

A step is a log-prob pass over one group, then forward and backward with checkpointing: 16 responses, 6 of them
eligible, prompt 200, response 1,024, the last 768 tokens scored, one anchor of 400. Generation is left out. A column
adds it at a share of 17%, at which the count is the paper's 8.3%. The ways to the vectors, interleaved in each round:

* released: as the paper's code, a forward and backward pass for each eligible response and the anchor, all logits;
* forward: one forward pass over eligible responses and anchor, then the closed form;
* captured: hidden states of the log-prob pass, then the closed form. The anchor has an extra pass.
* g2rl: the closed form for all responses, no anchor. grad2reward: a judge forward and back to the embeddings.

The share of a way is the seconds of its own sections over the seconds of the plain step in the same round. The table
also has the share that paper.analyses.cost counts, and for captured the difference of whole steps. CPU seconds of one
thread (GPU: seconds with synchronization). Below it stands the peak memory of the first plain step, beside what
docs/qwen3-on-a-gpu.md counts for weights, gradients and states (no optimizer). Writes results/step-DEVICE.json.
"""

import argparse
import copy
import os
import statistics
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, get_args

import torch
import torch.nn.functional as F
from common import clock, machine, peak_memory, print_rows, shown, spread, write_json
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import Qwen3Config, Qwen3ForCausalLM

from gar import ModelSettings
from gar.core import ScoredTokens, gradient_activation_means
from gar.models import load_policy
from paper.analyses.cost import GroupShape, ModelShape, SignalRoute, signal_share

GROUP = GroupShape(responses=16, response_tokens=1024, prompt_tokens=200, span_tokens=768, pass_rate=6 / 16)
MICRO_BATCH = 4
HEAD_ROWS = 1024
JUDGE_TOKENS = 60
GENERATION_SHARE = 0.17
WAYS = ("released", "forward", "captured", "g2rl", "grad2reward")
MODELS = {
    "tiny": dict(vocab_size=8192, hidden_size=256, intermediate_size=2368, num_hidden_layers=12,
                 num_attention_heads=4, num_key_value_heads=2, head_dim=64),
    "Qwen3-4B": dict(vocab_size=151_936, hidden_size=2560, intermediate_size=9728, num_hidden_layers=36,
                     num_attention_heads=32, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True),
    "Qwen3-8B": dict(vocab_size=151_936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
                     num_attention_heads=32, num_key_value_heads=8, head_dim=128),
}  # fmt: skip


class Bench:
    """One group of random tokens, a model, and a clock for the sections that belong to the signal."""

    def __init__(self, model_name: str, group: GroupShape, device: str, dtype: torch.dtype):
        torch.manual_seed(0)
        self.model: Any
        if model_name in MODELS:
            config = Qwen3Config(**MODELS[model_name], max_position_embeddings=8192)
            with torch.device(device):
                self.model = Qwen3ForCausalLM(config)
            with torch.no_grad():
                self.model.lm_head.weight.mul_(4)  # a peaked softmax
        else:
            self.model = load_policy(ModelSettings(path=model_name))[0].to(device)
        self.model = self.model.to(dtype)
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.judge: Any = None
        self.group, self.device = group, device
        vocab = self.model.config.vocab_size
        self.tokens = torch.randint(
            vocab, (group.responses, group.prompt_tokens + group.response_tokens), device=device
        )
        self.anchor = torch.randint(vocab, (1, group.prompt_tokens + group.anchor_tokens), device=device)
        self.eligible = range(round(group.responses * group.pass_rate))
        self.signal_seconds = 0.0

    def copy_judge(self) -> None:
        self.judge = copy.deepcopy(self.model).eval().requires_grad_(False)

    @property
    def weight(self) -> Tensor:
        return self.model.lm_head.weight

    def counted_bytes(self) -> int:
        """Weights, gradients and the states of a micro-batch, as docs/qwen3-on-a-gpu.md counts them."""
        config, size = self.model.config, self.weight.element_size()
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        one_layer = 8 * config.hidden_size + 3 * config.intermediate_size
        states = MICRO_BATCH * self.tokens.shape[1] * (config.hidden_size * config.num_hidden_layers + one_layer)
        return size * (2 * parameters + states)

    def shape(self) -> ModelShape:
        config, body = self.model.config, self.model.model
        parameters = sum(p.numel() for p in body.parameters()) - body.embed_tokens.weight.numel()
        width = config.num_attention_heads * config.head_dim
        return ModelShape(parameters, config.num_hidden_layers, width, config.hidden_size, config.vocab_size)

    def timed(self, section: Callable[[], Any]) -> Any:
        start = clock(self.device)
        result = section()
        self.signal_seconds += clock(self.device) - start
        return result

    # The step.

    @torch.no_grad()
    def log_prob_pass(self, receive: Callable[[int, Tensor], Any] | None = None, model: Any = None) -> None:
        """Log-probabilities of all responses. `receive` gets each micro-batch's hidden states of response tokens."""
        self.model.eval()
        for first in range(0, self.group.responses, MICRO_BATCH):
            tokens = self.tokens[first : first + MICRO_BATCH]
            hidden = self.response_hidden(tokens, model)
            for rows, ids in zip(
                hidden.flatten(0, 1).split(HEAD_ROWS), self.targets(tokens).split(HEAD_ROWS), strict=True
            ):
                F.cross_entropy(F.linear(rows, self.weight).float(), ids, reduction="none")
            if receive is not None:
                receive(first, hidden)

    def train(self) -> None:
        """Forward and backward of a loss with every part of a policy gradient."""
        self.model.train()
        for first in range(0, self.group.responses, MICRO_BATCH):
            tokens = self.tokens[first : first + MICRO_BATCH]
            hidden = self.response_hidden(tokens).flatten(0, 1)
            losses = [
                checkpoint(self.head_loss, rows, ids, use_reentrant=False)
                for rows, ids in zip(hidden.split(HEAD_ROWS), self.targets(tokens).split(HEAD_ROWS), strict=True)
            ]
            torch.stack(losses).sum().backward()
        self.model.zero_grad()

    def head_loss(self, rows: Tensor, ids: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(rows, self.weight).float(), ids, reduction="sum")

    def response_hidden(self, tokens: Tensor, model: Any = None) -> Tensor:
        states = (model or self.model).model(input_ids=tokens, use_cache=False).last_hidden_state
        return states[:, self.group.prompt_tokens - 1 : -1]

    def targets(self, tokens: Tensor) -> Tensor:
        return tokens[:, self.group.prompt_tokens :].flatten()

    # The ways to the vectors.

    def scored(self, hidden: Tensor, tokens: Tensor) -> ScoredTokens:
        """The scored tokens of a batch: the last span of each sequence, with the given hidden states."""
        span = min(self.group.span_tokens, hidden.shape[1])
        index = torch.arange(len(hidden), device=self.device).repeat_interleave(span)
        return ScoredTokens(hidden[:, -span:].flatten(0, 1), tokens[:, -span:].flatten(), index, len(hidden))

    def closed_form(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        rows, targets, index, count = self.scored(hidden, tokens)
        return gradient_activation_means(rows, self.weight.detach(), targets, index, num_responses=count)

    @torch.no_grad()
    def anchor_means(self) -> Tensor:
        self.model.eval()
        return self.closed_form(self.response_hidden(self.anchor), self.anchor)

    def captured(self, wanted: int) -> Callable[[int, Tensor], Any]:
        def receive(first: int, hidden: Tensor) -> None:
            count = max(0, min(len(hidden), wanted - first))
            if count:
                self.timed(lambda: self.closed_form(hidden[:count], self.tokens[first : first + count]))

        return receive

    @torch.no_grad()
    def forward(self) -> None:
        self.model.eval()
        for i in self.eligible:
            self.closed_form(self.response_hidden(self.tokens[i : i + 1]), self.tokens[i : i + 1])
        self.anchor_means()

    def released(self) -> None:
        self.model.eval()
        for tokens in (*self.tokens[: len(self.eligible), None], self.anchor):
            with torch.no_grad():
                states = self.model.model(input_ids=tokens, use_cache=False).last_hidden_state[0, :-1]
            hidden = states.requires_grad_()
            loss = F.cross_entropy(F.linear(hidden, self.weight).float(), tokens[0, 1:])
            torch.autograd.grad(loss, [hidden, self.weight])

    def judge_pass(self) -> None:
        for tokens in self.tokens[:, None]:
            longer = torch.cat([tokens, tokens[:, :JUDGE_TOKENS]], dim=1)
            embeddings = self.judge.model.embed_tokens(longer).detach().requires_grad_()
            states = self.judge.model(inputs_embeds=embeddings, use_cache=False).last_hidden_state[:, -1]
            torch.autograd.grad(self.judge.lm_head(states).float().log_softmax(-1)[0, 0], embeddings)


def run(
    model_name: str,
    group: GroupShape,
    device: str,
    rounds: int,
    dtype: torch.dtype = torch.float32,
    wanted: Collection[str] = WAYS,
) -> dict[str, Any]:
    bench = Bench(model_name, group, device, dtype)
    everyone, few = group.responses, len(bench.eligible)

    def step(receive: Callable[[int, Tensor], Any] | None = None) -> None:
        bench.log_prob_pass(receive)
        bench.train()

    def captured() -> None:
        step(bench.captured(few))
        bench.timed(bench.anchor_means)

    ways: dict[str, Callable[[], Any]] = {
        "plain": step,
        "captured": captured,
        "forward": lambda: bench.timed(bench.forward),
        "released": lambda: bench.timed(bench.released),
        "g2rl": lambda: bench.log_prob_pass(bench.captured(everyone)),
        "grad2reward": lambda: bench.timed(bench.judge_pass),
    }
    ways = {name: way for name, way in ways.items() if name == "plain" or name in wanted}
    weights = sum(parameter.numel() * parameter.element_size() for parameter in bench.model.parameters())
    beyond_weights = peak_memory(step, device)
    if "grad2reward" in ways:  # only now, as it would count in the peak
        bench.copy_judge()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    sections: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + (device == "cuda")):  # a GPU's first round is its warm-up
        for name, way in ways.items():
            bench.signal_seconds, start = 0.0, clock(device)
            way()
            if number >= (device == "cuda"):
                seconds[name].append(clock(device) - start)
                sections[name].append(bench.signal_seconds)
            print(
                f"round {number}, {name}: {clock(device) - start:.1f} s, {bench.signal_seconds:.2f} s for the signal",
                flush=True,
            )
    shape = bench.shape()
    shares = {
        name: spread([own / plain for own, plain in zip(sections[name], seconds["plain"], strict=True)])
        for name in list(ways)[1:]
    }
    predicted = {name: signal_share(shape, group, name) for name in get_args(SignalRoute) if name in ways}
    differences = [a / b - 1 for a, b in zip(seconds["captured"], seconds["plain"], strict=True)]
    return {
        "model": model_name, "dtype": str(dtype).removeprefix("torch."),
        "head_over_body": shape.hidden * shape.vocab / shape.body_parameters,
        "group": group._asdict(), "plain_step_seconds": statistics.median(seconds["plain"]),
        "share_of_the_step": shares, "predicted_share": predicted,
        "difference_of_whole_steps_captured": spread(differences),
        "peak_bytes": None if beyond_weights is None else weights + beyond_weights,
        "counted_bytes": bench.counted_bytes(), "rounds": rounds, "machine": machine(),
    }  # fmt: skip


def print_table(result: dict[str, Any]) -> None:
    rows = []
    for name, share in result["share_of_the_step"].items():
        counted = result["predicted_share"].get(name)
        beside = ("-", "-") if counted is None else (f"{counted:.2%}", f"{share['median'] / counted:.2f}")
        rows.append([name, shown(share, ".2%"), *beside, f"{share['median'] * (1 - GENERATION_SHARE):.2%}"])
    headings = ["way", "share of the step", "counted", "measured / counted", "with generation"]
    notes = [f"Whole steps, captured less plain: {shown(result['difference_of_whole_steps_captured'], '.2%')}"]
    if result["peak_bytes"] is not None:
        notes.append(f"Peak: {result['peak_bytes'] / 1e9:.2f} GB, counted {result['counted_bytes'] / 1e9:.2f} GB")
    title = f"{result['model']}, {result['dtype']}, a plain step of {result['plain_step_seconds']:.1f} s"
    print_rows(title, headings, rows, notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help=f"{', '.join(MODELS)}, or as gar train --model.path")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="default: float32 on a CPU")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="captured is always among them")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--response-tokens", type=int, default=GROUP.response_tokens)
    parser.add_argument("--prompt-tokens", type=int, default=GROUP.prompt_tokens)
    parser.add_argument("--anchor-tokens", type=int, default=GROUP.anchor_tokens)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--layers", type=int, help="of the body, if not the model's own: forms compare as well with one"
    )
    arguments = parser.parse_args()
    if arguments.layers:
        if arguments.model not in MODELS:
            parser.error(f"--layers goes with random weights: {', '.join(MODELS)}")
        MODELS[arguments.model]["num_hidden_layers"] = arguments.layers
    torch.set_num_threads(1)
    tokens = arguments.response_tokens
    group = GROUP._replace(
        response_tokens=tokens, span_tokens=min(GROUP.span_tokens, tokens),
        prompt_tokens=arguments.prompt_tokens, anchor_tokens=arguments.anchor_tokens,
    )  # fmt: skip
    dtype = getattr(torch, arguments.dtype or ("bfloat16" if arguments.device == "cuda" else "float32"))
    wanted = {*arguments.ways, "captured"}
    result = run(arguments.model, group, arguments.device, arguments.rounds, dtype, wanted)
    print_table(result)
    write_json(arguments.out or Path(f"results/step-{arguments.device}.json"), result)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
