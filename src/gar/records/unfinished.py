"""Work that goes on where a killed process stopped: append-only lines, one writer, and what it was begun with."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, RecordError
from gar.records.files import io_error, json_object


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Keep a second writer out of a file or folder that exists. Without effect on a file system without locks.

    Raises:
        ConfigError: Another process has it.
        RecordError: It cannot be opened.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise io_error(path, "opened", error) from error
    try:
        with suppress(OSError):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"{path} is being written by another process. Does the same command run already?"
                ) from None
        yield
    finally:
        os.close(handle)


def whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """JSON objects of the whole lines of an append-only file, in bounded memory; none where there is no such file.

    A line without its line end is what a killed writer left, and does not count.

    Raises:
        RecordError: It cannot be read, or a line is no JSON object.
    """
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    yield json_object(line, f"{path}:{number}")
    except OSError as error:
        if isinstance(error, RecordError):
            raise
        raise io_error(path, "read", error) from error


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Values that `here` has otherwise than `there`, under dotted names. What `here` lacks is not compared.

    Example:
        >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
        {'a.b': (1, 3)}
    """
    before, now = _flat(there), _flat(here)
    return {name: (before.get(name), value) for name, value in now.items() if before.get(name) != value}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values under dotted names, as JSON gives them back."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = list(value) if isinstance(value, tuple) else value
    return flat
