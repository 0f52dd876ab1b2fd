"""The problems of a run as a `datasets.Dataset`: read once into a file, and made from its rows one at a time.

The file has no name, or loses it when all ranks have opened it. So nothing is left of it, and no other run can read it.
"""

import hashlib
import mmap
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, List, Value
from pydantic_core import to_json

from gar.data.problems import Reading, check_ids, may_repeat, problem_of, problems_of
from gar.data.prompts import Renderer, as_messages
from gar.data.rows import Row
from gar.data.schemas import SCHEMAS, ColumnSchema, choose_schema, column_value
from gar.errors import DataError
from gar.records.files import system_errors
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Anchor, Problem

FEATURES = Features(
    {
        "id": Value("string"),
        "prompt": Value("string"),  # null if it is chat messages
        "messages": List({"role": Value("string"), "content": Value("string")}),
        "answer": Value("string"),
        "expert_solution": List(Value("string")),
        "source": Value("string"),
        "choices": List(Value("string")),
        "question": Value("string"),
    }
)
"""Our own columns: the fields of a `Problem`."""
SAMPLE = 64
"""At most this many rows are read at the start. More would bring much of a mapped file into memory."""
_SCHEMA = pa.schema(list(FEATURES.arrow_schema))  # without metadata
_BATCH = 4096  # a look at a column brings at least 64 KB of each batch into memory


@dataclass(frozen=True, kw_only=True, eq=False)
class ProblemSet(Sequence[Problem]):
    """Problems in a `datasets.Dataset`, each made from its row when it is asked for.

    Attributes:
        rows: The data set. `is_own` is true if a row has our own columns.
        schema: Which of its columns hold what.
        render: Makes the problem that the policy sees of the one in the row. None if they are equal.
        data_hash: SHA-256 of the rows as JSON Lines. "" if they were not read from a source.
        notes: What was dropped and what lacks an expert solution when they were read.
    """

    rows: Dataset
    schema: ColumnSchema
    render: Renderer | None = None
    data_hash: str = ""
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, rows: Any, options: SourceSettings = DEFAULT_SOURCE) -> "ProblemSet":
        """The problems of what a Python user has: a `datasets.Dataset`, or a list of rows or of problems.

        A row of a data set that is bad is an error when it is read. Arrow finds cells without a value and ids that
        repeat, and a sample is read now. A list is read whole.

        Raises:
            DataError: There is no row, a column is missing, a row is bad, or two rows have the same id.
        """
        if isinstance(rows, ProblemSet):
            return rows
        rows = rows if isinstance(rows, Dataset) else list(rows)  # an iterator is read only once
        if not len(rows):
            raise DataError("the data set is empty: it has no rows.", code="no-rows")
        # A data set stays as it is, and a row becomes a problem when it is asked for.
        if isinstance(rows, Dataset):
            found = cls(rows=rows, schema=choose_schema(rows[0], options, source="the rows"))
            found._check_rows()
            return found
        # A list is checked now, and becomes a data set: of our own columns, or with all columns of the user.
        problems = problems_of(rows, options)
        mixed = len({type(problem.prompt) for problem in problems}) > 1
        if isinstance(rows[0], Problem):
            table = pa.Table.from_batches([_batch_of(list(map(_own_row, problems)))])
            render = Renderer(template="plain", chat=True, all_messages=True) if mixed else None
            return cls(rows=Dataset(table), schema=SCHEMAS["gar"], render=render)
        schema = choose_schema(rows[0], options, source="the rows")
        if mixed:  # which Arrow does not store
            forms = [as_messages(column_value(row, schema.prompt)) for row in rows]
            rows = [{**row, schema.prompt: form} for row, form in zip(rows, forms, strict=True)]
        names = dict.fromkeys(chain(*rows))  # `Dataset.from_list` drops what the first row lacks
        return cls(rows=Dataset.from_dict({name: [row.get(name) for row in rows] for name in names}), schema=schema)

    def _check_rows(self) -> None:
        """Check what can be seen of a user's rows without reading them all."""
        # Hashes first: a set of a million ids is large, and equal ids are rare.
        if may_repeat(self._ids()):
            check_ids((f"row {number}", id) for number, id in enumerate(self._ids(), start=1))
        for name, fault in ((self.schema.prompt, "the prompt is empty"), (self.schema.answer, self.schema.no_answer)):
            empty = None if self.is_own else _seen(self.rows, name, pa.ChunkedArray.is_null)
            if empty is not None and empty.any():
                raise DataError(f"row {int(empty.argmax()) + 1}: {fault}. Leave out such rows.")
        _ = self.sample

    def _ids(self) -> Iterator[str]:
        """The ids of a user's rows. A row without one has its place."""
        name, rows = self.schema.id, self.rows
        if rows.format["type"] == "custom" or not isinstance(rows.features.get(name), Value):
            return
        batches: Any = rows.select_columns([name]).with_format(None).iter(_BATCH)
        for number, id in enumerate((id for batch in batches for id in batch[name]), start=1):
            yield f"row {number}" if id is None else str(id)

    @property
    def is_own(self) -> bool:
        """Whether the rows have our own columns (`FEATURES`)."""
        return has_own_columns(self.rows.features)

    def __len__(self) -> int:
        """Number of problems."""
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...
    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        """A problem, or some."""
        chosen = range(len(self))[index]
        if isinstance(chosen, int):
            return self.problem(self.rows[chosen], chosen)
        return [self.problem(self.rows[i], i) for i in chosen]

    def problem(self, row: Row, number: int) -> Problem:
        """The problem of a row with this number. A `DataError` if it gives none."""
        problem = own_problem(row) if self.is_own else problem_of(row, self.schema, place=f"row {number + 1}")
        return problem if self.render is None else self.render(problem)

    def chosen(self, positions: np.ndarray) -> "ProblemSet":
        """Some of these problems, by position."""
        return replace(self, rows=self.rows.select(positions))

    def rendered(self, render: Renderer) -> "ProblemSet":
        """The same problems, each as `render` makes it when it is read."""
        return replace(self, render=render)

    @cached_property
    def sample(self) -> list[Problem]:
        """Up to `SAMPLE` problems, drawn at random, the same each time, in their order."""
        drawn = np.random.default_rng(0).choice(len(self), min(len(self), SAMPLE), replace=False)
        return [self[int(i)] for i in np.sort(drawn)]

    @cached_property
    def anchored(self) -> np.ndarray:
        """Which problems have an expert solution that is not empty, [problems]. Reads no text.

        If a transform of the user may make the column, all.
        """
        seen = [_seen(self.rows, field, _is_filled) for field in self.schema.anchors]
        known = [each for each in seen if each is not None]
        if not known:
            there = any(field.partition(".")[0] in self.rows[0] for field in self.schema.anchors)
            return np.full(len(self), there)
        return np.logical_or.reduce(known)

    @property
    def with_messages(self) -> str | None:
        """The id of the first problem in our own columns with chat messages as its prompt. None if all are text."""
        others = _seen(self.rows, "prompt", pa.ChunkedArray.is_null)
        return self[int(others.argmax())].id if others is not None and others.any() else None

    def anchored_sample(self) -> tuple[list[Problem], bool]:
        """Up to `SAMPLE` problems with an expert solution, and whether there are no others.

        Of a user's data set, those in its sample, if there are any: to look at each row would map the whole file.
        """
        if not self.is_own and (found := [problem for problem in self.sample if problem.anchors]):
            return found, len(self) <= SAMPLE
        owners = np.flatnonzero(self.anchored)
        step = max(1, -(-len(owners) // SAMPLE))
        return [self[int(i)] for i in owners[::step]], len(owners) <= SAMPLE


def _seen(rows: Dataset, name: str, see: Callable[[Any], Any]) -> np.ndarray | None:
    """What `see` makes of a column of Arrow, [rows]. None if a transform may make the column, or there is none."""
    flat = rows.flatten()  # a field of objects is a column
    if rows.format["type"] == "custom" or name not in flat.column_names:
        return None
    values = see(flat.data.column(name)).to_numpy()
    return values if flat._indices is None else values[flat._indices.column(0).to_numpy()]


def _is_filled(values: Any) -> Any:
    """Which values are not null, "" or an empty list. It reads offsets, no text."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        lengths = pc.binary_length(values)  # pyright: ignore
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.list_value_length(values)  # pyright: ignore
    else:
        return values.is_valid()
    return pc.fill_null(pc.greater(lengths, 0), False)  # pyright: ignore


def has_own_columns(names: Mapping[str, Any]) -> bool:
    """Whether a row or a data set with these columns has ours."""
    return FEATURES.keys() <= names.keys()


def own_problem(row: Row) -> Problem:
    """The problem of a row in our own columns."""
    return Problem(
        id=row["id"],
        prompt=row["messages"] if row["prompt"] is None else row["prompt"],
        answer=row["answer"],
        anchors=tuple(Anchor(text=text) for text in row["expert_solution"]),
        source=row["source"],
        choices=tuple(row["choices"]),
        question=row["question"],
    )


def _own_row(problem: Problem) -> Row:
    text = isinstance(problem.prompt, str)
    return {
        "id": problem.id,
        "prompt": problem.prompt if text else None,
        "messages": None if text else problem.prompt,
        "answer": problem.answer,
        "expert_solution": [anchor.text for anchor in problem.anchors],
        "source": problem.source,
        "choices": list(problem.choices),
        "question": problem.question,
    }


def _batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.record_batch({name: [row[name] for row in rows] for name in FEATURES}, schema=_SCHEMA)


@dataclass(frozen=True, kw_only=True)
class StoredProblems:
    """Problems in a file, for the processes that open it.

    Attributes:
        path: Its name. The number of the open file if it has none.
        data_hash: As in `ProblemSet`.
        notes: As in `ProblemSet`.
    """

    path: str | int
    data_hash: str
    notes: Sequence[str]

    def open(self) -> ProblemSet:
        """Map the file into memory. It may then lose its name."""
        with system_errors(str(self.path), "read"), open(self.path, "rb", closefd=isinstance(self.path, str)) as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        table = pa.ipc.open_stream(pa.py_buffer(content)).read_all()
        rows = Dataset(table, fingerprint=self.data_hash)  # `datasets` would hash every byte
        return ProblemSet(rows=rows, schema=SCHEMAS["gar"], data_hash=self.data_hash, notes=self.notes)


@contextmanager
def problem_file(folder: Path | None = None) -> Iterator[Any]:
    """An open file that goes away at the end. With a folder it has a name, by which other processes open it."""
    with system_errors(folder or tempfile.gettempdir(), "written"):
        if folder is None:
            file: Any = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        else:
            file = tempfile.NamedTemporaryFile(dir=folder, prefix=".gar-problems-")  # noqa: SIM115 - closed below
    try:
        yield file
    finally:
        with suppress(OSError):  # `read_problems` has flushed it, or has said why it could not
            file.close()


def read_problems(
    source: str, file: Any, *, options: SourceSettings = DEFAULT_SOURCE, max_problems: int | None = None
) -> StoredProblems:
    """Read every problem of a source into a `problem_file`. Memory holds a batch of rows.

    `datasets` could write it (`Dataset.from_generator`), in three times as long.

    Raises:
        DataError: As `load_problems`.
        RecordError: The file cannot be written.
    """
    reading, digest = Reading(source, options, max_problems), hashlib.sha256()
    with system_errors(file.name, "written"), pa.ipc.new_stream(file, _SCHEMA) as writer:
        rows: Iterator[Row] = map(_own_row, reading)
        while some := list(islice(rows, _BATCH)):
            digest.update(b"".join(to_json(row) + b"\n" for row in some))
            writer.write_batch(_batch_of(some))
    with system_errors(file.name, "written"):
        file.flush()
    return StoredProblems(path=file.name, data_hash=digest.hexdigest(), notes=reading.notes())


def load_problems(
    source: str, *, options: SourceSettings = DEFAULT_SOURCE, max_problems: int | None = None
) -> ProblemSet:
    """The problems of a source, not yet rendered as prompts. (`iter_problems` streams them.)

    Args:
        source: As in `iter_problems`.
        options: Columns, split and revision. None detects the schema.
        max_problems: Stop after this many problems.

    Raises:
        DataError: As `iter_problems`, or an id is used twice, or no row gives a problem.
    """
    with problem_file() as file:
        return read_problems(source, file, options=options, max_problems=max_problems).open()
