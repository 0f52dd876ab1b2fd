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


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Values that `here` has otherwise than `there`, under dotted names. What `here` lacks is not compared.

    Example:
        >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
        {'a.b': (1, 3)}
    """
    before, now = ({name: _as_json(value) for name, value in leaves(values)} for values in (there, here))
    return {name: (before.get(name), value) for name, value in now.items() if before.get(name) != value}


def _as_json(value: Any) -> Any:
    """A value as JSON gives it back."""
    return list(value) if isinstance(value, tuple) else value
