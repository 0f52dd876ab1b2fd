"""Load training problems with their expert solutions (anchors) from a file, a folder or the Hub.

A row becomes a `Problem`. A row without an answer, or one that its own data set marks invalid, is dropped and counted.
A malformed row, a wrong type or an id used twice is an error with a line number. A problem without an anchor is legal:
its responses earn no bonus.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast, get_args

from tqdm import tqdm

from gar.data.arithmetic import SolutionMethod, Split, load_arithmetic
from gar.data.rows import OnError, Row, iter_rows, raise_error, row_place, source_name
from gar.data.schemas import SCHEMAS, ColumnSchema, choose_schema, has_column, read_problem
from gar.errors import DataError, did_you_mean, expect, expect_members
from gar.settings import DEFAULT_SOURCE, EMBEDDED_TASKS, DataSettings, SourceSettings
from gar.types import Anchor, Problem, Prompt, prompt_text

OnDrop = Callable[[str, str], None]
"""Called with the place of a dropped row, and the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedProblems:
    """The problems of a source, to be iterated like a list. `notes` names what was dropped and what lacks an anchor."""

    problems: list[Problem]
    notes: list[str]

    def __iter__(self) -> Iterator[Problem]:
        """The problems in order."""
        return iter(self.problems)

    def __len__(self) -> int:
        """Number of problems."""
        return len(self.problems)


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
    expect(source, str, "source", "the name of a file, a folder or a data set on the Hub", error=DataError)
    if source in EMBEDDED_TASKS:
        generated = load_arithmetic(cast(Split, options.split), cast("SolutionMethod | None", options.subset))
        yield from ((f"{source} {problem.id}", problem) for problem in generated)
        return
    name = source_name(source)
    schema: ColumnSchema | None = None
    columns: dict[str, None] = {}  # in order of appearance
    rows = _rows(source, options, on_error)
    for number, row in tqdm(rows, desc=f"reading {name}", unit=" rows", delay=2, disable=None):
        columns.update(dict.fromkeys(row))
        schema = schema or choose_schema(row, options, source=source)
        place = row_place(source, number)
        try:
            item = read_problem(row, schema, place=place, default_id=f"{name}-{number}", default_source=name)
        except DataError as error:
            on_error(error)
            continue
        if isinstance(item, str):
            on_drop(place, item)
        else:
            yield place, item
    if not columns:
        raise DataError(f"{source}: no rows. Was the file written to the end, and is it the right one?")
    fields = options.anchor_fields
    if fields and not any(has_column(columns, field) for field in fields):
        raise DataError(
            f"{source}: no row has a column {' or '.join(map(repr, fields))}, named in anchor_fields "
            f"(--anchor-fields). Found {', '.join(map(repr, columns))}." + did_you_mean(fields[0], columns)
        )


def schema_of(source: str, options: SourceSettings = DEFAULT_SOURCE) -> ColumnSchema:
    """The column schema of a source that has a row."""
    if source in EMBEDDED_TASKS:
        return SCHEMAS["gar"]
    return choose_schema(next(_rows(source, options, lambda error: None))[1], options, source=source)


def _rows(source: str, options: SourceSettings, on_error: OnError) -> Iterator[tuple[int, Row]]:
    return iter_rows(source, split=options.split, subset=options.subset, revision=options.revision, on_error=on_error)


def load_problems(
    source: str, *, options: SourceSettings = DEFAULT_SOURCE, max_problems: int | None = None
) -> LoadedProblems:
    """Load every problem of a source into memory. (`iter_problems` streams them.)

    Args:
        source: As in `iter_problems`.
        options: Columns, split and revision. None detects the schema.
        max_problems: Stop after this many problems.

    Raises:
        DataError: As `iter_problems`, or an id is used twice, or no row gives a problem.
    """
    dropped: list[tuple[str, str]] = []
    problems = iter_problems(source, options, on_drop=lambda place, reason: dropped.append((place, reason)))
    found = list(islice(problems, max_problems))
    if not found:
        raise no_problems(source, options, Counter(reason for _, reason in dropped))
    return LoadedProblems(problems=distinct_problems(found), notes=_notes(found, dropped))


def load_run_problems(settings: DataSettings) -> LoadedProblems:
    """The first `max_problems` problems of a run, not yet rendered as prompts.

    Raises:
        DataError: As `load_problems`.
    """
    return load_problems(settings.source, options=settings, max_problems=settings.max_problems)


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
    found: list[tuple[str, Problem]] = []
    schema: ColumnSchema | None = None
    for number, row in enumerate(rows, start=1):
        place, item = f"row {number}", row
        if isinstance(row, Mapping):
            schema = schema or choose_schema(row, options, source="the rows")
            item = read_problem(dict(row), schema, place=place, default_id=place, default_source="")
            if isinstance(item, str):
                raise DataError(f"{place}: {item}. Leave out such rows.")
        if not isinstance(item, Problem):
            raise DataError(
                f"problem {number} is {type(row).__name__}, expected a gar.types.Problem or a row with the columns "
                "prompt, answer and expert_solution. For a file: gar.data.load_problems(PATH)."
            )
        expect(item.prompt, (str, list), f"{place}: prompt", "a text or chat messages", error=DataError)
        expect(item.answer, str, f"{place}: answer", "a text", error=DataError)
        expect_members(item.anchors, Anchor, f"{place}: anchors", "a gar.Anchor", error=DataError)
        found.append((place, item))
    return distinct_problems(found) if schema else [problem for _, problem in found]


def distinct_problems(found: Iterable[tuple[str, Problem]]) -> list[Problem]:
    """The problems among places and problems. A `DataError` if two have the same id."""
    places: dict[str, str] = {}
    problems = []
    for place, problem in found:
        if problem.id in places:
            raise DataError(
                f"{place}: the problem id {problem.id!r} was already used at {places[problem.id]}. Ids name problems "
                "in the records, so they must be unique. Were two files joined?"
            )
        places[problem.id] = place
        problems.append(problem)
    return problems


def no_problems(source: str, options: SourceSettings, reasons: Counter[str]) -> DataError:
    """The error for a source without any problem."""
    counted = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    return DataError(
        f"{source}: none of {reasons.total()} rows gives a problem when read as {schema_of(source, options).name} "
        f"({counted}). Is this the right schema? Choose one with --column-schema, or name the columns with "
        "--prompt-field and --answer-field."
    )


def _notes(found: list[tuple[str, Problem]], dropped: list[tuple[str, str]]) -> list[str]:
    """What was dropped and what lacks an anchor: the first place of each, and how many."""
    first = {reason: place for place, reason in reversed(dropped)}
    counts = Counter(reason for _, reason in dropped).most_common()
    num_rows = len(found) + len(dropped)
    notes = [f"{first[reason]}: dropped, {reason} ({count} of {num_rows} rows)." for reason, count in counts]
    lacking = [f"{place}: problem {problem.id!r} has" for place, problem in found if not problem.anchors]
    return [*notes, f"{lacking[0]} no anchor ({len(lacking)} of {len(found)} lack one)."] if lacking else notes


def prompt_hash(prompt: Prompt, seed: int = 0) -> int:
    """A 64-bit hash of a prompt. It ignores white space and is the same for every file and machine."""
    text = " ".join(prompt_text(prompt).split())
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(16, "little")).digest())
