"""The chunks of the policy in slime's Megatron, recorded as they are built."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from gar.errors import ConfigError, ModelError
from gar.integrations.slime.settings import read_shaping


class _Watch:
    """Collects the chunks that Megatron wraps for data parallelism, from `start` until they are first used."""

    seen: Sequence[Any] = ()
    hook: Any = None

    def start(self, wrapper: type) -> None:
        self.stop()
        self.seen = seen = []

        def keep(module: nn.Module, name: str, _: nn.Module | None) -> None:
            if name == "module" and isinstance(module, wrapper):
                seen.append(module)

        self.hook = register_module_module_registration_hook(keep)

    def stop(self) -> None:
        if self.hook is not None:
            self.hook.remove()
            self.hook = None


_watch = _Watch()


def policy_chunks() -> list[Any]:
    """The policy's chunks on this rank, one per virtual pipeline stage, in order."""
    _watch.stop()
    if not _watch.seen:
        raise ModelError(
            "Megatron has wrapped no model in its DistributedDataParallel since "
            "gar.integrations.slime.on_megatron_init ran. Is the hook set by --custom-megatron-init-path, and is "
            "the model sharded by Megatron's own means, not by FSDP?",
            code="no-policy",
        )
    return list(_watch.seen)


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
    _watch.start(DistributedDataParallel)
