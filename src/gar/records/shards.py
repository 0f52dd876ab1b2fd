"""Rollout files: few files for any number of steps, and one reader that knows which file holds a step.

    rollouts/step-000101.parquet           a step, as it is written
    rollouts/steps-000001-000100.parquet   the steps of a block, merged: one row group per step

Blocks hold 100 steps, later 1,000; the first begins at step 1. Once the last step of a block, or a later step, is
written, the files of the block are merged into one. So the files depend only on which steps were written, not on where
a run was killed: one file per 1,000 steps, and at most 108 smaller ones. Larger blocks would save little; writing one
costs 40 KB of memory per step for the footer, and the disk space of a second copy.

A merge removes files only after their replacement is on the disk. A kill in between leaves a step in two files with
equal rows; it is read once, from the smaller file.
"""

import errno
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from gar.errors import RecordError
from gar.records.files import (
    atomic_file,
    check_columns,
    parquet_errors,
    read_parquet,
    remove_file,
    sync_folder,
    write_parquet,
)
from gar.records.rollouts import sound_columns, sound_rows

BLOCK_STEPS = (100, 1_000)
"""Sizes of blocks; each a multiple of the one before."""
Result = TypeVar("Result")
_NAME = re.compile(r"step-(\d+)\.parquet|steps-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class RolloutFile:
    """A file that holds the rollouts of steps `first` to `last`, as its name says."""

    folder: Path
    first: int
    last: int

    @property
    def path(self) -> Path:
        """Path of the file."""
        if self.first == self.last:
            return self.folder / f"step-{self.first:06d}.parquet"
        return self.folder / f"steps-{self.first:06d}-{self.last:06d}.parquet"

    @property
    def num_steps(self) -> int:
        """Number of steps that its name spans; a run that does not generate at every step has fewer."""
        return self.last - self.first + 1


def rollout_files(folder: Path) -> list[RolloutFile]:
    """Rollout files in `folder`, smaller ones first. Files with other names do not count."""
    paths = list(folder.glob("step*.parquet"))
    names = (_NAME.fullmatch(path.name) for path in paths)
    files = [RolloutFile(folder, int(name[1] or name[2]), int(name[1] or name[3])) for name in names if name]
    known = [file for file in files if file.first <= file.last and file.path in paths]
    return sorted(known, key=lambda file: (file.num_steps, file.first))


def block_of(step: int, written: int) -> tuple[int, int]:
    """First and last step of the file that holds `step` when `written` is the last step written.

    Example:
        >>> [block_of(step, 1099) for step in (7, 1007, 1098)]
        [(1, 1000), (1007, 1007), (1098, 1098)]
        >>> block_of(1007, 1100)
        (1001, 1100)
    """
    first = last = step
    for size in BLOCK_STEPS:
        end = -(-step // size) * size
        if 0 < end <= written:
            first, last = end - size + 1, end
    return first, last


class RolloutReader:
    """Reads the rollouts of single steps, in whichever file they are.

    It remembers which file holds which step, and looks again if a file is gone: a run that is still being written
    merges its files. The shard that was read last stays open.

    Args:
        folder: The folder `rollouts` of a run; if it does not exist, there are no steps.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._shard: _Shard | None = None
        self._files = self._find_files()

    @property
    def steps(self) -> list[int]:
        """Steps with rollouts, ascending. A shard that cannot be read counts for all steps in its name."""
        return list(self._files)

    def read(self, step: int, columns: Sequence[str] | None = None, *, optional: Collection[str] = ()) -> pa.Table:
        """The rollouts of a step, checked against what `RunFolder.write_rollouts` writes.

        Args:
            step: Which step.
            columns: Which columns, in this order; None all of them.
            optional: Columns that files of earlier versions may lack; they are null.

        Raises:
            RecordError: There is no such step, its file cannot be read, or its rows are not what was written.
        """

        def rows(file: RolloutFile) -> pa.Table:
            names = sound_columns(self._described(file, step)[1], columns, file.path, optional=optional)
            return sound_rows(self._rows(file, step, names), step, columns, file.path)

        return self._from_file(step, rows)

    def read_unchecked(self, step: int) -> pa.Table:
        """The rows of a step exactly as its file has them.

        Raises:
            RecordError: There is no such step, or its file cannot be read.
        """
        return self._from_file(step, lambda file: self._rows(file, step, None))

    def describe(self, step: int) -> tuple[int, list[str]]:
        """Number of rows and column names of a step, without reading the rows.

        Raises:
            RecordError: There is no such step, or its file cannot be read.
        """
        return self._from_file(step, lambda file: self._described(file, step))

    def _rows(self, file: RolloutFile, step: int, columns: Sequence[str] | None) -> pa.Table:
        if file.num_steps == 1:
            return read_parquet(file.path, columns)
        return self._opened(file).read(step, columns)

    def _described(self, file: RolloutFile, step: int) -> tuple[int, list[str]]:
        if file.num_steps > 1:
            return self._opened(file).describe(step)
        with parquet_errors(file.path), pq.ParquetFile(file.path) as parquet:
            return parquet.metadata.num_rows, parquet.schema_arrow.names

    def _from_file(self, step: int, read: Callable[[RolloutFile], Result]) -> Result:
        try:
            return read(self._file_of(step))
        except RecordError as error:
            if error.errno != errno.ENOENT:
                raise
        self._files = self._find_files()
        return read(self._file_of(step))

    def _file_of(self, step: int) -> RolloutFile:
        if step not in self._files:
            steps = self.steps
            known = f"steps {steps[0]} to {steps[-1]}" if steps else "none"
            raise RecordError(f"{self._folder.parent}: no rollouts of step {step}; there are {known}.")
        return self._files[step]

    def _find_files(self) -> dict[int, RolloutFile]:
        self._shard = None
        files: dict[int, RolloutFile] = {}
        for file in rollout_files(self._folder):
            for step in self._steps_in(file):
                files.setdefault(step, file)
        return dict(sorted(files.items()))

    def _steps_in(self, file: RolloutFile) -> Sequence[int]:
        if file.num_steps > 1:
            with suppress(RecordError):  # `read` says what is wrong with it
                return self._opened(file).steps
        return range(file.first, file.last + 1)

    def _opened(self, file: RolloutFile) -> "_Shard":
        if self._shard is None or self._shard.path != file.path:
            self._shard = _Shard(file)
        return self._shard


class _Shard:
    """An open file of many steps. Its rows are found by their column `step`, whatever their row groups."""

    def __init__(self, file: RolloutFile):
        self.path = file.path
        with parquet_errors(self.path):
            self._parquet = pq.ParquetFile(self.path)
            self._check(["step"])
            numbers = self._parquet.read(columns=["step"])["step"].to_pylist()
        foreign = [number for number in set(numbers) if number not in range(file.first, file.last + 1)]
        if foreign:
            raise RecordError(
                f"{self.path}: column 'step' must lie in [{file.first}, {file.last}], got {foreign[0]!r}. "
                "Was the file renamed or changed by hand?"
            )
        self._num_rows = Counter(numbers)
        self._groups: dict[int, list[int]] = {step: [] for step in self._num_rows}
        start = 0
        for group in range(self._parquet.num_row_groups):
            end = start + self._parquet.metadata.row_group(group).num_rows
            for step in set(numbers[start:end]):
                self._groups[step].append(group)
            start = end

    @property
    def steps(self) -> list[int]:
        return list(self._groups)

    def describe(self, step: int) -> tuple[int, list[str]]:
        return self._num_rows[step], self._parquet.schema_arrow.names

    def read(self, step: int, columns: Sequence[str] | None) -> pa.Table:
        self._check(columns or ())
        wanted = columns if columns is None or "step" in columns else [*columns, "step"]
        with parquet_errors(self.path):
            table = self._parquet.read_row_groups(self._groups[step], columns=None if wanted is None else list(wanted))
        if len(table) != self._num_rows[step]:  # rewritten by another tool
            table = table.filter(pa.array([number == step for number in table["step"].to_pylist()]))
        return table if columns is None or "step" in columns else table.drop_columns("step")

    def _check(self, columns: Sequence[str]) -> None:
        check_columns(self.path, self._parquet.schema_arrow.names, columns)


def block_ended(folder: Path, step: int) -> bool:
    """Whether writing `step` has completed a block, or changed a completed one."""
    previous = max((file.last for file in rollout_files(folder) if file.last != step), default=0)
    return step < previous or any(step // size > previous // size for size in BLOCK_STEPS)


def merge_rollouts(folder: Path) -> None:
    """Merge the files of every block whose last step was reached.

    A block stays as it is if a file in it cannot be read, its files differ in their columns, or they hold rows of other
    steps: readers say what is wrong, and training goes on.

    Raises:
        RecordError: A file cannot be written or removed. No row was lost.
    """
    files = rollout_files(folder)
    written = max((file.last for file in files), default=0)
    blocks: dict[tuple[int, int], list[RolloutFile]] = defaultdict(list)
    for file in files:
        block = block_of(file.last, written)
        if block[0] <= file.first:
            blocks[block].append(file)
    for (first, last), parts in blocks.items():
        whole = RolloutFile(folder, first, last)
        if parts != [whole]:
            with suppress(_NotMergeable):
                _write_shard(whole, _tables(folder, first, last))
                _remove(file for file in parts if file != whole)


def cut_rollouts(folder: Path, after_step: int) -> None:
    """Remove the rollouts of all later steps. The files that remain are those of a run to `after_step`.

    A kill in the middle leaves every step up to `after_step`, so that the cut can be repeated.

    Raises:
        RecordError: A file that holds earlier and later steps cannot be read, or one cannot be written or removed.
    """
    files = [file for file in rollout_files(folder) if file.last > after_step]
    reader = RolloutReader(folder)
    written = set(reader.steps)
    for file in files:
        for step in sorted(written.intersection(range(file.first, after_step + 1))):
            write_parquet(RolloutFile(folder, step, step).path, reader.read_unchecked(step))
    # From the last step backwards: a kill leaves no gap, and the files that were split go last.
    _remove(sorted(files, key=lambda file: file.first, reverse=True))
    merge_rollouts(folder)


class _NotMergeable(Exception):
    """Files of a block cannot be read, differ in their columns, or hold rows of other steps."""


def _tables(folder: Path, first: int, last: int) -> Iterator[pa.Table]:
    """The rows of the steps of a block, step by step."""
    reader = RolloutReader(folder)
    steps = [step for step in reader.steps if first <= step <= last]
    try:
        columns = {tuple(reader.describe(step)[1]) for step in steps}  # before anything is written
        if len(columns) > 1 or not all("step" in names for names in columns):
            raise _NotMergeable
        for step in steps:
            table = reader.read_unchecked(step)
            if {*table["step"].to_pylist()} - {step}:
                raise _NotMergeable
            yield table
    except RecordError as error:
        raise _NotMergeable from error


def _write_shard(file: RolloutFile, tables: Iterator[pa.Table]) -> None:
    """Write tables, one row group each. Equal rows give equal bytes, whatever files they were read from.

    Statistics of text columns would put texts into the footer, which every reader parses as a whole.
    """
    first = next(tables, None)
    if first is None:  # no step of the block has rows
        return
    options: dict[str, Any] = {"write_statistics": ["step"]}  # the type stubs allow only a bool
    with atomic_file(file.path) as out, pq.ParquetWriter(out, first.schema, **options) as writer:
        for table in chain([first], tables):
            if len(table):
                writer.write_table(table, row_group_size=len(table))


def _remove(files: Iterable[RolloutFile]) -> None:
    """Remove files, once the folder's entries are on the disk."""
    for number, file in enumerate(files):
        if number == 0:
            sync_folder(file.folder)
        remove_file(file.path)
