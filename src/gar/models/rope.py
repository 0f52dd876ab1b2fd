"""Rotary embeddings: the context that they stretch, and frequencies that depend on the length of the whole pass."""

from collections.abc import Mapping
from typing import Any

from gar.errors import ModelError


def context_of(config: Any) -> int | None:
    """Context length of a model in tokens, from its transformers configuration. None if that sets no limit."""
    config = config.get_text_config()
    length = getattr(config, "max_position_embeddings", None)
    return None if length is None else stretched_context(length, getattr(config, "rope_parameters", None))


def stretched_context(length: int, rope: Mapping[str, Any] | None) -> int:
    """`length`, or what rotary embeddings stretch it to: factor times the original length.

    The factor of llama3 is another one. A linear stretch is counted only from an original length that it states, since
    `length` is the stretched one in some checkpoints and the original one in others.
    """
    for each in rope_settings(rope):
        kind, factor = each["rope_type"], each.get("factor") or 1
        original = each.get("original_max_position_embeddings", 0 if kind == "linear" else length)
        if "dynamic" in kind:
            length = max(length, int(factor * length))  # transformers takes no other original length
        elif kind in ("yarn", "longrope", "linear"):
            length = max(length, int(factor * original))
    return length


def rope_settings(rope: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The settings of rotary embeddings, each with its `rope_type`: one, or one for each type of layer."""
    rope = rope or {}
    nested = [each for each in rope.values() if isinstance(each, Mapping)]
    kinds = [(each.get("rope_type", each.get("type")), each) for each in (rope, *nested)]
    return [{**each, "rope_type": kind} for kind, each in kinds if isinstance(kind, str)]


def longest_fixed(config: Any) -> int | None:
    """The longest pass that has a short one's frequencies, in tokens. None: every length has the same.

    LongRoPE (Phi-3-128k) takes its second set beyond the original length. Dynamic NTK has other frequencies for each
    length from the original one on, which the model keeps until a shorter pass.
    """
    config, ends = config.get_text_config(), list[int]()
    for rope in rope_settings(getattr(config, "rope_parameters", None)):
        if rope["rope_type"] == "longrope":
            ends.append(rope["original_max_position_embeddings"])
        elif "dynamic" in rope["rope_type"]:
            ends.append(config.max_position_embeddings - 1)
    return min(ends, default=None)


def fixed_context(config: Any, longest: int = 0) -> int | None:
    """The context in tokens within which a vector does not depend on the rows beside it. None: no limit.

    A pass of transformers has the frequencies of its longest row, and Megatron has one set for every length. So the
    context ends where the checkpoint's frequencies change. Longer sequences are not scored.

    Args:
        config: The model's transformers configuration.
        longest: Most tokens of a prompt and its response together, for an engine whose own passes pack rows.

    Raises:
        ModelError: Rows can be so long that frequencies change.
    """
    fixed, context = longest_fixed(config), context_of(config)
    if fixed is None:
        return context
    if longest > fixed:
        raise ModelError(
            f"the model's rotary embeddings (rope_type dynamic or longrope) change beyond {fixed} tokens, and a prompt "
            f"with its response can have {longest}. The engine packs rows into one pass, whose longest row sets the "
            f"frequencies of all: alignments would depend on the rows beside. Keep both within {fixed} tokens, take a "
            "model with another rope_type, for example yarn, or train with gar train.",
            code="changing-rope",
        )
    return fixed if context is None else min(context, fixed)
