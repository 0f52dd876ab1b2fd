"""Nested settings by dotted name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MOST_SHOWN = 8


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of everything that is not itself a mapping: `reward.bonus_weight` and 0.5."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Old and new values that differ, by dotted name, as JSON has them. Names that `now` lacks do not count."""
    old = dict(leaves(before))
    return {name: (old.get(name), value) for name, value in leaves(now) if old.get(name) != value}


def changes_in_words(changes: Mapping[str, Sequence[Any]]) -> str:
    """Old and new values for a person, the first eight of them: `trl.seed was 1, is 2`. Empty if there are none."""
    shown = [f"{name} was {before!r}, is {now!r}" for name, (before, now) in changes.items()]
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    return "; ".join(shown[:_MOST_SHOWN]) + more
