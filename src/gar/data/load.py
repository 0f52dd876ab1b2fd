"""The problems of a run: read from their source once, kept in an Arrow file, and read from there one at a time.

The file has no name any more when all processes have opened it. Ranks share it. Memory holds the rows
in use. Nothing is left of the file. If a process is killed before, the next run removes its file.
"""

import fcntl
import os
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm
from xxhash import xxh3_128

from gar.data.columns import SCHEMA, Digest, batch_of, problem_at, prompt_bytes
from gar.data.problems import OnDrop, iter_problems, no_problems, repeated_id
from gar.data.prompts import Renderer
from gar.data.table import LazyProblems, filled
from gar.errors import DataError
from gar.reader import Reader
from gar.records.files import system_errors
from gar.settings import DEFAULT_SOURCE, SourceSettings
from gar.types import Problem

_BATCH = 4096
_ENCODED = 1024
_PREFIX, _SUFFIX = ".gar-problems-", ".arrow"


@dataclass(frozen=True, kw_only=True, eq=False)
class ProblemTable(LazyProblems):
    """Problems in an Arrow file, each read when it is asked for.

    Attributes:
        path: The file.
        digest: A checksum of its rows.
        rows: Its rows.
        prompt_bytes: A number of UTF-8 bytes that no prompt exceeds, however it is normalized, [problems]. -1 if
            unknown.
        positions: The rows of the problems, ascending.
        notes: What was dropped and what lacks an anchor.
        render: Makes each problem of the one in the file. None if they are equal.
    """

    path: Path
    digest: str
    rows: pa.Table
    prompt_bytes: np.ndarray
    positions: np.ndarray
    notes: Sequence[str] = ()
    render: Renderer | None = None

    @classmethod
    def open(cls, path: Path, digest: str, prompt_bytes: np.ndarray | None = None) -> "ProblemTable":
        """All problems of a file."""
        with system_errors(path, "read"):
            rows: pa.Table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        known = np.full(len(rows), -1) if prompt_bytes is None else prompt_bytes
        return cls(path=path, digest=digest, rows=rows, prompt_bytes=known, positions=np.arange(len(rows)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the file."""
        return type(self).open, (self.path, self.digest)

    def __len__(self) -> int:
        """Number of problems."""
        return len(self.positions)

    def _read(self, index: int) -> Problem:
        (problem,) = self._made(self.rows.slice(int(self.positions[index]), 1))
        return problem

    def __iter__(self) -> Iterator[Problem]:
        """The problems in order."""
        first = 0
        for batch in self.rows.to_batches():
            start, end = np.searchsorted(self.positions, (first, first + len(batch)))
            inside = self.positions[start:end] - first
            yield from self._made(batch if len(inside) == len(batch) else batch.take(pa.array(inside)))
            first += len(batch)

    def _made(self, rows: pa.Table | pa.RecordBatch) -> Iterator[Problem]:
        problems = map(problem_at, rows.to_pylist())
        return problems if self.render is None else map(self.render, problems)

    def chosen(self, positions: np.ndarray) -> "ProblemTable":
        """Some of these problems, by ascending positions."""
        return replace(self, positions=self.positions[positions], prompt_bytes=self.prompt_bytes[positions])

    def rendered(self, render: Renderer) -> "ProblemTable":
        """The same problems, each as `render` makes it when it is read."""
        return replace(self, render=render)

    @property
    def anchored(self) -> np.ndarray:
        """As `LazyProblems`."""
        return filled(self.rows.column("anchors"))[self.positions]

    @property
    def with_messages(self) -> str | None:
        """The id of the first problem with chat messages as its prompt. None if all are text."""
        prompts = self.rows.column("prompt")
        if not prompts.null_count:
            return None
        return self.rows.column("id")[int(np.argmin(prompts.is_valid().to_numpy()))].as_py()

    def data_hash(self) -> str:
        """A checksum of the problems and of how they are rendered."""
        return xxh3_128(f"{self.digest} {self.render}".encode() + self.positions.astype("<i8").tobytes()).hexdigest()


def load_problems(
    source: str, *, options: SourceSettings = DEFAULT_SOURCE, max_problems: int | None = None
) -> ProblemTable:
    """The problems of a source, not yet rendered as prompts. (`iter_problems` streams them.)

    Args:
        source: As in `iter_problems`.
        options: Columns, split and revision. None detects the schema.
        max_problems: Stop after this many problems.

    Raises:
        DataError: As `iter_problems`, or an id is used twice, or no row gives a problem.
    """
    table = store_problems(source, options=options, max_problems=max_problems)
    table.path.unlink()
    return table


def store_problems(
    source: str,
    *,
    options: SourceSettings = DEFAULT_SOURCE,
    max_problems: int | None = None,
    folder: Path | None = None,
) -> ProblemTable:
    """Read every problem of a source into a file that the caller removes when all processes have opened it.

    Memory holds a batch of rows. `folder` is where the file lies, None for the folder of temporary files.

    Raises:
        DataError: As `load_problems`.
        RecordError: The file cannot be written.
    """
    first, counts = dict[str, str](), Counter[str]()

    def drop(place: str, reason: str) -> None:
        first.setdefault(reason, place)
        counts[reason] += 1

    batches = _batches(source, options, max_problems, drop)
    handle, path = _locked_file(Path(folder or tempfile.gettempdir()))
    try:
        with system_errors(path, "written"):
            digest, prompt_bytes = _write(path, batches)
        if not len(prompt_bytes):
            raise no_problems(source, options, counts)
        table = ProblemTable.open(path, digest, prompt_bytes)
        ids = table.rows.column("id")
        if pc.count_distinct(ids).as_py() < len(ids):  # pyright: ignore
            raise repeated_id(zip(table.rows.column("place").to_pylist(), ids.to_pylist(), strict=True))
    except BaseException:
        path.unlink()
        os.close(handle)
        raise
    table = replace(table, notes=_notes(table, first, counts))
    weakref.finalize(table, os.close, handle)  # and with it the lock
    return table


def _locked_file(folder: Path) -> tuple[int, Path]:
    """A new file under a lock that ends with this process. Removes those without one: their processes were killed."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError), path.open("rb") as left:
            fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    while True:
        handle, name = tempfile.mkstemp(_SUFFIX, _PREFIX, folder)
        with suppress(OSError):  # a file system without locks keeps what a killed process leaves
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(name):
            return handle, Path(name)
        os.close(handle)  # another run has removed it before it was locked


def _notes(table: ProblemTable, first: Mapping[str, str], counts: Counter[str]) -> list[str]:
    """What was dropped and what lacks an anchor: the first place of each, and how many."""
    total = len(table) + counts.total()
    notes = [f"{first[reason]}: dropped, {reason} ({count} of {total} rows)." for reason, count in counts.most_common()]
    lacking = np.flatnonzero(~filled(table.rows.column("anchors")))
    if len(lacking):
        place, id = (table.rows.column(name)[int(lacking[0])].as_py() for name in ("place", "id"))
        missing = f"no expert solution ({len(lacking)} of {len(table)} lack one)"
        notes.append(f"{place}: problem {id!r} has {missing}.")
    return notes


def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> tuple[str, np.ndarray]:
    """Write problems. Returns a checksum of them, and a bound of each prompt's bytes."""
    digest, bounds = Digest(), [np.zeros(0, dtype=np.int64)]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        for batch in batches:
            digest.add(batch)
            writer.write_batch(batch)
            bounds.append(prompt_bytes(batch.column("prompt")))
    return digest.hex(), np.concatenate(bounds)


def _batches(source: str, options: SourceSettings, most: int | None, on_drop: OnDrop) -> Iterator[pa.RecordBatch]:
    """Up to `most` problems of a source, some at a time. Reads no row after the last one."""
    found = islice(iter_problems(source, options, on_drop=on_drop), most)
    while some := list(islice(found, _BATCH)):
        yield batch_of(some)


def prompt_lengths(problems: ProblemTable, render: Renderer, reader: Reader, *, enough: float) -> np.ndarray:
    """The number of tokens of each prompt that `render` makes, as an engine would encode it, [problems].

    A token of a byte-level tokenizer has at least one byte of the text. So a prompt of few bytes has at most `enough`
    tokens: it is not encoded, and its number here is an upper bound.
    """
    around, known = reader.bytes_around(render.prompt), problems.prompt_bytes
    lengths = np.full(len(problems), -1) if around is None else np.where(known < 0, -1, known + around)
    unknown = np.flatnonzero((lengths < 0) | (lengths > enough))
    bar = tqdm(total=len(unknown), desc="measuring prompts", unit=" prompts", delay=2, disable=None)
    prompts = (problem.prompt for problem in problems.chosen(unknown).rendered(render))
    for start in range(0, len(unknown), _ENCODED):
        some = list(islice(prompts, _ENCODED))
        lengths[unknown[start : start + _ENCODED]] = list(map(len, reader.encode_all(some)))
        bar.update(len(some))
    bar.close()
    return lengths


def fitting(lengths: np.ndarray, max_prompt_tokens: int) -> np.ndarray:
    """The positions of the prompts of at most `max_prompt_tokens` tokens. A `DataError` if none fits."""
    kept = np.flatnonzero(lengths <= max_prompt_tokens)
    if not len(kept):
        raise DataError(
            f"no prompt fits into max_prompt_tokens = {max_prompt_tokens}: the shortest of {len(lengths)} has "
            f"{lengths.min()}, the median {np.median(lengths):.0f}, the instruction and the chat template included. "
            "Raise the limit. If the numbers look too large, is it the model's own tokenizer?"
        )
    return kept
