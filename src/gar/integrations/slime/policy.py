"""The policy as Megatron holds it: its chunks, caught as they are built, and what its head is given in a pass."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from gar.core.vocab_parallel import VocabShard, gather_tokens
from gar.errors import ConfigError, ModelError
from gar.integrations.slime.settings import check_supported, read_settings


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
    """Check the job, and catch the model that slime builds next: none of its hooks is given the model.

    Args:
        args: slime's arguments.

    Raises:
        ConfigError: A setting is wrong, the job is one that GAR cannot do, or slime is older than 0.3.0.
    """
    check_supported(args, read_settings(args))
    from megatron.core.distributed import DistributedDataParallel  # pyright: ignore[reportMissingImports]
    from slime.backends.megatron_utils.data import DataIterator  # pyright: ignore[reportMissingImports]

    if "micro_batch_size" in inspect.signature(DataIterator).parameters:
        raise ConfigError("this slime is older than 0.3.0, whose hooks GAR is written for: update slime")
    _watch.start(DistributedDataParallel)


def policy_chunks() -> list[Any]:
    """The policy's chunks on this rank, one per virtual pipeline stage, in order.

    Raises:
        ModelError: None was caught.
    """
    return _watch.chunks


class HeadInputs:
    """What the head was given in the latest pass.

    Attributes:
        hidden: [tokens, hidden] of this rank.
        weight: [rows, hidden], this rank's rows of the head; the embedding's where they are tied.
        bias: [rows], or None.
    """

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    _sequence_parallel: bool

    def take(self, module: Any, hidden: Tensor, weight: Tensor | None) -> None:
        """Keep the inputs of a call. `hidden` is [tokens, 1, hidden], as Megatron lays it out."""
        self.hidden = hidden.detach()[:, 0]
        self.weight = (module.weight if weight is None else weight).detach()
        self.bias = getattr(module, "bias", None)
        self._sequence_parallel = bool(getattr(module, "sequence_parallel", False))

    def whole_hidden(self, group: Any) -> Tensor:
        """Hidden states of all tokens, put together where sequence parallelism splits them over `group`."""
        return gather_tokens(self.hidden, group) if self._sequence_parallel else self.hidden

    def shard(self, *, rank: int, vocab_size: int | None, num_ranks: int, group: Any) -> VocabShard:
        """Which rows of the head this rank holds. Rows from `vocab_size` on are padding."""
        rows = len(self.weight)
        return VocabShard(first_id=rank * rows, vocab_size=vocab_size or rows * num_ranks, group=group)


@contextmanager
def head_inputs(chunks: list[Any]) -> Iterator[HeadInputs]:
    """Inside: notes what the head is given, and lets it work on a single token, since nobody reads these logits.

    Args:
        chunks: From `policy_chunks`. Only the last pipeline stage has a head.
    """
    slot = HeadInputs()

    def take(module: Any, inputs: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        hidden, *rest = inputs
        slot.take(module, hidden, kwargs["weight"] if "weight" in kwargs else rest[0] if rest else None)
        return (hidden[:1], *rest), kwargs

    handles = [
        head.register_forward_pre_hook(take, with_kwargs=True) for head in map(_head, chunks) if head is not None
    ]
    try:
        yield slot
    finally:
        for handle in handles:
            handle.remove()


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
