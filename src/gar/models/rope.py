"""Rotary embeddings whose frequencies depend on the length of the whole pass: LongRoPE and dynamic NTK."""

from dataclasses import dataclass
from typing import Any

from gar.reader import rope_settings


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
