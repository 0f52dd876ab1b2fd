"""Work that goes on where a killed process stopped: append-only lines, and what it was begun with."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gar.records.checked import checked
from gar.records.dotted import leaves
from gar.records.files import io_error, json_object


def whole_lines(path: Path) -> Iterator[bytes]:
    """The whole lines of an append-only file, in bounded memory; none where there is no such file.

    A line without its line end is what a killed writer left, and does not count.

    Raises:
        RecordError: It cannot be read.
    """
    if not os.path.lexists(path):
        return
    try:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line
    except OSError as error:
        raise io_error(path, "read", error) from error


def whole_objects(path: Path, kind: type | None = None) -> Iterator[dict[str, Any]]:
    """The JSON objects of the whole lines of an append-only file, as `whole_lines`.

    Args:
        path: The file.
        kind: A dataclass with what each of them must hold, whatever else is in it.

    Raises:
        RecordError: The file cannot be read, or a line is no such JSON object; names the line.
    """
    for number, line in enumerate(whole_lines(path), start=1):
        value = json_object(line, f"{path}:{number}")
        if kind is not None:
            checked(kind, value, f"{path}:{number}")
        yield value


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
