"""A policy in Megatron's parts, for slime and verl: captures LM-head inputs and computes vectors."""

# pyright: reportMissingImports=false
from collections.abc import Callable, MutableSequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from gar.core import Head, Ranks, ScoredTokens, Signal, VocabShard, gather_tokens, response_means
from gar.errors import ModelError


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadInputs:
    """Inputs of the head in one micro-batch."""

    token_ids: Tensor
    """int64 [tokens]: this context rank's tokens, packed and padded by the engine."""
    hidden: Tensor
    """[tokens, hidden], on the model's device or in host memory. With `is_split` a part of the tokens."""
    weight: Tensor
    """[rows, hidden], this rank's rows of the head, or the embedding's if they are tied."""
    bias: Tensor | None
    """[rows]."""
    is_split: bool
    """Whether sequence parallelism splits `hidden`."""


def watch_head(
    chunks: list[Any], seen: MutableSequence[HeadInputs], *, spare_logits: bool = False, to_host: bool = False
) -> Callable[[], None]:
    """From now on, add the inputs of the head in each micro-batch to `seen`. Returns the function that ends it.

    With `spare_logits` the head gets a single token, for a pass without a reader of its logits. With `to_host` hidden
    states are moved to host memory, so that a pass needs no more.
    """
    token_ids: list[Tensor] = []

    def note_tokens(_: Any, inputs: tuple, kwargs: dict[str, Any]) -> None:
        token_ids[:] = [kwargs["input_ids"][0]]

    def note_hidden(module: Any, inputs: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        if not token_ids:
            raise ModelError(
                "the model calls its output_layer twice in a pass: which call is the policy's?", code="unknown-head"
            )
        hidden, *rest = inputs  # [tokens, 1, hidden]
        weight = kwargs["weight"] if "weight" in kwargs else rest[0] if rest else None
        states = hidden.detach()[:, 0]
        seen.append(
            HeadInputs(
                token_ids=token_ids.pop(),
                hidden=states.cpu() if to_host else states,
                weight=(module.weight if weight is None else weight).detach(),
                bias=getattr(module, "bias", None),
                is_split=bool(getattr(module, "sequence_parallel", False)),
            )
        )
        return (hidden[:1] if spare_logits else hidden, *rest), kwargs

    hooks = ExitStack()
    for chunk in chunks:
        head = _head(chunk)
        if head is not None:
            hooks.callback(chunk.register_forward_pre_hook(note_tokens, with_kwargs=True).remove)
            hooks.callback(head.register_forward_pre_hook(note_hidden, with_kwargs=True).remove)
    return hooks.close


def check_head(chunks: list[Any]) -> None:
    """Raise a `ModelError` for a last pipeline stage without an `output_layer`."""
    if all(_head(chunk) is None for chunk in chunks):
        raise ModelError(
            f"{type(_unwrapped(chunks[-1])).__name__}, the last pipeline stage, has no output_layer: GAR reads what "
            "the LM head is given there",
            code="no-head",
        )


def head_means(
    inputs: HeadInputs,
    rows: Tensor,
    targets: tuple[Tensor, Tensor, int],
    signal: Signal,
    *,
    temperature: float,
    vocab_size: int | None,
) -> Tensor:
    """Mean vector of each response of a micro-batch, float32 [responses, hidden], on the last pipeline stage.

    A collective of tensor and context ranks. `rows` are this context rank's tokens that predict a scored one, `targets`
    what they predict, the response of each, and the number of responses. From row `vocab_size` on the head is padding.
    """
    from megatron.core import mpu

    group = mpu.get_tensor_model_parallel_group()
    shard_rows = len(inputs.weight)
    shard = VocabShard(
        first_id=mpu.get_tensor_model_parallel_rank() * shard_rows,
        vocab_size=vocab_size or mpu.get_tensor_model_parallel_world_size() * shard_rows,
        group=group,
    )
    context = mpu.get_context_parallel_group() if mpu.get_context_parallel_world_size() > 1 else None
    hidden = inputs.hidden.to(inputs.weight.device)
    hidden = gather_tokens(hidden, group) if inputs.is_split else hidden
    return response_means(
        ScoredTokens(hidden[rows].float(), *targets),
        Head(inputs.weight, inputs.bias, temperature),
        signal,
        ranks=Ranks(shard, context),
    )


def _unwrapped(chunk: Any) -> Any:
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


def _head(chunk: Any) -> nn.Module | None:
    return getattr(_unwrapped(chunk), "output_layer", None)
