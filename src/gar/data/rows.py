"""Rows of a data source, one at a time: a file, a data set on the Hub or its folder on disk.

Memory holds only the current row (for Parquet a batch of rows, for one JSON array all of it). Every row keeps its
number in the source, so that an error can name `anchors.jsonl:412`.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from gar.errors import ConfigError, DataError, did_you_mean
from gar.models.hub import hub_error

Row = dict[str, Any]
OnError = Callable[[DataError], None]

FILE_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
"""Endings of the files that `iter_rows` reads."""
_PART_BYTES, _PARQUET_BATCH_ROWS = 2**19, 256
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


class Lines(NamedTuple):
    """A part of a file of JSON Lines: some bytes of it, and the number of the first line there."""

    number: int
    start: int
    size: int


Part = Lines | Iterable[tuple[int, Any]]
"""Some rows of a source, with their numbers."""


def raise_error(error: DataError) -> None:
    """Stop at the first bad row: the default of every `on_error`."""
    raise error


def row_place(source: str, number: int) -> str:
    """The place of a row, as errors name it: `anchors.jsonl:412`, or `train.parquet row 412`. Counts from 1."""
    return f"{source}:{number}" if source.endswith(".jsonl") else f"{source} row {number}"


def source_name(source: str) -> str:
    """The short name of a source: `anchors` for data/anchors.jsonl, `NuminaMath-1.5` for AI-MO/NuminaMath-1.5."""
    path = Path(source)
    return path.stem if path.suffix in FILE_SUFFIXES else path.name


def iter_rows(
    source: str,
    *,
    split: str = "train",
    subset: str | None = None,
    revision: str | None = None,
    torn_ids: Collection[str] = (),
    on_error: OnError = raise_error,
) -> Iterator[tuple[int, Row]]:
    """Read a source row by row. Yields the number of each row (its line in a JSONL file), counted from 1, and the row.

    `split`, `subset` and `revision` apply to Hub data sets. `torn_ids` are values that mark the rows of a .csv that may
    have too few values. Missing values are None. `on_error` is called with the error for a line that is not a JSON
    object. If it returns, the line is skipped. A `DataError` gives the reason if the source cannot be read.
    """
    options: dict[str, Any] = {"split": split, "subset": subset, "revision": revision, "torn_ids": torn_ids}
    for part in iter_parts(source, **options, on_error=on_error):
        for number, row in rows_of(part, source):
            if isinstance(row, DataError):
                on_error(row)
            else:
                yield number, row


def iter_parts(
    source: str,
    *,
    split: str = "train",
    subset: str | None = None,
    revision: str | None = None,
    torn_ids: Collection[str] = (),
    on_error: OnError = raise_error,
    most: int | None = None,
) -> Iterator[Part]:
    """A source as `iter_rows` reads it, in parts. With `most`, those that are not `Lines` are lists of so many rows.

    Such parts can be sent to another process.
    """
    check_source(source)
    path = Path(source)
    if source.endswith((".jsonl", ".json")):
        rows = _json_array(path, source)
        if rows is None:
            yield from _lines(path)
            return
    elif source.endswith(".parquet"):
        rows = _parquet_rows(path, source)
    elif source.endswith(".csv"):
        rows = _csv_rows(path, source, torn_ids, on_error)
    else:
        rows = _dataset_rows(source, split=split, subset=subset, revision=revision)
    if most is None:
        yield rows
        return
    while part := list(islice(rows, most)):
        yield part


def rows_of(part: Part, source: str) -> Iterator[tuple[int, Row | DataError]]:
    """The rows of a part, and the error for each that is not a JSON object."""
    for number, entry in _entries(part, source) if isinstance(part, Lines) else part:
        try:
            row = _parsed(entry, number) if isinstance(entry, bytes) else entry
            if not isinstance(row, dict):
                raise ValueError(f"expected a JSON object with named columns, got {type(row).__name__}.")
        except ValueError as error:
            place = row_place(source, number) if isinstance(entry, bytes) else f"{source} row {number}"
            yield number, DataError(f"{place}: {error}")
        else:
            yield number, row


def check_source(source: str) -> None:
    """Raise a `DataError` for what cannot be a data source by its name and kind, without reading it."""
    path = Path(source)
    if not source.strip():
        raise DataError("the name of the data source is empty.")
    expected = f"Expected {', '.join(FILE_SUFFIXES)}, a folder of such files, or a data set on the Hub."
    if path.is_dir():
        if not any(file.suffix in FILE_SUFFIXES for file in path.rglob("*")):
            raise DataError(f"{source}: the folder holds no data. {expected}")
    elif path.exists():
        if not source.endswith(FILE_SUFFIXES):
            raise DataError(f"{source}: unknown kind of file. {expected}")
    elif source.endswith(FILE_SUFFIXES) or not _HUB_ID.fullmatch(source):
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, siblings, prefix=source.removesuffix(path.name))
        raise DataError(f"{source}: no such file.{hint}")


def check_suffix(path: Path, *suffixes: str) -> None:
    """Raise a `ConfigError` for an output that ends in none of `suffixes`."""
    if path.suffix not in suffixes:
        raise ConfigError(f"{path}: expected a name that ends in {' or '.join(suffixes)}.")


def check_hub(source: str, revision: str | None = None) -> None:
    """Raise a `DataError` for a data set that the Hub does not have. Other answers are left to `datasets`."""
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    error = hub_error("dataset", source, revision)
    if isinstance(error, (RepositoryNotFoundError, HFValidationError)):
        raise DataError(
            f"no data set '{source}': there is no file or folder of that name, and the Hub has none, or none that you "
            "may see."
        ) from error


def _json_array(path: Path, source: str) -> Iterator[tuple[int, Any]] | None:
    """The members of an array. None for a file of lines."""
    try:
        with path.open("rb") as file:
            if not file.read(256).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
                return None
            file.seek(0)
            return iter(enumerate(_array(file.read(), source), start=1))
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror}.") from error


def _lines(path: Path) -> Iterator[Lines]:
    number, start = 1, 0
    with path.open("rb") as file:
        while block := file.read(_PART_BYTES):
            block += file.readline()
            yield Lines(number, start, len(block))
            number, start = number + block.count(b"\n"), start + len(block)


def _entries(part: Lines, source: str) -> Iterator[tuple[int, bytes]]:
    with open(source, "rb") as file:
        file.seek(part.start)
        lines = io.BytesIO(file.read(part.size))
    return ((number, line) for number, line in enumerate(lines, start=part.number) if line.strip())


def _array(content: bytes, source: str) -> list[Any]:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source}: cannot be read as one JSON array: {error}. Was the file cut off?") from error


def _parsed(line: bytes, number: int) -> object:
    """The value of a line of JSON Lines. A `ValueError` gives the reason if it cannot be read."""
    try:
        return json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except (ValueError, RecursionError) as error:
        text = f"not readable as JSON: {error}"
        if isinstance(error, json.JSONDecodeError):
            text = f"not valid JSON: {error.msg} at column {error.colno}"
        hint = "" if line.endswith(b"\n") else " It has no line end: was the file cut off?"
        raise ValueError(f"{text}.{hint}") from None


def _csv_rows(path: Path, source: str, torn_ids: Collection[str], on_error: OnError) -> Iterator[tuple[int, Row]]:
    """Rows of text under the names of the first line. Lines in quotes belong to one row."""
    csv.field_size_limit(2**31 - 1)  # a solution may be longer than the default of 131,072 characters
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=not torn_ids)
            for number, row in enumerate(reader, start=1):
                if (None in row or None in row.values()) and not set(torn_ids) & set(map(str, row.values())):
                    columns = len(reader.fieldnames or ())
                    on_error(DataError(f"{source} row {number}: expected {columns} values as in the first line."))
                else:
                    yield number, dict(row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{source}: cannot be read as CSV: {error}. Expected UTF-8 text under a line of names."
        ) from error


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
        _read_each_file(Path(source))
        raise DataError(
            f"{source}: cannot be loaded with split={split!r}, subset={subset!r}, revision={revision!r}: {error}"
        ) from error


def _read_each_file(folder: Path) -> None:
    """Raise a `DataError` with the file and the line for which `datasets` rejected the folder."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in FILE_SUFFIXES and path.is_file():
            for _ in iter_rows(str(path)):
                pass
