"""Nested settings by dotted name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MOST_SHOWN = 8


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of everything that is not itself a mapping.

    Example:
        >>> dict(leaves({"reward": {"bonus_weight": 0.5}, "seed": 0}))
        {'reward.bonus_weight': 0.5, 'seed': 0}
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Old and new values that differ, by dotted name. Names that `now` lacks are not compared.

    Example:
        >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
        {'a.b': (1, 3)}
    """
    old, new = ({name: _as_json(value) for name, value in leaves(values)} for values in (before, now))
    return {name: (old.get(name), value) for name, value in new.items() if old.get(name) != value}


def in_words(changes: Mapping[str, Sequence[Any]]) -> str:
    """Old and new values for a person, the first eight of them. Empty if there are none.

    Example:
        >>> in_words({"trl.seed": (1, 2), "dtype": ("auto", "float32")})
        "trl.seed was 1, is 2; dtype was 'auto', is 'float32'"
    """
    shown = [f"{name} was {before!r}, is {now!r}" for name, (before, now) in changes.items()]
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    return "; ".join(shown[:_MOST_SHOWN]) + more


def _as_json(value: Any) -> Any:
    """A value as it comes back from JSON."""
    return list(value) if isinstance(value, tuple) else value
