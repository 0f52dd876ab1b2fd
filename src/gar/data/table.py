"""Problems that stay in Arrow. Each is read on request. Checks of all rows run in Arrow."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gar.data.problems import problem_of, repeated_id
from gar.data.schemas import ColumnSchema, choose_schema
from gar.errors import DataError
from gar.settings import SourceSettings
from gar.types import Problem

if TYPE_CHECKING:
    from datasets import Dataset

SAMPLE = 64
"""At most this many rows are read at the start. More would bring much of a mapped file into memory."""
_BATCH = 1024


class LazyProblems(Sequence[Problem]):
    """Problems that are read when they are asked for."""

    @property
    @abstractmethod
    def anchored(self) -> np.ndarray:
        """Which problems have an expert solution that is not empty, [problems]. Reads no text."""

    @abstractmethod
    def _read(self, index: int) -> Problem: ...

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        """A problem, or some."""
        chosen = range(len(self))[index]
        return self._read(chosen) if isinstance(chosen, int) else [self._read(i) for i in chosen]


class DatasetProblems(LazyProblems):
    """The problems of a `datasets.Dataset` with rows.

    `options` name its columns. A row that is bad is an error when it is read. At once Arrow finds cells without a value
    and ids that repeat, and `SAMPLE` rows are read.

    Raises:
        DataError: A column is missing, a prompt or an answer is null, a row of the sample is bad, or two rows have the
            same id.
    """

    def __init__(self, rows: "Dataset", options: SourceSettings):
        self._rows = rows
        self._schema: ColumnSchema = choose_schema(rows[0], options, source="the rows")
        self.sampled = _drawn(self)
        """Its sample (`sample`)."""
        self._check_ids()
        for name, fault in ((self._schema.prompt, "the prompt is empty"), (self._schema.answer, "")):
            column = self._column(name)
            # Counted without the cells: to look at each would bring a page of every batch of the file into memory.
            if column is None or not column.null_count:
                continue
            filled = self._filled(name)
            if filled is not None and not filled.all():
                number = int(filled.argmin()) + 1
                raise DataError(f"row {number}: {fault or self._schema.no_answer}. Leave out such rows.")

    def _check_ids(self) -> None:
        ids = self._column(self._schema.id)
        if ids is None or pa.types.is_nested(ids.type):
            return
        if self._rows._indices is not None:
            ids = ids.take(self._rows._indices.column(0))
        if _may_repeat(ids) and pc.count_distinct(ids).as_py() < len(ids) - ids.null_count:  # pyright: ignore
            raise repeated_id((f"row {n}", str(id)) for n, id in enumerate(ids.to_pylist(), 1) if id is not None)

    def __len__(self) -> int:
        """Number of problems."""
        return len(self._rows)

    def _read(self, index: int) -> Problem:
        return problem_of(self._rows[index], self._schema, place=f"row {index + 1}")

    @property
    def anchored(self) -> np.ndarray:
        """As `LazyProblems`. If Arrow does not have the column, all."""
        known = [filled for field in self._schema.anchors if (filled := self._filled(field)) is not None]
        if not known:
            has_column = any(field.partition(".")[0] in self._rows[0] for field in self._schema.anchors)
            return np.full(len(self), has_column)
        return np.logical_or.reduce(known)

    def _filled(self, name: str) -> np.ndarray | None:
        """Which rows have a value that is not empty. None if Arrow does not have the column."""
        column, chosen = self._column(name), self._rows._indices
        if column is None or chosen is None:
            return None if column is None else filled(column)
        return filled(column)[chosen.column(0).to_numpy()]

    def _column(self, name: str) -> Any:
        """A column as Arrow has it, before any selection (`Dataset._indices`). None if a transform may make it."""
        if self._rows.format["type"] == "custom" or not name:
            return None
        table, (first, *rest) = self._rows.data, name.split(".")
        if name in table.column_names:
            first, rest = name, []
        if first not in table.column_names:
            return None
        column = table.column(first)
        try:
            column = pc.struct_field(column, rest) if rest else column  # pyright: ignore
        except pa.ArrowInvalid:
            return None
        return column


def filled(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Which values are not null, "" or an empty list, [values]. It reads offsets, no text."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return np.concatenate([np.empty(0, dtype=bool), *map(_filled, chunks)])


def _filled(values: pa.Array) -> np.ndarray:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        lengths = pc.binary_length(values)  # pyright: ignore
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.list_value_length(values)  # pyright: ignore
    else:
        return np.asarray(values.is_valid())
    return np.asarray(pc.fill_null(pc.greater(lengths, 0), False))  # pyright: ignore


def _may_repeat(ids: pa.ChunkedArray) -> bool:
    """Whether two ids may be equal. Certain for False: hashes are compared, which are smaller than a set of ids."""
    batches = pa.table([ids], ["id"]).to_batches(max_chunksize=_BATCH)
    hashes = np.fromiter((hash(id) for batch in batches for id in batch.column(0).to_pylist()), dtype=np.int64)
    hashes.sort()
    return bool((hashes[1:] == hashes[:-1]).any())


def sample(problems: Sequence[Problem]) -> list[Problem]:
    """Up to `SAMPLE` problems, drawn at random, the same each time, in their order."""
    return problems.sampled if isinstance(problems, DatasetProblems) else _drawn(problems)


def _drawn(problems: Sequence[Problem]) -> list[Problem]:
    drawn = np.random.default_rng(0).choice(len(problems), min(len(problems), SAMPLE), replace=False)
    return [problems[int(i)] for i in np.sort(drawn)]


def anchored_sample(problems: Sequence[Problem]) -> tuple[list[Problem], bool]:
    """Up to `SAMPLE` problems with an expert solution, and whether there are no others.

    Those of a `datasets.Dataset` are the ones in its sample, if there are any. Else they are evenly spread.
    """
    if isinstance(problems, DatasetProblems) and (found := [each for each in sample(problems) if each.anchors]):
        return found, len(problems) <= SAMPLE
    owners = np.flatnonzero(anchored(problems))
    return [problems[int(i)] for i in owners[:: max(1, math.ceil(len(owners) / SAMPLE))]], len(owners) <= SAMPLE


def anchored(problems: Sequence[Problem]) -> np.ndarray:
    """Which problems have an expert solution, [problems]."""
    if isinstance(problems, LazyProblems):
        return problems.anchored
    return np.array([bool(problem.anchors) for problem in problems], dtype=bool)
