"""A run on several ranks: what one of them does for all, and what cannot be done there."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from gar.errors import ConfigError, GarError

Result = TypeVar("Result")


def is_main() -> bool:
    """Whether this is the process that speaks and writes."""
    return PartialState().is_main_process


def on_main(work: Callable[[], Result]) -> Result:
    """The result of `work` on all ranks, done by the main process while the others wait.

    Raises:
        SystemExit: On the other ranks, where it failed on the main process, which says why.
    """
    if PartialState().num_processes == 1:
        return work()
    outcome: list[Any] = [None, False]
    try:
        if is_main():
            outcome = [work(), True]
    finally:
        broadcast_object_list(outcome)
    if not outcome[1]:
        raise SystemExit(1)
    return outcome[0]


@contextmanager
def lost_rank_named() -> Iterator[None]:
    """Turn what a backend raises once another rank is gone into one sentence.

    Raises:
        GarError: A collective failed on several ranks.
    """
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, dist.DistError) or "gloo" in str(error)  # gloo raises a plain RuntimeError
        if PartialState().num_processes == 1 or not lost:
            raise
        state = PartialState()
        raise GarError(
            f"rank {state.process_index} of {state.num_processes} has lost another rank, and ends: "
            f"{str(error).partition(chr(10))[0]:.200} What ended that one stands in its own output or the launcher's. "
            "The run can be resumed under the same launcher with --resume."
        ) from error


def leave_ranks() -> None:
    """Close the process group of a job that is done; its threads, left running, may abort the process at its exit."""
    PartialState().destroy_process_group()


def check_ranks(args: Any, *, generates_on_main: bool) -> None:
    """Refuse a launch that would train something else, or wait forever.

    Args:
        args: A `trl.GRPOConfig`; making it formed the process group.
        generates_on_main: The run samples outside of training, for a preflight or an evaluation.

    Raises:
        ConfigError: The launcher's processes do not know each other, or ranks hold shards of a model that the main
            process would have to run alone.
    """
    announced = int(os.environ.get("WORLD_SIZE", "1"))
    if announced != PartialState().num_processes:
        raise ConfigError(
            f"the launcher announces {announced} processes (WORLD_SIZE), and {PartialState().num_processes} found each "
            "other. Start them with torchrun or accelerate launch, or unset WORLD_SIZE."
        )
    sharded = [
        name
        for name, variable, setting in (
            ("FSDP", "ACCELERATE_USE_FSDP", args.fsdp),
            ("DeepSpeed", "ACCELERATE_USE_DEEPSPEED", args.deepspeed),
        )
        if setting or os.environ.get(variable, "false").lower() == "true"
    ]
    if sharded and generates_on_main:
        raise ConfigError(
            f"{sharded[0]} shards the model over ranks, and preflight and evaluation sample from it on one: that would "
            "wait forever. Set preflight.mode to off and evaluate.sources to [], and evaluate the saved model, or "
            "train with DDP, which needs no setting."
        )
