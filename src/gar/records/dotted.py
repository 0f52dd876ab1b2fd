"""Nested settings under dotted names."""

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is not itself a mapping, with its dotted name.

    Example:
        >>> dict(leaves({"reward": {"beta": 0.5}, "seed": 0}))
        {'reward.beta': 0.5, 'seed': 0}
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
