"""The lines of a manifest: what each lists, as JSON behind a checksum."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from xxhash import xxh3_64_hexdigest

_HEAD_BYTES = len('{"check": "0123456789abcdef", ')


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """Size in bytes and XXH3 checksum (128 bits, hexadecimal) of a file.

    If it `grows`, of its beginning: what follows comes from a killed writer, and does not count. `earlier` is the
    checksum of the content that is being replaced: a kill leaves either.
    """

    size: Annotated[int, Field(ge=0)]
    xxh3: str
    grows: bool = False
    earlier: str | None = None


Files = dict[str, FileFacts | None]
"""The files that a line lists. One without facts is listed no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line. `id` is the folder's."""

    number: int
    id: str
    files: Files


_LINE = TypeAdapter(Line)


def line_text(line: Line) -> bytes:
    """A line as it is written."""
    body = json.dumps(line, default=_fields).encode()[1:]
    return _head(body) + body + b"\n"


def parse_line(text: bytes) -> Line | None:
    """A line of the manifest. None if it is not what was written."""
    body = text[_HEAD_BYTES:]
    if text[:_HEAD_BYTES] != _head(body):
        return None
    try:
        return _LINE.validate_json(b"{" + body, strict=True)
    except ValidationError:  # another version of gar has written it
        return None


def _fields(record: Line | FileFacts) -> dict[str, Any]:
    """As `asdict`, which takes ten times as long."""
    return {name: getattr(record, name) for name in record.__slots__}


def _head(body: bytes) -> bytes:
    return b'{"check": "%s", ' % xxh3_64_hexdigest(body).encode()
