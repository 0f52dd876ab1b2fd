"""Docstrings use `Example:`, Google's style for one. The docstring parser reads code under `Examples:` alone."""

import re
from typing import Any

import griffe

_HEADING = re.compile(r"^Example:$", re.MULTILINE)


class OneExample(griffe.Extension):
    """Reads one example as it reads several."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the heading in the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = _HEADING.sub("Examples:", obj.docstring.value)
