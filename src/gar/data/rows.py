"""Rows of a data source: a file, a data set on the Hub or its folder on disk.

Memory holds the current row, of Parquet up to 512 rows, of Parquet on the Hub a row group, of one JSON array all. Every
row keeps its number in the source, so that an error can name `anchors.jsonl:412`. Values keep the types of their file.
"""

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gar.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
Numbered = tuple[int, Row | DataError]
"""The number of a row in its source, counted from 1, and the row, or why it is none."""
OnError = Callable[[DataError], None]

FILE_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
"""Endings of the files that `iter_rows` reads."""
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_ROWS, _BYTES = 512, 2**20
"""The most rows of a table that are read at a time, and about how many bytes."""


def raise_error(error: DataError) -> None:
    """Stop at the first bad row: the default of every `on_error`."""
    raise error


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

    `split`, `subset` and `revision` apply to Hub data sets. Rows of a .csv may have too few values
    if their id is in `torn_ids`. Missing values are None. `on_error` is called with the error for a row that cannot be
    read. If it returns, the row is skipped. A `DataError` gives the reason if the source cannot be read.
    """
    for number, row in _numbered_rows(source, split, subset, revision, torn_ids):
        if isinstance(row, DataError):
            on_error(row)
        else:
            yield number, row


def _numbered_rows(
    source: str, split: str, subset: str | None, revision: str | None, torn_ids: Collection[str]
) -> Iterator[Numbered]:
    check_source(source)
    if source.endswith(FILE_SUFFIXES):
        yield from _file_rows(source, torn_ids)
    else:
        yield from _dataset_rows(source, split, subset, revision)


def _file_rows(path: str, torn_ids: Collection[str] = ()) -> Iterator[Numbered]:
    if path.endswith(".parquet"):
        return _parquet_rows(path)
    return _csv_rows(path, torn_ids) if path.endswith(".csv") else _json_rows(path)


def _json_rows(source: str) -> Iterator[Numbered]:
    """One object per line, or one array of objects."""
    try:
        with open(source, "rb") as file:
            if file.peek(256).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
                for number, member in enumerate(_array(file.read(), source), start=1):
                    yield number, _json_row(member, number, f"{source} row {number}")
            else:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        yield number, _json_row(line, number, row_place(source, number))
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror or error}.") from error


def _json_row(entry: object, number: int, place: str) -> Row | DataError:
    """The row of a line, or of a member of an array, or why it is none."""
    try:
        row = _parsed(entry, number) if isinstance(entry, bytes) else entry
        if not isinstance(row, dict):
            raise ValueError(f"expected a JSON object with named columns, got {type(row).__name__}.")
    except ValueError as error:
        return DataError(f"{place}: {error}")
    return row


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
        if isinstance(error, UnicodeDecodeError):
            text += ". Expected UTF-8 text"
        if isinstance(error, json.JSONDecodeError):
            text = f"not valid JSON: {error.msg} at column {error.colno}"
        hint = "" if line.endswith(b"\n") else " It has no line end: was the file cut off?"
        raise ValueError(f"{text}.{hint}") from None


def _csv_rows(source: str, torn_ids: Collection[str]) -> Iterator[Numbered]:
    """Rows of text under the names of the first line. Lines in quotes belong to one row."""
    csv.field_size_limit(2**31 - 1)  # a solution may be longer than the default of 131,072 characters
    try:
        with open(source, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=not torn_ids)
            for number, row in enumerate(reader, start=1):
                if (None in row or None in row.values()) and not set(torn_ids) & set(map(str, row.values())):
                    columns = len(reader.fieldnames or ())
                    place = f"{source} row {number}"
                    yield number, DataError(f"{place}: expected {columns} values as in the first line.")
                else:
                    yield number, dict(row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{source}: cannot be read as CSV: {error}. Expected UTF-8 text under a line of names."
        ) from error


def _parquet_rows(path: str) -> Iterator[Numbered]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        # By default the whole file would be kept in memory.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:
            about = file.metadata
            groups = [group for i in range(about.num_row_groups) if (group := about.row_group(i)).num_rows > 0]
            longest = max((group.total_byte_size // group.num_rows for group in groups), default=0)
            size = max(1, min(_ROWS, _BYTES // max(longest, 1)))
            for batch in file.iter_batches(size, use_threads=False):
                yield from _rows_of(batch, number + 1, path)
                number += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise _not_parquet(path, number, error) from error
    # If a damaged file has two numbers of rows, the larger one is expected.
    if number < max(about.num_rows, sum(group.num_rows for group in groups)):
        raise _not_parquet(path, number, "the file ends before this row")


def _not_parquet(path: str, index: int, reason: object) -> DataError:
    return DataError(f"{row_place(path, index + 1)}: cannot be read as Parquet: {reason}")


def _rows_of(found: "pa.RecordBatch", number: int, source: str) -> Iterator[Numbered]:
    json_types = {field.name: field.type for field in found.schema if "arrow.json" in str(field.type)}
    try:
        rows: list[Row] | None = found.to_pylist()
    except Exception:
        rows = None  # one by one, to find it
    for i in range(len(found)):
        try:
            row = rows[i] if rows else found.slice(i, 1).to_pylist()[0]
            row |= {name: _without_json(row[name], kind) for name, kind in json_types.items()}
        except Exception as error:  # such as text that is not UTF-8
            row = DataError(f"{row_place(source, number + i)}: a value cannot be read: {error}")
        yield number + i, row


def _without_json(value: Any, kind: "pa.DataType") -> Any:
    """A value of Arrow, with what texts of the type JSON mean. `datasets` gives it to values of unlike types."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _without_json(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_without_json(each, kind.value_type) for each in value]
    return json.loads(value) if isinstance(kind, pa.JsonType) else value


def _dataset_rows(source: str, split: str, subset: str | None, revision: str | None) -> Iterator[Numbered]:
    """The rows of a data set on the Hub, or of a folder: of its files, or as `datasets` reads them."""
    import datasets

    try:
        if files := _plain_files(source, split, subset):
            return (yield from _one_after_another(files))
        rows = datasets.load_dataset(source, name=subset, split=split, revision=revision, streaming=True)
        if rows.features:
            rows = rows.decode(False)  # images and sound stay bytes: nothing reads them
        yield from enumerate(map(dict, rows), start=1)
    except DataError:
        raise
    except ConnectionError as error:
        raise unreachable(source, error) from error
    except (OSError, ValueError, TypeError, RuntimeError) as error:  # the last one: all files are empty
        raise DataError(
            f"{source}: cannot be loaded with split={split!r}, subset={subset!r}, revision={revision!r}: {error}"
        ) from error


def _one_after_another(files: Iterable[str]) -> Iterator[Numbered]:
    """The rows of files, numbered through all of them."""
    before = 0
    for path in files:
        number = 0
        for number, row in _file_rows(path):
            yield before + number, row
        before += number


def _plain_files(source: str, split: str, subset: str | None) -> list[str]:
    """The files of a folder's split, if each is of a kind that we read, and its README has no options for them.

    `datasets` would guess the types of their values, and keep whole row groups in memory.
    """
    import datasets

    if not Path(source).is_dir():
        return []
    config = datasets.load_dataset_builder(source, name=subset).config
    plain = {field.name: field.default for field in fields(config) if field.name not in _WHICH}
    files = list(map(str, (config.data_files or {}).get(split, ())))
    if any(getattr(config, name) != default for name, default in plain.items()):
        return []
    return files if all(path.endswith(FILE_SUFFIXES) for path in files) else []


_WHICH = ("name", "version", "data_dir", "data_files", "description")
"""What a configuration of `datasets` has to say which files are read, not how."""


def row_place(source: str, number: int) -> str:
    """The place of a row, as errors name it: `anchors.jsonl:412`, or `train.parquet row 412`. Counts from 1."""
    return f"{source}:{number}" if source.endswith(".jsonl") else f"{source} row {number}"


def source_name(source: str) -> str:
    """The short name of a source: `anchors` for data/anchors.jsonl, `NuminaMath-1.5` for AI-MO/NuminaMath-1.5."""
    path = Path(source)
    return path.stem if path.suffix in FILE_SUFFIXES else path.name


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
    elif "/" not in source:
        hint = did_you_mean(source, [entry.name for entry in Path().iterdir()])
        raise DataError(f"{source}: no such file or folder, and a data set on the Hub is OWNER/NAME.{hint}")


def unreachable(source: str, reason: object) -> DataError:
    """The error for a data set that is neither on this machine nor loaded from the Hub."""
    return DataError(
        f"{source}: no folder of that name here, and the Hub cannot be reached ({reason}). Offline (HF_HUB_OFFLINE is "
        "set, or there is no network), give a local .jsonl or .parquet file or a downloaded folder."
    )


def check_suffix(path: Path, *suffixes: str) -> None:
    """Raise a `ConfigError` for an output that ends in none of `suffixes`."""
    if path.suffix not in suffixes:
        raise ConfigError(f"{path}: expected a name that ends in {' or '.join(suffixes)}.")
