"""Rules on what does not go together, of one form for every engine.

A rule names settings or an engine's flags, the values with which GAR runs, when it applies, and why. Each table is
where its subject is: `gar.methods.rules` for every engine, `gar.train.rules` for `gar train`, and with each engine the
rules on its own flags. This module imports no torch. `docs/site/rules.py` prints all tables as docs/rules.md.
"""

import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gar.errors import ConfigError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What rules read. A table with further facts extends this record, so that a misspelled one is a type error."""

    settings: Mapping[str, Any]
    """Settings by dotted name ("signal.kind") and flags by their own ("--qkv-format"). A missing one counts as None."""
    chosen: Collection[str] = ()
    """Settings away from their defaults."""


FactsT = TypeVar("FactsT", bound=Facts)


@dataclass(frozen=True)
class Condition(Generic[FactsT]):
    """Values that a rule allows: as text, with `{name}` for another value, and as a function of facts and setting."""

    words: str
    fits: Callable[[FactsT, str], bool]


@dataclass(frozen=True)
class When(Generic[FactsT]):
    """When a rule applies: as text, and as a function."""

    words: str
    holds: Callable[[FactsT], bool]


UNSET = Condition[Facts]("no value", lambda facts, name: name not in facts.chosen)
"""The setting is left at its default."""

OFF = (None, False)


@dataclass(frozen=True)
class Rule:
    """One row. In texts `{name}` becomes the value of a setting or a fact."""

    names: str  # settings or flags, to each of which the row applies, with spaces between them
    allowed: tuple[Any, ...] | Condition[Any] = UNSET
    why: str = ""  # and what else to do
    when: tuple[When[Any], ...] = ()  # all of them

    def faults(self, facts: Facts) -> Iterator[tuple[str, str]]:
        """Name and sentence of each setting that breaks the rule."""
        if not all(when.holds(facts) for when in self.when):
            return
        why = f": {_filled(self.why, facts)}" if self.why else ""
        for name in self.names.split():
            value, allowed = facts.settings.get(name), self.allowed
            if isinstance(allowed, Condition):
                if not allowed.fits(facts, name):
                    yield name, f"{name} is {value}, expected {_filled(allowed.words, facts)}{why}."
            elif value not in allowed:
                hint = did_you_mean(str(value), [word for word in allowed if isinstance(word, str)])
                yield name, f"{name} is {value}, expected {in_words(allowed)}{why}.{hint}"


def faults(rules: Iterable[Rule], facts: Facts) -> list[tuple[str, str]]:
    """Name and sentence of every fault."""
    return [fault for rule in rules for fault in rule.faults(facts)]


def raise_all(found: list[tuple[str, str]]) -> None:
    """One `ConfigError` of all faults, if there are any. Its code is the name of the first setting."""
    if found:
        texts = [text for _, text in found]
        raise ConfigError(texts[0] if len(texts) == 1 else "\n- ".join(["", *texts]), code=found[0][0])


def setting(name: str, *values: Any) -> When[Facts]:
    """When a setting or flag has one of these values."""
    return When(f"`{name}` is {in_words(values)}", lambda facts: facts.settings.get(name) in values)


def in_words(values: Iterable[Any]) -> str:
    """`a, b or c`. None alone is "no value". It is left out beside other values."""
    values = [value for value in values if value is not None] or [None]
    words = ["no value" if value is None else "empty" if value == () else str(value) for value in values]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def bounds(text: str) -> Condition[Facts]:
    """Numbers within bounds such as "> 0 and <= 1". Anything but a number passes."""
    parts = [(_COMPARE[sign], float(limit)) for sign, limit in map(str.split, text.split(" and "))]

    def fits(facts: Facts, name: str) -> bool:
        value = facts.settings.get(name)
        return not isinstance(value, (int, float)) or all(compare(value, limit) for compare, limit in parts)

    return Condition(text, fits)


_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def _filled(text: str, facts: Facts) -> str:
    """The text with values. A name that is no setting is a fact, with `_` for the dot."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        known = facts.settings[name] if name in facts.settings else getattr(facts, name.replace(".", "_"))
        return in_words(known) if isinstance(known, tuple) else str(known)

    return re.sub(r"\{([^}]+)\}", value, text)
