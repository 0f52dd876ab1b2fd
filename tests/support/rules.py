"""What a rule names."""

import re
from collections.abc import Iterator

from gar.rules import Rule


def named_in(rule: Rule) -> Iterator[str]:
    """The settings, flags and facts in the conditions of a rule."""
    for when in rule.when:
        yield re.match("`([^`]+)`", when.words)[1]  # pyright: ignore[reportOptionalSubscript]
