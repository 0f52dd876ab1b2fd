"""Nested settings by dotted name."""

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of everything that is not itself a mapping.

    Example:
        >>> dict(leaves({"reward": {"beta": 0.5}, "seed": 0}))
        {'reward.beta': 0.5, 'seed': 0}
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Old and new values that differ, by dotted name. What `now` lacks is not compared.

    Example:
        >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
        {'a.b': (1, 3)}
    """
    old, new = ({name: _as_json(value) for name, value in leaves(values)} for values in (before, now))
    return {name: (old.get(name), value) for name, value in new.items() if old.get(name) != value}


def _as_json(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return list(value) if isinstance(value, tuple) else value
