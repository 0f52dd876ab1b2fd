"""What a process keeps between slime's hooks: the policy's chunks, and the inputs of its head in slime's own pass."""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from gar.errors import ConfigError, ModelError
from gar.integrations.megatron import HeadInputs, watch_head
from gar.integrations.slime.settings import capture_of, read_shaping

_POLICY_PASS = ""
"""slime's store_prefix of the policy's pass. Other models have "ref_" and "teacher_", GAR's passes "gar_"."""

_chunks: list[Any] = []
_collecting = ExitStack()  # open from `on_megatron_init` until the chunks are first used


def on_megatron_init(args: Any) -> None:
    """Check the job, and record the model that slime builds next, since no other required hook receives it.

    Raises:
        ConfigError: A setting is wrong, the job is one that GAR cannot do, or slime is older than 0.3.0.
    """
    read_shaping(args, quiet=dist.is_initialized() and dist.get_rank() > 0)
    from megatron.core.distributed import DistributedDataParallel
    from slime.backends.megatron_utils.data import DataIterator

    if "micro_batch_size" in inspect.signature(DataIterator).parameters:
        raise ConfigError(
            "this slime is older than 0.3.0, the first version with the hooks that GAR needs: update it",
            code="slime-version",
        )

    def keep(module: nn.Module, name: str, _: nn.Module | None) -> None:
        if name == "module" and isinstance(module, DistributedDataParallel):
            _chunks.append(module)

    _collecting.close()
    _chunks.clear()
    _collecting.callback(register_module_module_registration_hook(keep).remove)


def policy_chunks() -> list[Any]:
    """The policy's chunks on this rank, one per virtual pipeline stage, in order."""
    _collecting.close()
    if not _chunks:
        raise ModelError(
            "Megatron has wrapped no model in its DistributedDataParallel since "
            "gar.integrations.slime.on_megatron_init ran. Is the hook set by --custom-megatron-init-path, and is "
            "the model sharded by Megatron's own means, not by FSDP?",
            code="no-policy",
        )
    return list(_chunks)


_seen: list[HeadInputs] = []
_stop: Callable[[], None] | None = None


def before_log_prob(args: Any, model: Any, store_prefix: str) -> None:
    """With `capture: logprob`, capture the pass that slime is about to make, if it is the policy's."""
    global _seen, _stop
    if store_prefix == _POLICY_PASS and capture_of(args) == "logprob":
        if _stop is not None:
            _stop()
        _seen = []
        _stop = watch_head(model, _seen, to_host=True)


def captured_pass() -> list[HeadInputs]:
    """The micro-batches of slime's pass since the last call. Ends the capture, since slime trains afterwards."""
    global _seen, _stop
    if _stop is None:
        raise ConfigError(
            "gar.capture is 'logprob', but slime has made no log-probability pass of the policy before this step: "
            "it skips that pass where one update per rollout lets the loss compute the log-probabilities. Make two "
            "or more updates (--num-steps-per-rollout 2), or set gar.capture to own.",
            code="no-pass",
        )
    _stop()
    seen, _seen, _stop = _seen, [], None
    return seen
