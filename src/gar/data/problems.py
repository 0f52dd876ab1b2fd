"""Read training problems with their expert solutions (anchors) from a file, a folder or the Hub.

A row becomes a `Problem`. A row without an answer, or one that its own data set marks invalid, is dropped and counted.
A malformed row, a wrong type or an id used twice is an error with a line number. A problem without an anchor is legal:
its responses earn no bonus.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast, get_args

from tqdm import tqdm

from gar.data.arithmetic import SolutionMethod, Split, load_arithmetic
from gar.data.rows import OnError, iter_rows, raise_error, row_place, source_name
from gar.data.schemas import SCHEMAS, ColumnSchema, check_schema, choose_schema, has_column, read_problem
from gar.errors import DataError, did_you_mean, expect, expect_members
from gar.settings import DEFAULT_SOURCE, EMBEDDED_TASKS, DataSettings, SourceSettings
from gar.types import Anchor, Problem, Prompt, prompt_text

OnDrop = Callable[[str, str], None]
"""Called with the place of a dropped row, and the reason."""


def iter_problems(
    source: str,
    options: SourceSettings = DEFAULT_SOURCE,
    *,
    on_error: OnError = raise_error,
    on_drop: OnDrop = lambda place, reason: None,
) -> Iterator[tuple[str, Problem]]:
    """Read the problems of a source in bounded memory, each with the place of its row.

    `on_error` is called with the error for a bad row. If it returns, the row is skipped. Missing columns and an empty
    or unreadable source always raise a `DataError`. On a terminal a progress bar appears after two seconds.
    """
    if source in EMBEDDED_TASKS:
        generated = load_arithmetic(cast(Split, options.split), cast("SolutionMethod | None", options.subset))
        yield from ((f"{source} {problem.id}", problem) for problem in generated)
        return
    # What a row without an id or a source gets comes from the name of the file.
    expect(source, str, "source", "the name of a file, a folder or a data set on the Hub", error=DataError)
    name, columns = source_name(source), dict[str, None]()  # in order of appearance
    schema: ColumnSchema | None = None
    rows = iter_rows(source, split=options.split, subset=options.subset, revision=options.revision, on_error=on_error)
    for number, row in tqdm(rows, f"reading {name}", unit=" rows", delay=2, disable=None):
        place = row_place(source, number)
        schema = schema or choose_schema(row, options, source=source)  # the first row decides
        if not row.keys() <= columns.keys():
            columns.update(dict.fromkeys(row))
            check_schema(schema, columns, options, place=place, source=source)
        try:
            item = read_problem(row, schema, place=place, default_id=f"{name}-{number}", default_source=name)
        except DataError as error:
            on_error(error)
            continue
        if isinstance(item, str):
            on_drop(place, item)
        else:
            yield place, item
    # Only now is it known which columns there are: a row of JSON may leave out what is null.
    _check_columns(source, columns, options.expert_fields)


def _check_columns(source: str, columns: Collection[str], fields: Sequence[str] | None) -> None:
    """Raise a `DataError` if a source has no row, or if no row has one of the expert fields that the user named."""
    if not columns:
        raise DataError(f"{source}: no rows. Was the file written to the end, and is it the right one?")
    if fields and not any(has_column(columns, field) for field in fields):
        raise DataError(
            f"{source}: no row has a column {' or '.join(map(repr, fields))}, named in expert_fields "
            f"(--expert-fields). Found {', '.join(map(repr, columns))}." + did_you_mean(fields[0], columns)
        )


def schema_of(source: str, options: SourceSettings = DEFAULT_SOURCE) -> ColumnSchema:
    """The column schema of a source that has a row."""
    if source in EMBEDDED_TASKS:
        return SCHEMAS["gar"]
    rows = iter_rows(
        source, split=options.split, subset=options.subset, revision=options.revision, on_error=lambda error: None
    )
    return choose_schema(next(rows)[1], options, source=source)


def evaluation_data(data: DataSettings, source: str) -> DataSettings:
    """Data settings of an evaluation set: the run's, with another source or another split of a generated task."""
    if source not in get_args(Split) or Path(source).exists():
        return data.model_copy(update={"source": source})
    task = data.source if data.source in EMBEDDED_TASKS else EMBEDDED_TASKS[0]
    return data.model_copy(update={"source": task, "split": source})


def problems_of(rows: Iterable[Problem | Mapping[str, Any]], options: SourceSettings = DEFAULT_SOURCE) -> list[Problem]:
    """Problems from what a Python user has: problems, or rows (also a `datasets.Dataset`) in one of the known schemas.

    A `DataError` names a row that is anything else or gives no problem, and an id that is used twice. The name of the
    answer's column may be "", which leaves the answers empty.
    """
    found: list[Problem] = []
    columns = dict[str, None]()
    schema: ColumnSchema | None = None
    for number, row in enumerate(rows, start=1):
        item = row
        if isinstance(row, Mapping):
            schema = schema or choose_schema(row, options, source="the rows")
            if not row.keys() <= columns.keys():
                columns.update(dict.fromkeys(row))
                check_schema(schema, columns, options, place=f"row {number}", source="the rows")
            item = problem_of(row, schema, place=f"row {number}")
        if not isinstance(item, Problem):
            raise DataError(
                f"problem {number} is {type(row).__name__}, expected a gar.types.Problem or a row with the columns "
                "prompt, answer and expert_solution. For a file: gar.data.load_problems(PATH)."
            )
        expect(item.prompt, (str, list), f"row {number}: prompt", "a text or chat messages", error=DataError)
        expect(item.answer, str, f"row {number}: answer", "a text", error=DataError)
        expect_members(item.anchors, Anchor, f"row {number}: anchors", "a gar.Anchor", error=DataError)
        found.append(item)
    if schema:
        check_ids((f"row {number}", problem.id) for number, problem in enumerate(found, start=1))
    return found


def problem_of(row: Mapping[str, Any], schema: ColumnSchema, *, place: str, default_id: str = "") -> Problem:
    """The problem of a row of a Python user's data set. A `DataError`, which begins with `place`, if it gives none."""
    item = read_problem(dict(row), schema, place=place, default_id=default_id or place, default_source="")
    if isinstance(item, str):
        raise DataError(f"{place}: {item}. Leave out such rows.")
    return item


def check_ids(found: Iterable[tuple[str, str]]) -> None:
    """Raise a `DataError` for the first id that is used twice among places and ids."""
    places: dict[str, str] = {}
    for place, id in found:
        if id in places:
            raise DataError(
                f"{place}: the problem id {id!r} was already used at {places[id]}. Ids name problems in the records, "
                "so they must be unique. Were two files joined?"
            )
        places[id] = place


def no_problems(source: str, options: SourceSettings, reasons: Counter[str]) -> DataError:
    """The error for a source without any problem."""
    counted = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    return DataError(
        f"{source}: no usable row among {reasons.total()} ({counted}). The columns were read with the schema "
        f"{schema_of(source, options).name}. Choose another with --column-schema, or name the columns with "
        "--prompt-field and --answer-field."
    )


def no_experts(method: str, num_problems: int) -> DataError:
    """The error for problems without any expert solution, for a method that needs them."""
    return DataError(
        f"{method} needs expert solutions, and none of the {num_problems:,} problems has one. Name their column with "
        "expert_fields (--data.expert_fields), or train with grpo.",
        code="no-anchors",
    )


class Reading:
    """One pass over a source. Iterate over it once: it counts what it drops and what lacks an expert solution.

    Args:
        source: As in `iter_problems`.
        options: Columns, split and revision. None detects the schema.
        max_problems: Stop after this many problems, and read no further row.

    Raises:
        DataError: In the pass, as `iter_problems`, or at its end: no row gives a problem, or an id is used twice.
    """

    def __init__(self, source: str, options: SourceSettings, max_problems: int | None = None):
        self._source, self._options, self._most = source, options, max_problems
        self._ids = array("q")  # hashes: a million ids take 8 MB
        self._dropped, self._first_dropped = Counter[str](), dict[str, str]()
        self._num_lacking, self._first_lacking = 0, ""

    def __iter__(self) -> Iterator[Problem]:
        """The problems."""
        for place, problem in islice(iter_problems(self._source, self._options, on_drop=self._drop), self._most):
            self._ids.append(hash(problem.id))
            if not problem.anchors:
                self._num_lacking += 1
                self._first_lacking = self._first_lacking or f"{place}: problem {problem.id!r}"
            yield problem
        if not self._ids:
            raise no_problems(self._source, self._options, self._dropped)
        if _repeats(self._ids):  # rare: the places are found in a second pass
            again = islice(iter_problems(self._source, self._options), self._most)
            check_ids((place, problem.id) for place, problem in again)

    def _drop(self, place: str, reason: str) -> None:
        self._first_dropped.setdefault(reason, place)
        self._dropped[reason] += 1

    def notes(self) -> list[str]:
        """After the pass: the first place of what was dropped and of what lacks an expert solution, and how many."""
        num_kept, total = len(self._ids), len(self._ids) + self._dropped.total()
        notes = [
            f"{self._first_dropped[reason]}: dropped, {reason} ({count} of {total} rows)."
            for reason, count in self._dropped.most_common()
        ]
        if self._num_lacking:
            missing = f"no expert solution ({self._num_lacking} of {num_kept} lack one)"
            notes.append(f"{self._first_lacking} has {missing}.")
        return notes


def may_repeat(ids: Iterable[str]) -> bool:
    """Whether two ids may be equal. Certain for False: hashes are compared, which are smaller than a set of ids."""
    return _repeats(array("q", map(hash, ids)))


def _repeats(ids: "array[int]") -> bool:
    import numpy as np  # which `gar data check` does without

    hashes = np.sort(np.array(ids, dtype=np.int64))
    return bool((hashes[1:] == hashes[:-1]).any())


def prompt_hash(prompt: Prompt, seed: int = 0) -> int:
    """A 64-bit hash of a prompt. It ignores white space and is the same for every file and machine."""
    text = " ".join(prompt_text(prompt).split())
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(16, "little")).digest())
