"""`gar cost`: operations that the signal adds to a training step, counted from shapes."""

import argparse
from collections.abc import Sequence

from gar.cli.parser import Parser
from gar.errors import ConfigError
from gar.models.cost import (
    STATE_BYTES,
    GroupShape,
    ModelShape,
    SignalRoute,
    signal_share,
    states_bytes,
    step_operations,
)

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
    """Run `gar cost`."""
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
        "--generation-share", type=float, default=0.0, metavar="N", help="share of the step spent on generation (0)"
    )
    for flag, kind, default, text in (
        ("--problems", int, 128, "groups of a step"),
        ("--gpus", int, 1, "GPUs that share a step"),
        ("--tflops", float, 400.0, "TFLOP/s that a GPU reaches in training; an H100 has at most 989 in bfloat16"),
    ):
        parser.add_argument(flag, type=kind, default=default, metavar="N", help=f"{text} ({default:g})")
    parser.add_argument("--no-checkpointing", action="store_true", help="activations are kept, not recomputed")
    parser.add_argument("--no-log-prob-pass", action="store_true", help="leave that pass out, as on policy")
    options = parser.parse_args(list(arguments))
    group = GroupShape(
        **{name: getattr(options, name) for name in GroupShape._fields if hasattr(options, name)},
        checkpointing=not options.no_checkpointing,
        log_prob_pass=not options.no_log_prob_pass,
    )
    from gar.models.cost import model_shape

    shape = model_shape(options.model)
    try:
        _print(options, shape, group)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return 0


def _print(options: argparse.Namespace, shape: ModelShape, group: GroupShape) -> None:
    from rich.console import Console
    from rich.table import Table

    from gar.settings import SignalSettings

    if min(options.problems, options.gpus, options.tflops) <= 0:
        raise ValueError("--problems, --gpus and --tflops must be above 0")
    step = step_operations(shape, group)
    step_seconds = step * options.problems / options.gpus / options.tflops / 1e12
    table = Table("route", "of a step", "seconds", "where the vectors come from")
    for route, text in _ROUTES.items():
        if route == "logits" and not group.log_prob_pass:
            continue
        share = signal_share(shape, group, route, generation_share=options.generation_share)
        seconds = signal_share(shape, group, route) * step_seconds
        table.add_row(route, f"{share:.2%}", _amount(seconds), text)
    body, everything = shape.body_parameters, shape.all_parameters
    active = " active" if everything - body - 2 * shape.vocab * shape.hidden > 0 else ""  # of a mixture of experts
    lines = (
        f"{options.model}: {body / 1e9:.3g} billion{active} parameters in {shape.layers} layers, and a head of "
        f"{shape.vocab} x {shape.hidden}.",
        f"Training state: {_amount(everything * STATE_BYTES / 1e9)} GB for {everything / 1e9:.3g} billion parameters "
        f"in all ({STATE_BYTES} bytes each), before activations.",
        f"A group's step without generation: {_amount(step / 1e12)} TFLOP.",
        f"{options.problems} groups on {options.gpus} GPUs at {options.tflops:g} TFLOP/s each: {_amount(step_seconds)} "
        "seconds, counted, not measured.",
        f"Memory of the signal: {SignalSettings().memory_bytes / 2**20:.0f} MiB for the closed form, and "
        f"{_amount(states_bytes(shape, group) / 1e9)} GB of hidden states for a group where they are kept (captured).",
    )
    console = Console(highlight=False)
    console.print("\n".join(lines), markup=False)
    console.print(table)
    if options.generation_share:
        console.print(f"Of a step that spends {options.generation_share:.0%} of its time on generation.")


def _amount(value: float) -> str:
    """The number with three significant digits; from 100 on, as a whole number."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
