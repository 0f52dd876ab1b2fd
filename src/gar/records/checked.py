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
        return _adapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise RecordError(f"{place}: {_fault(error)}. Was the file changed by hand?") from error


# Parsed values go through JSON once more: strict validation of Python values takes only instances of a dataclass.
@cache
def _adapter(kind: type[Checked]) -> TypeAdapter[Checked]:
    return TypeAdapter(kind)


def _fault(error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or "the whole"
    got = "" if first["type"] == "missing" else f", got {reprlib.repr(first['input'])}"
    return f"{field}: {first['msg'][:1].lower()}{first['msg'][1:]}{got}"
