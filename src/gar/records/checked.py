"""Validate parsed JSON against a dataclass."""

import json
import reprlib
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from gar.errors import RecordError

Checked = TypeVar("Checked")


def checked(kind: type[Checked], value: Any, place: str) -> Checked:
    """The value as an instance of a dataclass. Every field must have its annotated type. Nothing is converted.

    Raises:
        RecordError: A field is missing or has another type. The text begins with `place`.
    """
    try:
        # Through JSON once more: strict validation of Python values takes only instances of a dataclass.
        return _adapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        got = "" if first["type"] == "missing" else f", got {reprlib.repr(first['input'])}"
        text = f"{field}: {first['msg'][:1].lower()}{first['msg'][1:]}{got}"
        raise RecordError(f"{place}: {text}. Was the file changed by hand?") from error


_adapter = cache(TypeAdapter)
