"""`gar cost`: operations that the signal adds to a training step, counted from shapes."""

import argparse
from collections.abc import Sequence

from gar.cli.parser import Parser
from gar.errors import ConfigError
from gar.models.cost import GroupShape, ModelShape, SignalRoute, signal_share, step_operations

_DESCRIPTION = """Count the floating-point operations that gradient-aligned rewards add to a
training step, from the shape of the model.

No weights are loaded and nothing is timed. Time on a GPU follows these numbers
where matrix products dominate.
"""

_ROUTES: dict[SignalRoute, str] = {
    "released": "the paper's code: a pass forward and back for each correct response",
    "forward": "a forward pass over correct responses, then the closed form",
    "captured": "hidden states of the log-prob pass; without one, of sampling",
    "logits": "hidden states and logits of the log-prob pass",
}


def main(arguments: Sequence[str]) -> int:
    """Run `gar cost`.

    Raises:
        ConfigError: A number is out of range.
        ModelError: The model's configuration cannot be loaded.
    """
    defaults = GroupShape()
    parser = Parser(
        prog="gar cost",
        description=_DESCRIPTION,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=80, max_help_position=28),
    )
    parser.add_argument(
        "--model", default="Qwen/Qwen3-8B", help="a Hub id, a folder, or embedded; Qwen3 needs no network"
    )
    for flag, name, text in (
        ("--responses", "responses", "responses of a group"),
        ("--tokens", "response_tokens", "tokens of a response"),
        ("--prompt-tokens", "prompt_tokens", "tokens of the prompt"),
        ("--span-tokens", "span_tokens", "scored tokens of a response"),
        ("--anchors", "anchors", "expert solutions of a problem; 0: vectors alone"),
        ("--anchor-tokens", "anchor_tokens", "tokens of an expert solution"),
        ("--updates", "updates", "optimiser steps on the same responses"),
        ("--pass-rate", "pass_rate", "share of the responses that are correct and well formatted"),
    ):
        default = getattr(defaults, name)
        parser.add_argument(
            flag, dest=name, type=type(default), default=default, metavar="N", help=f"{text} ({default})"
        )
    parser.add_argument(
        "--generation-share", type=float, default=0.0, metavar="N", help="part of the step that generation takes (0)"
    )
    parser.add_argument("--no-checkpointing", action="store_true", help="activations are kept, not computed again")
    parser.add_argument("--no-log-prob-pass", action="store_true", help="on policy without vLLM there is none")
    options = parser.parse_args(list(arguments))
    group = GroupShape(
        **{name: getattr(options, name) for name in GroupShape._fields if hasattr(options, name)},
        checkpointing=not options.no_checkpointing,
        log_prob_pass=not options.no_log_prob_pass,
    )
    from gar.models.cost import model_shape

    shape = model_shape(options.model)
    try:
        _print(options.model, shape, group, options.generation_share)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return 0


def _print(name: str, shape: ModelShape, group: GroupShape, generation_share: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("route", "of a step", "where the vectors come from")
    for route, text in _ROUTES.items():
        if route == "logits" and not group.log_prob_pass:
            continue
        share = signal_share(shape, group, route, generation_share=generation_share)
        table.add_row(route, f"{share:.2%}", text)
    console = Console()
    console.print(
        f"{name}: {shape.body_parameters / 1e9:.3g} billion parameters in {shape.layers} layers, and a head of "
        f"{shape.vocab} x {shape.hidden}."
    )
    tera = step_operations(shape, group) / 1e12
    amount = f"{tera:,.0f}" if tera >= 10 else f"{tera:.2g}"
    console.print(f"A group's step without generation: {amount} TFLOP.")
    console.print(table)
    if generation_share:
        console.print(f"Of a step that spends {generation_share:.0%} of its time on generation.")
