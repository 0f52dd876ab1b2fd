"""Rows of a data source, one at a time: a file, a data set on the Hub or its folder on disk.

Memory holds only the current row (for Parquet a batch of rows, for one JSON array all of it). Every row keeps its
number in the source, so that an error can name `anchors.jsonl:412`.
"""

import csv
import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from gar.errors import ConfigError, DataError, did_you_mean
from gar.models.hub import hub_error

Row = dict[str, Any]
OnError = Callable[[DataError], None]

FILE_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
"""Endings of the files that `iter_rows` reads."""
_PARQUET_BATCH_ROWS = 256
_BYTES = 2**19
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


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
    check_source(source)
    path = Path(source)
    if source.endswith((".jsonl", ".json")):
        yield from _json_rows(path, source, on_error)
    elif source.endswith(".parquet"):
        yield from _parquet_rows(path, source)
    elif source.endswith(".csv"):
        yield from _csv_rows(path, source, torn_ids, on_error)
    else:
        yield from _dataset_rows(source, split=split, subset=subset, revision=revision)


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


def _json_rows(path: Path, source: str, on_error: OnError) -> Iterator[tuple[int, Row]]:
    """Rows of one object per line, or of one array of objects."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror}.") from error
    with file:
        is_array = _begins_array(file)
        file.seek(0)
        for number, entry in enumerate(_array(file.read(), source) if is_array else file, start=1):
            if isinstance(entry, bytes) and not entry.strip():
                continue
            row = _json_row(entry, number, f"{source} row {number}" if is_array else row_place(source, number))
            if isinstance(row, DataError):
                on_error(row)
            else:
                yield number, row


def _json_row(entry: object, number: int, place: str) -> Row | DataError:
    """The row of a line, or of a member of an array, or why it is none."""
    try:
        row = _parsed(entry, number) if isinstance(entry, bytes) else entry
        if not isinstance(row, dict):
            raise ValueError(f"expected a JSON object with named columns, got {type(row).__name__}.")
    except ValueError as error:
        return DataError(f"{place}: {error}")
    return row


class Lines(NamedTuple):
    """Some whole lines of a file: the number of the first one, and where their bytes are."""

    number: int
    start: int
    size: int


def has_lines(source: str) -> bool:
    """Whether a source is a file of JSON Lines, and not of one array."""
    if not source.endswith(".jsonl") or not os.path.isfile(source):
        return False
    try:
        with open(source, "rb") as file:
            return not _begins_array(file)
    except OSError:  # `iter_rows` says why
        return False


def parts_of(file: BinaryIO) -> Iterator[Lines]:
    """The lines of a file, in parts of half a megabyte or one line."""
    number, start = 1, 0
    while block := file.read(_BYTES):
        block += file.readline()
        yield Lines(number, start, len(block))
        number, start = number + block.count(b"\n"), start + len(block)


def rows_of(file: BinaryIO, lines: Lines, source: str) -> Iterator[tuple[int, Row | DataError]]:
    """The rows of a part as `iter_rows` reads them, or why a line is none. Does not move the file's position."""
    block = os.pread(file.fileno(), lines.size, lines.start)
    if len(block) < lines.size:
        raise DataError(f"{source}: became shorter while it was read.")
    for number, line in enumerate(io.BytesIO(block), start=lines.number):
        if line.strip():
            yield number, _json_row(line, number, row_place(source, number))


def _begins_array(file: BinaryIO) -> bool:
    return file.read(256).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


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
