"""A run on several ranks: work of the main process for all, and launches that are rejected."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch.distributed as dist
from accelerate import Accelerator, PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor
from transformers.integrations import is_deepspeed_zero3_enabled

from gar.errors import ConfigError, LostRankError, first_line
from gar.step import StepRanks

Result = TypeVar("Result")


class TrlRanks(StepRanks):
    """A Trainer's processes, with equally many responses each."""

    def __init__(self, accelerator: Accelerator):
        self._accelerator = accelerator

    def gather(self, items: list[Any]) -> tuple[list[Any], int]:
        """As `StepRanks`."""
        return gather_object(items), self._accelerator.process_index * len(items)

    def sum(self, values: Tensor) -> Tensor:
        """As `StepRanks`."""
        if self._accelerator.num_processes == 1:
            return values
        total = self._accelerator.reduce(values.to(self._accelerator.device), reduction="sum")
        return cast(Tensor, total).to(values.device)


def gathered_on_main(items: list[Any]) -> list[Any]:
    """The items of all ranks, in the order of the ranks, on the main process. None elsewhere."""
    state = PartialState()
    if state.num_processes == 1:
        return items
    parts: list[Any] | None = [None] * state.num_processes if state.is_main_process else None
    dist.gather_object(items, parts)
    return [item for part in parts or [] for item in part]


def is_main() -> bool:
    """Whether this process prints and writes."""
    return PartialState().is_main_process


def on_main(work: Callable[[], Result]) -> Result:
    """The result of `work` on all ranks, done by the main process. If it fails, the other ranks exit with 1."""
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
    """Raise a `LostRankError` if the backend has lost another rank."""
    try:
        yield
    except RuntimeError as error:
        lost, state = isinstance(error, dist.DistError) or "gloo" in str(error), PartialState()  # gloo has no own error
        if state.num_processes == 1 or not lost or isinstance(error, LostRankError):
            raise
        raise LostRankError(
            f"rank {state.process_index} of {state.num_processes} has lost another rank, and ends: "
            f"{first_line(error):.200} See that rank's log for the cause. The run can be resumed under the same "
            "launcher with --resume."
        ) from error


def leave_ranks() -> None:
    """Close the process group of a finished job, if accelerate has made it, and wait for its threads.

    A thread that is left could abort the process at exit. Groups live as long as something holds them: the trainer's
    model does, until Python collects the trainer. vLLM closes its groups first, since they are parts of this one.
    """
    if PartialState().num_processes == 1:  # a group, if there is one, belongs to somebody else
        return
    gc.collect()
    vllm = sys.modules.get("vllm.distributed.parallel_state")
    if vllm is not None:
        vllm.destroy_model_parallel()
        vllm.destroy_distributed_environment()
    PartialState().destroy_process_group()


def check_ranks(args: Any) -> None:
    """Reject a launch that would train copies of the model, or wait forever."""
    if args.n_gpu > 1:
        raise ConfigError(
            f"one process sees {args.n_gpu} GPUs, and would train on copies of the model. GAR does not read the hidden "
            "states of copies. Start one process per GPU: accelerate launch --multi_gpu --num_processes "
            f"{args.n_gpu} -m gar train ..., or show it one GPU: CUDA_VISIBLE_DEVICES=0 gar train ...",
            code="several-gpus",
        )
    announced = int(os.environ.get("WORLD_SIZE", "1"))
    if announced != PartialState().num_processes:
        raise ConfigError(
            f"the launcher announces {announced} processes (WORLD_SIZE), and {PartialState().num_processes} found each "
            "other. Start them with torchrun or accelerate launch, or unset WORLD_SIZE.",
            code="lost-processes",
        )


def shards_by(args: Any) -> str:
    """What spreads the model over ranks in training: "FSDP", "ZeRO-3", or "" for nothing."""
    if args.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        return "FSDP"
    return "ZeRO-3" if is_deepspeed_zero3_enabled() else ""


def refuse_sharded_adapter(args: Any) -> None:
    """Reject training an adapter on shards: at the end one process writes it, and merges it with the whole model."""
    if name := shards_by(args):
        raise ConfigError(
            f"{name} spreads the model over ranks, and gar train writes and merges an adapter "
            "on one of them, which has parts of it. Train all weights, or without shards: DDP, or ZeRO-2.",
            code="sharded",
        )


def refuse_sharded_evaluation(args: Any) -> None:
    """Reject an evaluation in the middle of training on shards, unless vLLM in colocate mode samples."""
    if (name := shards_by(args)) and not (args.use_vllm and args.vllm_mode == "colocate"):
        raise ConfigError(
            f"evaluate.eval_steps asks for evaluations during training, when {name} spreads the model over ranks, and "
            "one of them samples. Set it to 0: before training the model is whole, and afterwards the saved one is "
            "measured. Or let vLLM sample: --trl.use_vllm true --trl.vllm_mode colocate.",
            code="sharded",
        )


def check_saves_whole_model(accelerator: Any) -> None:
    """Reject ZeRO-3 if it would leave the final model in shards that only DeepSpeed can load."""
    name = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
    plugin = accelerator.state.deepspeed_plugin
    if plugin is not None and plugin.zero_stage == 3 and not plugin.hf_ds_config.is_true(name):
        raise ConfigError(
            f"{name} is not true in DeepSpeed's configuration: the final model would be left in shards. Set it, or "
            "give accelerate launch --zero3_save_16bit_model true.",
            code="sharded",
        )
