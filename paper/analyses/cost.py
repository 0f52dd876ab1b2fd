"""Operations that gradient-aligned rewards add to a training step, counted from the shape of a model.

    python -m paper.analyses.cost --model Qwen/Qwen3-8B [--tokens 8192 --gpus 8]

No weights are loaded and nothing is timed. A matrix product of a parameter with a token counts as two operations,
attention as that of a causal model. Everything else is left out. Time is proportional to the count where matrix
products fill the device.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from gar.models import model_path

SignalRoute = Literal["released", "forward", "captured"]
"""Source of the vectors. released: a forward and backward pass through all logits for each correct response and anchor,
as in the paper's code. forward: one pass over the scored sequences, then the closed form. captured: hidden states of
the log-prob pass, or of sampling without such a pass.
"""

_QWEN3 = {
    "Qwen/Qwen3-0.6B": (1024, 3072, 28, 16),
    "Qwen/Qwen3-1.7B": (2048, 6144, 28, 16),
    "Qwen/Qwen3-4B": (2560, 9728, 36, 32),
    "Qwen/Qwen3-8B": (4096, 12288, 36, 32),
    "Qwen/Qwen3-14B": (5120, 17408, 40, 40),
    "Qwen/Qwen3-32B": (5120, 25600, 64, 64),
}
"""Known without a network: hidden size, intermediate size, layers, query heads (of 128, with 8 key-value heads).
Up to 4B the head is the embedding."""

_QWEN3_MOE = {"Qwen/Qwen3-235B-A22B": (4096, 1536, 94, 64, 128, 8)}
"""Likewise: hidden size, an expert's intermediate size, layers, query heads (with 4 key-value heads), experts, experts
per token."""

STATE_BYTES = 16
"""Bytes of a trained parameter: weight and gradient in bfloat16, weight and two moments of Adam in float32."""


class ModelShape(NamedTuple):
    """Sizes of a model.

    Attributes:
        body_parameters: Those that a token passes through, without embeddings and LM head.
        layers: Attention layers.
        attention_width: Query heads times their width.
        hidden: Width of the hidden state.
        vocab: Rows of the LM head.
        all_parameters: With embeddings, LM head and every expert. 0 if not counted.
    """

    body_parameters: int
    layers: int
    attention_width: int
    hidden: int
    vocab: int
    all_parameters: int = 0


class GroupShape(NamedTuple):
    """One group's share of a training step, lengths in tokens. Means over groups need not be whole.

    Attributes:
        responses: K.
        response_tokens: Mean length of a response.
        prompt_tokens: Length of the prompt.
        span_tokens: Scored tokens of a response, at most its length.
        pass_rate: Share of the responses that are scored.
        anchors: Expert solutions of the problem that they are compared with.
        anchor_tokens: Mean length of an anchor.
        updates: Optimizer steps on the same responses.
        log_prob_pass: Whether a pass over all responses precedes the update.
        checkpointing: Whether the backward pass computes activations again.
    """

    responses: int = 16
    response_tokens: float = 1024
    prompt_tokens: float = 200
    span_tokens: float = 768
    pass_rate: float = 0.4
    anchors: float = 1
    anchor_tokens: float = 400
    updates: int = 1
    log_prob_pass: bool = True
    checkpointing: bool = True


def model_shape(name: str) -> ModelShape:
    """The shape of a model, named as `ModelSettings.path` names it.

    Parameters are counted on a model without storage. Of a mixture of experts a token passes through as many experts
    from its configuration. Qwen3 needs no network.

    Raises:
        ValueError: The configuration lacks the number of experts that a token passes through.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = _config(name)
    text = config.get_text_config()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    embeddings = {
        id(p): p.numel() for m in (model.get_input_embeddings(), model.get_output_embeddings()) for p in m.parameters()
    }
    head_width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    everything = sum(p.numel() for p in model.parameters())
    experts = sum(p.numel() for parameter, p in model.named_parameters() if ".experts." in parameter)
    idle = round(experts * (1 - _used_experts(name, text, experts))) if experts or _num_experts(text) else 0
    return ModelShape(
        body_parameters=everything - idle - sum(embeddings.values()),
        layers=text.num_hidden_layers,
        attention_width=text.num_attention_heads * head_width,
        hidden=text.hidden_size,
        vocab=text.vocab_size,
        all_parameters=everything,
    )


def _config(name: str) -> Any:
    """A model's configuration, from this file or from where the model lies."""
    from transformers import AutoConfig, Qwen3Config, Qwen3MoeConfig

    common: dict[str, Any] = {"vocab_size": 151_936, "head_dim": 128}
    if name in _QWEN3 and not Path(name).exists():
        hidden, intermediate, layers, heads = _QWEN3[name]
        return Qwen3Config(
            **common, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=8, tie_word_embeddings=hidden <= 2560,
        )  # fmt: skip
    if name in _QWEN3_MOE and not Path(name).exists():
        hidden, intermediate, layers, heads, experts, used = _QWEN3_MOE[name]
        return Qwen3MoeConfig(
            **common, hidden_size=hidden, moe_intermediate_size=intermediate, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=4, num_experts=experts, num_experts_per_tok=used,
        )  # fmt: skip
    return AutoConfig.from_pretrained(model_path(name))


def _num_experts(text: Any) -> int:
    return getattr(text, "num_experts", None) or getattr(text, "num_local_experts", None) or 0


def _used_experts(name: str, text: Any, parameters: int) -> float:
    """The share of its experts that a token passes through."""
    used, number = getattr(text, "num_experts_per_tok", None), _num_experts(text)
    if not used or not number or not parameters:
        raise ValueError(
            f"'{name}' is a mixture of experts, and its configuration lacks the number that a token passes through. "
            "Count a dense model of its active size."
        )
    return used / number


def forward_operations(model: ModelShape, tokens: float, logit_tokens: float) -> float:
    """Operations of a forward pass over one sequence, with logits at `logit_tokens` of its positions."""
    attention = 2.0 * model.attention_width * model.layers * tokens**2
    return 2.0 * model.body_parameters * tokens + attention + head_operations(model, logit_tokens)


def head_operations(model: ModelShape, tokens: float) -> float:
    """Operations of one product of the LM head with `tokens` hidden states."""
    return 2.0 * model.hidden * model.vocab * tokens


def states_bytes(model: ModelShape, group: GroupShape) -> float:
    """Bytes of the hidden states of a group's responses in bfloat16."""
    return 2.0 * model.hidden * group.responses * group.response_tokens


def step_operations(model: ModelShape, group: GroupShape) -> float:
    """Operations of a training step on one group, without generation.

    Raises:
        ValueError: A number is out of range.
    """
    _check(model, group)
    forward = forward_operations(model, group.prompt_tokens + group.response_tokens, group.response_tokens)
    passes = group.log_prob_pass + group.updates * (4 if group.checkpointing else 3)
    return group.responses * passes * forward


def signal_operations(model: ModelShape, group: GroupShape, route: SignalRoute) -> float:
    """Operations that the signal adds to a training step on one group.

    Raises:
        ValueError: A number is out of range, or the route is unknown.
    """
    _check(model, group)
    if route not in get_args(SignalRoute):
        raise ValueError(f"route must be one of {', '.join(get_args(SignalRoute))}, got {route!r}")
    scored = group.responses * group.pass_rate
    whole = group.prompt_tokens + group.response_tokens
    expert = group.prompt_tokens + group.anchor_tokens
    if route == "released":
        passes = [(scored, whole), (group.anchors, expert)]
        return sum(
            number * (forward_operations(model, tokens, tokens) + 2 * head_operations(model, tokens))
            for number, tokens in passes
        )
    anchors = group.anchors * (
        forward_operations(model, expert, 0) + 2 * head_operations(model, min(group.span_tokens, group.anchor_tokens))
    )
    span = min(group.span_tokens, group.response_tokens)
    vectors = scored * 2 * head_operations(model, span)
    return anchors + vectors + (scored * forward_operations(model, whole, 0) if route == "forward" else 0.0)


def signal_share(model: ModelShape, group: GroupShape, route: SignalRoute, *, generation_share: float = 0.0) -> float:
    """The signal's operations per operation of the step, as the paper's +8.3%.

    Args:
        model: The policy.
        group: A group of the step.
        route: Where the vectors come from.
        generation_share: Part of the step's time that generation takes: 0 leaves generation out.

    Raises:
        ValueError: As `signal_operations`, or the share is out of range.

    Example:
        >>> qwen3_8b = ModelShape(
        ...     body_parameters=6_945_767_424, layers=36, attention_width=4096, hidden=4096, vocab=151_936
        ... )
        >>> [round(100 * signal_share(qwen3_8b, GroupShape(), route), 2) for route in ("released", "captured")]
        [10.12, 1.45]
    """
    if not 0 <= generation_share < 1:
        raise ValueError(f"generation_share must be in [0, 1), got {generation_share}")
    return (1 - generation_share) * signal_operations(model, group, route) / step_operations(model, group)


def _check(model: ModelShape, group: GroupShape) -> None:
    for shape in (model, group):
        for name, value in shape._asdict().items():
            least = 0 if name in ("anchors", "anchor_tokens", "prompt_tokens", "pass_rate", "all_parameters") else 1
            if value < least and not isinstance(value, bool):
                raise ValueError(f"{name} must be at least {least}, got {value}")
    if group.pass_rate > 1:
        raise ValueError(f"pass_rate must be at most 1, got {group.pass_rate}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the share of each route in a step, and the seconds and memory of a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-8B", help="Hub id or folder; Qwen3 needs no network")
    default = GroupShape()
    for flag, name in (("--tokens", "response_tokens"), ("--pass-rate", "pass_rate"), ("--updates", "updates")):
        value = getattr(default, name)
        parser.add_argument(flag, dest=name, type=type(value), default=value, help=f"({value})")
    parser.add_argument("--generation-share", type=float, default=0.0, help="of the step's time (0)")
    parser.add_argument("--problems", type=int, default=128, help="groups of a step (128)")
    parser.add_argument("--gpus", type=int, default=1, help="(1)")
    parser.add_argument("--tflops", type=float, default=400.0, help="TFLOP/s that a GPU reaches (400)")
    options = parser.parse_args(arguments)
    group = default._replace(**{name: getattr(options, name) for name in ("response_tokens", "pass_rate", "updates")})
    shape = model_shape(options.model)
    step = step_operations(shape, group) * options.problems / options.gpus / options.tflops / 1e12
    print(
        f"{options.model}: {shape.body_parameters / 1e9:.3g} billion parameters that a token passes through, and a "
        f"head of {shape.vocab} x {shape.hidden}. Training state: {_amount(shape.all_parameters * STATE_BYTES / 1e9)} "
        f"GB.\nA step without generation: {_amount(step)} s. Hidden states of a group, where they are kept: "
        f"{_amount(states_bytes(shape, group) / 1e9)} GB.\n\nroute     of a step  seconds"
    )
    for route in get_args(SignalRoute):
        share = signal_share(shape, group, route, generation_share=options.generation_share)
        print(f"{route:<10}{share:>9.2%}  {_amount(signal_share(shape, group, route) * step)}")


def _amount(value: float) -> str:
    """The number with three significant digits, whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
