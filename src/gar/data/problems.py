"""Load training problems with their expert solutions (anchors) from a file, a folder or the Hub.

A row becomes a `Problem`, or it is `Dropped` for a counted reason (no answer to check against, marked invalid by its
own data set), or it is an error with a line number (malformed, wrong type, an id used twice). A problem without an
anchor is legal: its responses earn no bonus.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from gar.data.rows import OnError, iter_rows, raise_error, row_place, source_name
from gar.data.schemas import ColumnSchema, Dropped, choose_schema, read_problem
from gar.errors import DataError, did_you_mean
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Problem, Prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedProblems:
    """The problems of a source, to be iterated like a list. `notes` names what was dropped and what lacks an anchor.

    Example: LoadedProblems(problems=[...], dropped=[Dropped(place="a.jsonl:7", reason="the answer is empty")],
        column_schema="gar", notes=["anchors.jsonl:412: problem 'n-7' has no anchor; 3 of 930 lack one."])
    """

    problems: list[Problem]
    dropped: list[Dropped]
    column_schema: str
    notes: list[str]

    def __iter__(self) -> Iterator[Problem]:
        """The problems in order."""
        return iter(self.problems)

    def __len__(self) -> int:
        """Number of problems."""
        return len(self.problems)

    @property
    def num_without_anchor(self) -> int:
        """Problems whose responses can earn no bonus."""
        return sum(not problem.anchors for problem in self.problems)


class ProblemReader:
    """Iterates over a source in bounded memory and yields `(place, Problem | Dropped)` for each row.

    After the first row `schema` is the column schema that was chosen. If stderr is a terminal, a progress bar appears
    after two seconds.
    """

    def __init__(
        self, source: str, options: SourceSettings = DEFAULT_SOURCE, *, on_error: OnError = raise_error
    ) -> None:
        """Prepare the reader. Nothing is opened before the iteration starts.

        Args:
            source: A `.jsonl` or `.parquet` file, a folder that `datasets` can load, or a Hub id.
            options: Columns, split and revision.
            on_error: Called with the error for a bad row. If it returns, the row is skipped. Missing columns and an
                empty or unreadable source always raise an error.
        """
        self.source = source
        self.options = options
        self.column_schema: ColumnSchema | None = None
        self._on_error = on_error
        self._columns: dict[str, None] = {}  # in order of appearance

    def __iter__(self) -> Iterator[tuple[str, Problem | Dropped]]:
        """Read the source from its start.

        Yields:
            The place of a row, and its problem or the reason why it gives none.

        Raises:
            DataError: The source is empty or cannot be read, required columns are missing, none of the named anchor
                fields exists, or (unless `on_error` returns) a row is bad.
        """
        options, name = self.options, source_name(self.source)
        rows = iter_rows(
            self.source,
            split=options.split,
            subset=options.subset,
            revision=options.revision,
            on_error=self._on_error,
        )
        for number, row in tqdm(rows, desc=f"reading {name}", unit=" rows", delay=2, disable=None):
            self._columns.update(dict.fromkeys(row))
            self.column_schema = self.column_schema or choose_schema(row, self.options, source=self.source)
            place = row_place(self.source, number)
            try:
                item = read_problem(
                    row, self.column_schema, place=place, default_id=f"{name}-{number}", default_source=name
                )
            except DataError as error:
                self._on_error(error)
            else:
                yield place, item
        self._check_something_was_read()

    def _check_something_was_read(self) -> None:
        if not self._columns:
            raise DataError(f"{self.source}: no rows. Was the file written to the end, and is it the right one?")
        fields = self.options.anchor_fields
        if fields and not any(field in self._columns for field in fields):
            raise DataError(
                f"{self.source}: no row has a column {' or '.join(map(repr, fields))}, named in anchor_fields "
                f"(--anchor-fields). Found {', '.join(map(repr, self._columns))}."
                + did_you_mean(fields[0], self._columns)
            )


def load_problems(
    source: str, *, options: SourceSettings = DEFAULT_SOURCE, max_problems: int | None = None
) -> LoadedProblems:
    """Load every problem of a source into memory. (`ProblemReader` streams them.)

    Args:
        source: A `.jsonl` or `.parquet` file, a folder that `datasets` can load, or a Hub id (`owner/name`).
        options: Columns, split and revision. None detects the schema.
        max_problems: Stop reading after so many problems. None reads all.

    Returns:
        The problems in the order of the source, at least one. The rows that gave none, and notes for the user.

    Raises:
        DataError: A row is bad (malformed, wrong type, an id used twice), columns are missing, the source is empty or
            gives no problem, or the Hub cannot be reached.
    """
    reader = ProblemReader(source, options)
    found: list[tuple[str, Problem]] = []
    dropped: list[Dropped] = []
    for place, item in reader:
        if isinstance(item, Dropped):
            dropped.append(item)
            continue
        found.append((place, item))
        if len(found) == max_problems:
            break
    if not found:
        raise no_problems(source, reader.column_schema, Counter(item.reason for item in dropped))
    problems = distinct_problems(found)
    notes = _drop_notes(dropped, num_rows=len(problems) + len(dropped)) + _anchor_notes(found)
    return LoadedProblems(
        problems=problems,
        dropped=dropped,
        column_schema=reader.column_schema.name if reader.column_schema else "",
        notes=notes,
    )


def problems_of(rows: Iterable[Problem | Mapping[str, Any]], options: SourceSettings = DEFAULT_SOURCE) -> list[Problem]:
    """Problems from what a Python user has: problems, dicts, or a `datasets.Dataset`.

    Args:
        rows: Problems, or rows in one of the schemas of `gar.data.schemas`, for example with the columns prompt,
            answer and expert_solution. All of one kind.
        options: Names of columns. The answer's may be "", which leaves the answers empty.

    Raises:
        DataError: Anything else. Columns are missing. A row gives no problem. An id is used twice.
    """
    found: list[tuple[str, Problem]] = []
    schema: ColumnSchema | None = None
    for number, row in enumerate(rows, start=1):
        if isinstance(row, Problem):
            found.append((f"problem {number}", row))
            continue
        if not isinstance(row, Mapping):
            raise DataError(
                f"problem {number} is {type(row).__name__}, expected a gar.types.Problem or a row with the columns "
                "prompt, answer and expert_solution. For a file: gar.data.problems.load_problems(PATH)."
            )
        place, row = f"row {number}", dict(row)
        schema = schema or choose_schema(row, options, source="the rows")
        item = read_problem(row, schema, place=place, default_id=place, default_source="")
        if isinstance(item, Dropped):
            raise DataError(f"{item.place}: {item.reason}. Leave out such rows.")
        found.append((place, item))
    return distinct_problems(found) if schema else [problem for _, problem in found]


def distinct_problems(found: Iterable[tuple[str, Problem]]) -> list[Problem]:
    """The problems among places and problems.

    Raises:
        DataError: Two have the same id.
    """
    places: dict[str, str] = {}
    problems = []
    for place, problem in found:
        if problem.id in places:
            raise DataError(
                f"{place}: the problem id {problem.id!r} was already used at {places[problem.id]}. Ids name problems "
                "in the records, so they must be unique; were two files joined?"
            )
        places[problem.id] = place
        problems.append(problem)
    return problems


def no_problems(source: str, schema: ColumnSchema | None, reasons: Counter[str]) -> DataError:
    """The error for a source without any problem."""
    counted = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    return DataError(
        f"{source}: none of {reasons.total()} rows gives a problem when read as {schema.name if schema else '?'} "
        f"({counted}). "
        "Is this the right schema? Choose one with --column-schema, or name the columns with --prompt-field and "
        "--answer-field."
    )


def no_expert_solutions(method: str, num_problems: int) -> DataError:
    """The error for problems without any expert solution under a method that needs them."""
    return DataError(
        f"{method} needs expert solutions, and none of the {num_problems:,} problems has one. Name their column with "
        "anchor_fields (--data.anchor_fields), or train with grpo."
    )


def _drop_notes(dropped: list[Dropped], num_rows: int) -> list[str]:
    first = {item.reason: item.place for item in reversed(dropped)}
    counts = Counter(item.reason for item in dropped)
    return [
        f"{first[reason]}: dropped, {reason}; {count} of {num_rows} rows like this."
        for reason, count in counts.most_common()
    ]


def _anchor_notes(found: list[tuple[str, Problem]]) -> list[str]:
    lacking = [f"{place}: problem {problem.id!r} has" for place, problem in found if not problem.anchors]
    return [f"{lacking[0]} no anchor; {len(lacking)} of {len(found)} lack one."] if lacking else []


def prompt_text(prompt: Prompt) -> str:
    """The text of a prompt; for chat messages their contents, one per line."""
    return prompt if isinstance(prompt, str) else "\n".join(message["content"] for message in prompt)


def prompt_hash(prompt: Prompt, seed: int = 0) -> int:
    """A 64-bit hash of a prompt. It ignores white space and is the same for every file and machine."""
    text = " ".join(prompt_text(prompt).split())
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(16, "little")).digest())
