"""Rows of a data source, one at a time: a JSONL file, a Parquet file, a data set on the Hub or its folder on disk.

Memory holds only the current row (for Parquet a batch of rows). Every row keeps its number in the source, so that an
error can say `anchors.jsonl:412`.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gar.errors import DataError

Row = dict[str, Any]
OnError = Callable[[DataError], None]

_JSONL_SUFFIXES = (".jsonl", ".ndjson")
_PARQUET_SUFFIXES = (".parquet", ".pq")
_PARQUET_BATCH_ROWS = 256
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def raise_error(error: DataError) -> None:
    """Stop at the first bad row: the default for every `on_error`.

    Raises:
        DataError: Always; the error that was passed in.
    """
    raise error


def row_place(source: str, number: int) -> str:
    """The place of a row, as errors name it: `anchors.jsonl:412`, or `train.parquet row 412`. Counts from 1."""
    return f"{source}:{number}" if source.endswith(_JSONL_SUFFIXES) else f"{source} row {number}"


def source_name(source: str) -> str:
    """The short name of a source: `anchors` for data/anchors.jsonl, `NuminaMath-1.5` for AI-MO/NuminaMath-1.5."""
    path = Path(source)
    return path.stem if path.suffix in _JSONL_SUFFIXES + _PARQUET_SUFFIXES else path.name


def iter_rows(
    source: str,
    *,
    split: str = "train",
    subset: str | None = None,
    revision: str | None = None,
    on_error: OnError = raise_error,
) -> Iterator[tuple[int, Row]]:
    """Read `source` row by row.

    Args:
        source: A `.jsonl` or `.parquet` file, a folder that `datasets` can load, or a Hub id (`owner/name`).
        split: Split of a Hub data set or folder; a file has no splits.
        subset: Configuration of a Hub data set, for example "main" of openai/gsm8k.
        revision: Commit or tag of a Hub data set. None takes the newest, which may change.
        on_error: Called with the error for a line that is not a JSON object. If it returns, the line is skipped.

    Yields:
        The row's number (the line of a JSONL file, else the count of rows; from 1) and the row.

    Raises:
        DataError: The source does not exist, cannot be reached, or is not of the kind that its name says.
    """
    path = Path(source)
    if source.endswith(_JSONL_SUFFIXES):
        yield from _jsonl_rows(path, source, on_error)
    elif source.endswith(_PARQUET_SUFFIXES):
        yield from _parquet_rows(path, source)
    elif path.is_file():
        raise DataError(
            f"{source}: cannot tell what kind of file this is. Expected .jsonl (one JSON object a line), .parquet, "
            "a folder of such files, or the id of a data set on the Hub."
        )
    elif path.is_dir() or _HUB_ID.fullmatch(source):
        yield from _dataset_rows(source, split=split, subset=subset, revision=revision)
    else:
        raise _no_such_file(path, source)


def _jsonl_rows(path: Path, source: str, on_error: OnError) -> Iterator[tuple[int, Row]]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise _no_such_file(path, source) from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror}.") from error
    with file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = _json_object(line, number)
            except ValueError as error:
                on_error(DataError(f"{row_place(source, number)}: {error}"))
            else:
                yield number, row


def _json_object(line: bytes, number: int) -> Row:
    hint = "" if line.endswith(b"\n") else " It has no line end: was the file cut off?"
    try:
        row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text ({error.reason} at byte {error.start} of the line).{hint}") from None
    except json.JSONDecodeError as error:
        if number == 1 and line.lstrip().startswith(b"["):
            hint = " The file starts with '[': is it one JSON array? Write one object a line instead."
        raise ValueError(f"not valid JSON: {error.msg} at column {error.colno}.{hint}") from None
    except RecursionError:
        raise ValueError("not readable JSON: nested too deeply.") from None
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object with named columns, got {json_type(row)}.")
    return row


def _parquet_rows(path: Path, source: str) -> Iterator[tuple[int, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except FileNotFoundError:
        raise _no_such_file(path, source) from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{row_place(source, number + 1)}: cannot be read as Parquet: {error}") from error


def _dataset_rows(source: str, *, split: str, subset: str | None, revision: str | None) -> Iterator[tuple[int, Row]]:
    import datasets

    try:
        rows = datasets.load_dataset(source, name=subset, split=split, revision=revision, streaming=True)
        yield from enumerate(rows, start=1)
    except ConnectionError as error:
        raise DataError(
            f"{source}: no folder of that name here, and the Hub cannot be reached ({error}). Offline (HF_HUB_OFFLINE "
            "is set, or there is no network), give a local .jsonl or .parquet file or a downloaded folder."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"{source}: cannot be loaded with split={split!r}, subset={subset!r}, revision={revision!r}: {error}"
        ) from error


def json_type(value: object) -> str:
    """A value's type in words of JSON, for error texts: object, array, text, number, true or false, null."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names: dict[type, str] = {dict: "an object", list: "an array", str: "text", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


def _no_such_file(path: Path, source: str) -> DataError:
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    nearest = difflib.get_close_matches(path.name, siblings, n=1)
    hint = f" Did you mean {path.parent / nearest[0]}?" if nearest else ""
    return DataError(f"{source}: no such file.{hint}")
