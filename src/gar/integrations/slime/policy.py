"""The policy as Megatron holds it: its chunks, caught as they are built, and what its head is given in a pass."""

import inspect
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from gar.core.response_sums import gather_tokens
from gar.core.vocab_parallel import VocabShard
from gar.errors import ConfigError, ModelError
from gar.integrations.slime.settings import check_supported


class _Watch:
    """Keeps the chunks that Megatron wraps for data parallelism, from `start` until they are first asked for."""

    def __init__(self) -> None:
        self._chunks: list[nn.Module] = []
        self._hook: Any = None

    def start(self, wrapper: type) -> None:
        self.stop()
        self._chunks = []

        def keep(module: nn.Module, name: str, _: nn.Module | None) -> None:
            if name == "module" and isinstance(module, wrapper):
                self._chunks.append(module)

        self._hook = register_module_module_registration_hook(keep)

    def stop(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    @property
    def chunks(self) -> list[nn.Module]:
        self.stop()
        if not self._chunks:
            raise ModelError(
                "Megatron has wrapped no model in its DistributedDataParallel since "
                "gar.integrations.slime.on_megatron_init ran. Is the hook set by --custom-megatron-init-path, and is "
                "the model sharded by Megatron's own means, not by FSDP?"
            )
        return self._chunks


_watch = _Watch()


def on_megatron_init(args: Any) -> None:
    """Check the job, and catch the model that slime builds next: none of the other hooks that must run is given it.

    Args:
        args: slime's arguments.

    Raises:
        ConfigError: A setting is wrong, the job is one that GAR cannot do, or slime is older than 0.3.0.
    """
    check_supported(args, quiet=dist.is_initialized() and dist.get_rank() > 0)
    from megatron.core.distributed import DistributedDataParallel
    from slime.backends.megatron_utils.data import DataIterator

    if "micro_batch_size" in inspect.signature(DataIterator).parameters:
        raise ConfigError("this slime is older than 0.3.0, whose hooks GAR is written for: update slime")
    _watch.start(DistributedDataParallel)


def policy_chunks() -> list[Any]:
    """The policy's chunks on this rank, one per virtual pipeline stage, in order.

    Raises:
        ModelError: None was caught.
    """
    return _watch.chunks


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadInputs:
    """What the head was given in one micro-batch."""

    token_ids: Tensor
    """int64 [tokens]: what this context rank passed through the model, packed and padded as slime does it."""
    hidden: Tensor
    """[tokens, hidden], on the model's device or in host memory; under sequence parallelism this tensor rank's part of
    the tokens."""
    weight: Tensor
    """[rows, hidden], this rank's rows of the head; the embedding's where they are tied."""
    bias: Tensor | None
    """[rows]."""
    is_split: bool
    """Whether sequence parallelism splits `hidden`."""

    def whole_hidden(self, group: Any) -> Tensor:
        """Hidden states of all tokens, put together where sequence parallelism splits them over `group`."""
        hidden = self.hidden.to(self.weight.device)
        return gather_tokens(hidden, group) if self.is_split else hidden

    def shard(self, *, rank: int, vocab_size: int | None, num_ranks: int, group: Any) -> VocabShard:
        """Which rows of the head this rank holds. Rows from `vocab_size` on are padding."""
        rows = len(self.weight)
        return VocabShard(first_id=rank * rows, vocab_size=vocab_size or rows * num_ranks, group=group)


def watch_head(
    chunks: list[Any], seen: MutableSequence[HeadInputs], *, spare_logits: bool = False
) -> Callable[[], None]:
    """From now on, add what the head is given in each micro-batch to `seen`. Returns what ends it.

    Args:
        chunks: The policy's. Only the last pipeline stage has a head.
        seen: Grows by one per micro-batch, in Megatron's order, which is that of slime's micro-batches.
        spare_logits: Let the head work on a single token, for a pass whose logits nobody reads.

    Raises:
        ModelError: In a pass that calls the head twice. Multi-token prediction does, but slime asks for it in training
            alone, where nothing listens.
    """
    token_ids: list[Tensor] = []

    def note_tokens(_: Any, inputs: tuple, kwargs: dict[str, Any]) -> None:
        token_ids[:] = [kwargs["input_ids"][0]]

    def note_hidden(module: Any, inputs: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        if not token_ids:
            raise ModelError("the model calls its output_layer twice in a pass: which call is the policy's?")
        hidden, *rest = inputs  # [tokens, 1, hidden]
        weight = kwargs["weight"] if "weight" in kwargs else rest[0] if rest else None
        seen.append(
            HeadInputs(
                token_ids=token_ids.pop(),
                hidden=hidden.detach()[:, 0],
                weight=(module.weight if weight is None else weight).detach(),
                bias=getattr(module, "bias", None),
                is_split=bool(getattr(module, "sequence_parallel", False)),
            )
        )
        return (hidden[:1] if spare_logits else hidden, *rest), kwargs

    handles = []
    for chunk in chunks:
        head = _head(chunk)
        if head is not None:
            handles.append(chunk.register_forward_pre_hook(note_tokens, with_kwargs=True))
            handles.append(head.register_forward_pre_hook(note_hidden, with_kwargs=True))

    def stop() -> None:
        for handle in handles:
            handle.remove()

    return stop


def check_head(chunks: list[Any]) -> None:
    """Refuse a last pipeline stage without an `output_layer`.

    Raises:
        ModelError: There is none.
    """
    if all(_head(chunk) is None for chunk in chunks):
        raise ModelError(
            f"{type(_unwrapped(chunks[-1])).__name__}, the last pipeline stage, has no output_layer: GAR reads what "
            "the LM head is given there"
        )


def _unwrapped(chunk: Any) -> Any:
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


def _head(chunk: Any) -> nn.Module | None:
    return getattr(_unwrapped(chunk), "output_layer", None)
