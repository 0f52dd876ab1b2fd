"""Sampling for preflight and evaluations from a policy that ranks may hold in shards, or that vLLM samples from.

The main process works. If others are needed, they join each call of `generate` with the same random numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, cast

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, send_to_device
from transformers.integrations import is_deepspeed_zero3_enabled
from trl.distributed import DistributedBackend
from trl.models import unwrap_model_for_generation

from gar.errors import GarError
from gar.integrations.trl.ranks import Result, is_main, on_main
from gar.integrations.trl.vllm_generate import vllm_generate
from gar.models.families import is_sharded
from gar.rollouts.generate import generation_state


def sample_on_main(work: Callable[[], Result], model: Any, trainer: Any = None, vllm: Any = None) -> Result:
    """`on_main` for work that calls the unwrapped policy `model` through `generate` alone.

    Args:
        work: Samples.
        model: The policy.
        trainer: The trainer that has wrapped it, None before training.
        vllm: TRL's `VLLMGeneration`, which then samples in place of the model.
    """
    is_fsdp = trainer is not None and DistributedBackend(trainer.accelerator).is_fsdp
    if vllm is not None and (trainer is not None or not DistributedBackend(vllm.accelerator).is_fsdp):
        with vllm_generate(vllm) as generate:
            return _shared(work, model, generate)
    if PartialState().num_processes == 1 or not (is_fsdp or is_sharded(model) or is_deepspeed_zero3_enabled()):
        return on_main(work)
    with _as_trl_generates(model, trainer):
        return _shared(work, model, partial(model.generate, synced_gpus=True))


def _shared(work: Callable[[], Result], model: Any, generate: Callable[..., Any]) -> Result:
    """The result of `work`. All ranks make its calls of the model's `generate` together."""
    return _lead(work, model, generate) if is_main() else cast(Result, _follow(model, generate))


@contextmanager
def _as_trl_generates(model: Any, trainer: Any) -> Iterator[None]:
    """Parameters as TRL has them when it samples rollouts: whole under ZeRO-3, the root's whole under FSDP1."""
    if trainer is None:
        parameters = [parameter for parameter in model.parameters() if hasattr(parameter, "ds_id")]
        gathered = nullcontext()
        if parameters:  # `zero.Init` has spread them, and no DeepSpeed engine gathers them yet
            import deepspeed  # pyright: ignore[reportMissingImports]: it made the parameters

            gathered = deepspeed.zero.GatheredParameters(parameters)
        with gathered:
            yield
        return
    wrapped, accelerator, args = trainer.model_wrapped, trainer.accelerator, trainer.args
    with (
        unwrap_model_for_generation(
            wrapped,
            accelerator,
            gather_deepspeed3_params=getattr(args, "ds3_gather_for_generation", True),  # SFTConfig lacks it
            gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs,
        ),
        torch.no_grad(),
        DistributedBackend(accelerator).summon_full_params(wrapped, recurse=False),
    ):
        yield


def _lead(work: Callable[[], Result], model: Any, generate: Callable[..., Any]) -> Result:
    """Do the work. Announce each call of `generate`, and the end, to the other ranks."""
    outcome, others_wait = ("failed", None), True

    def generate_on_all(**inputs: Any) -> Any:
        nonlocal others_wait
        device = model.device
        random_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
        broadcast_object_list([("generate", (send_to_device(inputs, "cpu"), random_state))])
        try:
            return generate(**inputs)
        except BaseException as error:
            others_wait = isinstance(error, GarError)  # they raise it too. Other errors leave them in `generate`
            raise

    model.generate = generate_on_all
    try:
        result = work()
        outcome = ("done", result)
    finally:
        del model.generate
        if others_wait:
            broadcast_object_list([outcome])
    return result


def _follow(model: Any, generate: Callable[..., Any]) -> Any:
    """Make the main process's calls of `generate` with it, until its work has ended. Return its result."""
    device = model.device
    while True:
        message: list[Any] = [None]
        event, content = broadcast_object_list(message)[0]
        if event == "failed":
            raise SystemExit(1)
        if event == "done":
            return content
        inputs, random_state = content
        with (
            generation_state(model, inputs["generation_config"], seed=0),
            suppress(GarError),  # NaN or a long prompt, which the main process reports
        ):
            if device.type == "cuda":
                torch.cuda.set_rng_state(random_state, device)
            else:
                torch.set_rng_state(random_state)
            generate(**send_to_device(inputs, device))
