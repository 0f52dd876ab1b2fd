"""The lines of a manifest: what each lists, as JSON behind a checksum."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from xxhash import xxh3_64_hexdigest

_HEAD_BYTES = len('{"check": "0123456789abcdef", ')
_NUMBER, _HASH = rb"(?:0|[1-9]\d*)", rb"[0-9a-f]{32}"
_GROWN = re.compile(
    rb'"number": (%s), "id": "([0-9a-f]{16})", "files": \{"([ !#-\[\]-~]+)": '
    rb'\{"size": %s, "xxh3": "%s", "grows": true, "earlier": null\}\}\}' % (_NUMBER, _NUMBER, _HASH)
)
"""A line about one file that has grown: nearly all lines of a long run."""


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


Files = Mapping[str, FileFacts | None]
"""The files that a line lists. One without facts is listed no more."""


@dataclass(kw_only=True, slots=True)
class _Content:
    """The content of a line, as JSON."""

    number: int
    id: str
    files: Files


_CONTENT = TypeAdapter(_Content)


@dataclass(slots=True)
class Line:
    """One line. `id` is the folder's, and `names` are its files.

    What it lists is parsed when it is needed: of a file that grows, the last line alone is.
    """

    number: int
    id: str
    names: Iterable[str]
    _body: bytes
    _files: Files | None = None

    @property
    def files(self) -> Files:
        """Its files."""
        if self._files is None:
            self._files = _content(self._body).files
        return self._files


def line_text(number: int, id: str, files: Files) -> bytes:
    """A line as it is written."""
    body = json.dumps(_Content(number=number, id=id, files=files), default=_fields).encode()[1:]
    return _head(body) + body + b"\n"


def parse_line(text: bytes) -> Line | None:
    """A line of the manifest. None if it is not what was written."""
    body = text[_HEAD_BYTES:]
    if text[:_HEAD_BYTES] != _head(body):
        return None
    if grown := _GROWN.fullmatch(body):
        return Line(int(grown[1]), grown[2].decode(), (grown[3].decode(),), body)
    try:
        content = _content(body)
    except ValidationError:  # another version of gar has written it
        return None
    return Line(content.number, content.id, content.files, body, content.files)


def _content(body: bytes) -> _Content:
    return _CONTENT.validate_json(b"{" + body, strict=True)


def _fields(record: _Content | FileFacts) -> dict[str, Any]:
    """As `asdict`, which takes ten times as long."""
    return {name: getattr(record, name) for name in record.__slots__}


def _head(body: bytes) -> bytes:
    return b'{"check": "%s", ' % xxh3_64_hexdigest(body).encode()
