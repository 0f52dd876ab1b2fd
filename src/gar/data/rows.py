"""Rows of a data source: a file, a data set on the Hub or its folder on disk.

A source is read in parts of some rows, which a process may leave to its forks. Memory holds the current part, of
Parquet up to 512 rows, of Parquet on the Hub a row group, of one JSON array all. Every row keeps its number in the
source, so that an error can name `anchors.jsonl:412`.
"""

import csv
import io
import itertools
import json
import os
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

from gar.data.sources import FILE_SUFFIXES, check_source, row_place
from gar.errors import DataError

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

Row = dict[str, Any]
Numbered = tuple[int, Row | DataError]
"""The number of a row in its source, counted from 1, and the row, or why it is none."""
OnError = Callable[[DataError], None]

_ROWS, _BYTES = 512, 2**20
"""Of a part, at most: rows, and about how many bytes. A longer row is one part."""


def raise_error(error: DataError) -> None:
    """Stop at the first bad row: the default of every `on_error`."""
    raise error


class Part(Protocol):
    """Some rows of a source, in a form that takes little time to send to a fork of the process that opened it."""

    def rows(self) -> Iterator[Numbered]:
        """The rows in their order. A `DataError` if they cannot be read."""
        ...


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
    have too few values. Missing values are None. `on_error` is called with the error for a row that cannot be read. If
    it returns, the row is skipped. A `DataError` gives the reason if the source cannot be read.
    """
    for part in iter_parts(source, split=split, subset=subset, revision=revision, torn_ids=torn_ids):
        for number, row in part.rows():
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
) -> Iterator[Part]:
    """Read a source part by part. This process must read each before the next, its forks may do so at any time.

    It takes what `iter_rows` takes. A `DataError` says why the source cannot be read, after the parts before.
    """
    check_source(source)
    path = Path(source)
    if source.endswith((".jsonl", ".json")):
        yield from _json_parts(path, source)
    elif source.endswith(".parquet"):
        yield from _parquet_parts([source], source)
    elif source.endswith(".csv"):
        yield from _read_parts(_csv_rows(path, source, torn_ids))
    else:
        yield from _dataset_parts(source, split=split, subset=subset, revision=revision)


def _json_parts(path: Path, source: str) -> Iterator[Part]:
    """Parts of one object per line, or of one array of objects."""
    try:
        with path.open("rb") as file:
            if file.peek(256).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
                members = enumerate(_array(file.read(), source), start=1)
                yield from _read_parts((i, _json_row(member, i, f"{source} row {i}")) for i, member in members)
            else:
                yield from _line_parts(file, source)
    except RecursionError as error:  # of pickle
        raise DataError(f"{source}: a row is nested too deep.") from error
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


class _Lines(NamedTuple):
    """Some whole lines of an open file: the number of the first one, and where their bytes are."""

    source: str
    handle: int
    number: int
    start: int
    size: int

    def rows(self) -> Iterator[Numbered]:
        block = b""
        try:
            while some := os.pread(self.handle, self.size - len(block), self.start + len(block)):
                block += some
        except OSError as error:
            raise DataError(f"{self.source}: cannot be read: {error.strerror}.") from error
        if len(block) < self.size:
            raise DataError(f"{self.source}: became shorter while it was read.")
        for number, line in enumerate(io.BytesIO(block), start=self.number):
            if line.strip():
                yield number, _json_row(line, number, row_place(self.source, number))


def _line_parts(file: BinaryIO, source: str) -> Iterator[_Lines]:
    number, start = 1, 0
    while block := file.read(_BYTES):
        block += file.readline()
        yield _Lines(source, file.fileno(), number, start, len(block))
        number, start = number + block.count(b"\n"), start + len(block)


class _Read(NamedTuple):
    """Rows that had to be read to find them, pickled: so it is known that they can be sent."""

    content: bytes

    def rows(self) -> Iterator[Numbered]:
        return iter(pickle.loads(self.content))


def _read_parts(rows: Iterator[Numbered]) -> Iterator[_Read]:
    found: list[Numbered] = []
    try:
        for row in rows:
            found.append(row)
            if len(found) == _ROWS:
                yield _Read(pickle.dumps(found))
                found = []
    except DataError:
        yield _Read(pickle.dumps(found))
        raise
    yield _Read(pickle.dumps(found))


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


def _csv_rows(path: Path, source: str, torn_ids: Collection[str]) -> Iterator[Numbered]:
    """Rows of text under the names of the first line. Lines in quotes belong to one row."""
    csv.field_size_limit(2**31 - 1)  # a solution may be longer than the default of 131,072 characters
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
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


class _Slice(NamedTuple):
    """Rows of a Parquet file that each process reads for itself. `first` is the number of its first one in `source`."""

    reading: int
    path: str
    source: str
    first: int
    number: int
    size: int

    def rows(self) -> Iterator[Numbered]:
        reader = _readers.get(self.reading)
        if reader is None or (reader.path, reader.first) != (self.path, self.first):  # a file may be listed twice
            reader = _readers[self.reading] = _parquet_reader(self.path, self.source, self.first)
        return reader.rows(self.number, self.number + self.size)


_readings = itertools.count()
_readers: dict[int, "_ParquetReader"] = {}
"""Those of the files that are read now. A fork has them, each at the place of its parent."""


class _ParquetReader:
    """Reads a Parquet file from its start. A process decodes all rows up to those it wants, which takes little time."""

    def __init__(self, path: str, source: str, first: int):
        import pyarrow.parquet as pq

        self.path, self.source, self.first = path, source, first
        # By default the whole file would be kept in memory.
        self.file = pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16)
        about = self.file.metadata
        groups = [group for i in range(about.num_row_groups) if (group := about.row_group(i)).num_rows > 0]
        # If a damaged file has two numbers, the larger one is expected, so that no row is missing without an error.
        self.num_rows = max(about.num_rows, sum(group.num_rows for group in groups))
        longest = max((group.total_byte_size // group.num_rows for group in groups), default=0)
        self.size = max(1, min(_ROWS, _BYTES // max(longest, 1)))
        self._batches = self.file.iter_batches(self.size, use_threads=False)
        self._batch = next(self._batches, None)
        self._first = first

    def parts(self, reading: int) -> Iterator[_Slice]:
        end = self.first + self.num_rows
        for number in range(self.first, end, self.size):
            yield _Slice(reading, self.path, self.source, self.first, number, min(self.size, end - number))

    def rows(self, number: int, end: int) -> Iterator[Numbered]:
        import pyarrow as pa

        while number < end:
            try:
                while self._batch is not None and self._first + len(self._batch) <= number:
                    self._first += len(self._batch)
                    self._batch = next(self._batches, None)
            except (pa.ArrowException, OSError) as error:
                raise _not_parquet(self.path, self._first - self.first, error) from error
            if self._batch is None:
                raise _not_parquet(self.path, self._first - self.first, "the file ends before this row")
            found = self._batch.slice(number - self._first, end - number)
            yield from _rows_of(found, number, self.source)
            number += len(found)


def _parquet_reader(path: str, source: str, first: int) -> _ParquetReader:
    import pyarrow as pa

    try:
        return _ParquetReader(path, source, first)
    except (pa.ArrowException, OSError) as error:
        raise _not_parquet(path, 0, error) from error


def _parquet_parts(paths: Sequence[str], source: str) -> Iterator[_Slice]:
    reading, first = next(_readings), 1
    try:
        for path in paths:
            reader = _readers[reading] = _parquet_reader(path, source, first)
            yield from reader.parts(reading)
            first += reader.num_rows
    finally:
        _readers.pop(reading, None)


def _not_parquet(path: str, index: int, reason: object) -> DataError:
    return DataError(f"{row_place(path, index + 1)}: cannot be read as Parquet: {reason}")


def _slices(table: "pa.RecordBatch | pa.Table") -> "Iterator[tuple[int, pa.RecordBatch | pa.Table]]":
    """A table in slices of the size of a part, each with its first row's index."""
    size = max(1, min(_ROWS, len(table) * _BYTES // max(table.nbytes, 1)))
    for start in range(0, len(table), size):
        yield start, table.slice(start, size)


def _rows_of(found: "pa.RecordBatch | pa.Table", number: int, source: str) -> Iterator[Numbered]:
    json_types = {field.name: field.type for field in found.schema if "arrow.json" in str(field.type)}
    for start, some in _slices(found):
        try:
            rows: list[Row] | None = some.to_pylist()
        except Exception:
            rows = None  # one by one, to find it
        for i in range(len(some)):
            place = number + start + i
            try:
                row = rows[i] if rows else some.slice(i, 1).to_pylist()[0]
                row |= {name: _without_json(row[name], kind) for name, kind in json_types.items()}
            except Exception as error:  # such as text that is not UTF-8
                row = DataError(f"{row_place(source, place)}: a value cannot be read: {error}")
            yield place, row


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


class _Table(NamedTuple):
    """Rows that `datasets` read, in Arrow's stream format."""

    source: str
    number: int
    content: bytes

    def rows(self) -> Iterator[Numbered]:
        import pyarrow as pa

        with pa.ipc.open_stream(self.content) as stream:
            return _rows_of(stream.read_all(), self.number, self.source)


def _table_parts(tables: "Iterator[pa.Table]", source: str) -> Iterator[_Table]:
    import pyarrow as pa

    number = 1
    for table in tables:
        for start, some in _slices(table.combine_chunks()):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, some.schema) as stream:
                stream.write(some)
            yield _Table(source, number + start, sink.getvalue().to_pybytes())
        number += len(table)


def _tables(rows: "datasets.IterableDataset") -> "Iterator[pa.Table]":
    rows, number = rows.with_format("arrow"), 0
    try:
        for table in rows.iter(_ROWS):
            yield table
            number += len(table)
    except Exception:  # also for tables whose columns differ, which it joins before it casts them
        yield from _like_tables(rows.skip(number).iter(1))


def _like_tables(tables: "Iterator[pa.Table]") -> "Iterator[pa.Table]":
    """Joins tables of one row whose columns are alike."""
    import pyarrow as pa

    found: list[pa.Table] = []
    try:
        for table in tables:
            if len(found) == _ROWS or (found and found[0].schema != table.schema):
                yield pa.concat_tables(found)
                found = []
            found.append(table)
    except Exception:
        if found:
            yield pa.concat_tables(found)
        raise
    if found:
        yield pa.concat_tables(found)


def _dataset_parts(source: str, *, split: str, subset: str | None, revision: str | None) -> Iterator[Part]:
    import datasets

    try:
        if files := _parquet_files(source, split, subset):
            yield from _parquet_parts(files, source)
            return
        rows = datasets.load_dataset(source, name=subset, split=split, revision=revision, streaming=True)
        if rows.features:
            rows = rows.decode(False)  # images and sound stay bytes: nothing reads them
        yield from _table_parts(_tables(rows), source)
    except DataError:
        raise
    except ConnectionError as error:
        raise DataError(
            f"{source}: no folder of that name here, and the Hub cannot be reached ({error}). Offline (HF_HUB_OFFLINE "
            "is set, or there is no network), give a local .jsonl or .parquet file or a downloaded folder."
        ) from error
    except (OSError, ValueError, TypeError, RuntimeError) as error:  # the last one: all files are empty
        _read_each_file(Path(source))
        raise DataError(
            f"{source}: cannot be loaded with split={split!r}, subset={subset!r}, revision={revision!r}: {error}"
        ) from error


def _parquet_files(source: str, split: str, subset: str | None) -> list[str]:
    """The files of a folder's split, if it is Parquet that `datasets` would only read, with whole row groups in memory.

    It would change more where its README chooses columns or types, or the types of files differ.
    """
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not any(Path(source).rglob("*.parquet")):
        return []
    builder = datasets.load_dataset_builder(source, name=subset)
    files = list(map(str, (builder.config.data_files or {}).get(split, ())))
    chosen = [getattr(builder.config, name, None) for name in ("columns", "filters", "on_bad_files")]
    if builder.name != "parquet" or any(each not in (None, "error") for each in chosen):
        return []
    try:
        schemas = [pq.read_schema(path) for path in files]
    except (pa.ArrowException, OSError):
        return []
    if builder.info.features:
        schemas.append(builder.info.features.arrow_schema)
    return files if all(schema == schemas[0] for schema in schemas) else []


def _read_each_file(folder: Path) -> None:
    """Raise a `DataError` with the file and the line for which `datasets` rejected the folder."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in FILE_SUFFIXES and path.is_file():
            for _ in iter_rows(str(path)):
                pass
