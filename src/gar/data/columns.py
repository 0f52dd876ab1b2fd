"""What Arrow shows of a column of a `datasets.Dataset` without reading its rows."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from gar.data.reading import hashes_repeat

_BATCH = 1024


def filled(rows: Dataset, name: str) -> np.ndarray | None:
    """Which rows have a value that is not null, "" or an empty list, [rows]. It reads offsets, no text.

    None if Arrow does not have the column.
    """
    column = _stored_column(rows, name)
    if column is None:
        return None
    found = np.concatenate([np.empty(0, dtype=bool), *map(_filled, column.chunks)])
    return found if rows._indices is None else found[rows._indices.column(0).to_numpy()]


def first_empty(rows: Dataset, name: str) -> int | None:
    """The number of the first row without a value, if the column has nulls. Without them no cell is looked at."""
    column = _stored_column(rows, name)
    if column is None or not column.null_count:  # each cell would bring a page of every batch into memory
        return None
    found = filled(rows, name)
    return None if found is None or found.all() else int(found.argmin())


def column_of(rows: Dataset, name: str) -> pa.ChunkedArray | None:
    """A column of plain values. None if Arrow does not have it."""
    column = _stored_column(rows, name)
    if column is None or pa.types.is_nested(column.type):
        return None
    return column if rows._indices is None else column.take(rows._indices.column(0))


def may_repeat(values: pa.ChunkedArray) -> bool:
    """Whether two values that are not null may be equal. Certain for False: hashes are compared, which are small."""
    batches = pa.table([values.drop_null()], ["value"]).to_batches(max_chunksize=_BATCH)
    return hashes_repeat(np.fromiter((hash(v) for b in batches for v in b.column(0).to_pylist()), dtype=np.int64))


def _stored_column(rows: Dataset, name: str) -> Any:
    """A column as Arrow has it, before any selection (`Dataset._indices`). None if a transform may make it."""
    if rows.format["type"] == "custom" or not name:
        return None
    table, (first, *rest) = rows.data, name.split(".")
    if name in table.column_names:
        first, rest = name, []
    if first not in table.column_names:
        return None
    column = table.column(first)
    try:
        return pc.struct_field(column, rest) if rest else column  # pyright: ignore
    except pa.ArrowInvalid:
        return None


def _filled(values: pa.Array) -> np.ndarray:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        lengths = pc.binary_length(values)  # pyright: ignore
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.list_value_length(values)  # pyright: ignore
    else:
        return np.asarray(values.is_valid())
    return np.asarray(pc.fill_null(pc.greater(lengths, 0), False))  # pyright: ignore
