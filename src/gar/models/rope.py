"""Rotary embeddings whose frequencies depend on the length of the whole pass: LongRoPE and dynamic NTK."""

from dataclasses import dataclass
from typing import Any

from gar.errors import ModelError
from gar.reader import context_of, rope_settings


@dataclass(frozen=True, kw_only=True)
class RopeLengths:
    """By which frequencies a model computes a pass, from the number of tokens of its longest row.

    Attributes:
        switches: From these numbers on LongRoPE (Phi-3-128k) takes its second set.
        grows_from: From this number on each length has frequencies of its own (dynamic NTK). The model keeps them until
            a shorter pass. None: it does not.
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
