"""Rotary embeddings: the context that they stretch, and frequencies that depend on the length of the whole pass."""

from collections.abc import Mapping
from dataclasses import dataclass
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


def has_rope(config: Any) -> bool:
    """Whether positions are rotary embeddings: then only differences count, and padding on the left changes no state.

    Learned positions (GPT-2) count from the first column, unless the pass is told otherwise.
    """
    return bool(rope_settings(getattr(config.get_text_config(), "rope_parameters", None)))


@dataclass(frozen=True, kw_only=True)
class RopeLengths:
    """By which frequencies LongRoPE and dynamic NTK compute a pass, from the number of tokens of its longest row.

    Attributes:
        switches: From these numbers on LongRoPE (Phi-3-128k) takes its second set.
        grows_from: From this number on each length has its own frequencies (dynamic NTK). The model keeps them until a
            shorter pass. None: it does not.
    """

    switches: tuple[int, ...] = ()
    grows_from: int | None = None

    @classmethod
    def of(cls, config: Any) -> "RopeLengths":
        """From a transformers configuration, None for one without rotary embeddings."""
        if config is None:
            return cls()
        switches, grows_from = [], None
        config = config.get_text_config()
        for rope in rope_settings(getattr(config, "rope_parameters", None)):
            if rope["rope_type"] == "longrope":
                switches.append(rope["original_max_position_embeddings"] + 1)
            elif "dynamic" in rope["rope_type"]:
                grows_from = config.max_position_embeddings
        return cls(switches=tuple(switches), grows_from=grows_from)

    @property
    def longest_fixed(self) -> int | None:
        """The longest pass that has a short one's frequencies, in tokens. None: every length has the same."""
        ends = [*self.switches, *filter(None, [self.grows_from])]
        return min(ends) - 1 if ends else None

    def state(self, num_tokens: int) -> int:
        """Equal for lengths that have the same frequencies. 0 for a single token's."""
        if self.grows_from is not None and num_tokens >= self.grows_from:
            return num_tokens
        return sum(num_tokens >= switch for switch in self.switches)

    def fits(self, num_tokens: int, width: int) -> bool:
        """Whether a row of this length counts in a pass of this width, whatever the passes before."""
        grown = self.grows_from is not None and width >= self.grows_from
        return not grown and self.state(num_tokens) == self.state(width)


FIXED = RopeLengths()
"""The same frequencies at every length."""


def fixed_context(config: Any, longest: int = 0) -> int | None:
    """The context in tokens of an engine that packs rows of up to `longest` tokens into one pass. None: no limit.

    A pass of transformers has the frequencies of its longest row, and Megatron has one set for every length. A row's
    vector must not depend on the rows beside it, so the context ends where the checkpoint's frequencies change.

    Args:
        config: The model's transformers configuration.
        longest: Most tokens of a prompt and its response together, where longer rows would change the others.

    Raises:
        ModelError: Rows can be so long that frequencies change.
    """
    fixed, context = RopeLengths.of(config).longest_fixed, context_of(config)
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
