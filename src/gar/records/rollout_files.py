"""The rollouts of a run in files of many steps.

    rollouts/steps-000001-000100.parquet   one row per response, see `gar.records.rollouts`
    rollouts.arrows                        the steps since the last file, an Arrow stream

Each step is appended to the stream and listed in the manifest, so a crash loses none. The stream becomes a file at a
checkpoint, at the end of the run, and when it is large. So a file ends at each checkpoint, and a resume removes whole
ones.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from gar.errors import RecordError, first_line
from gar.records.files import read_parquet, remove_file, write_parquet
from gar.records.manifest import Fault, Manifest, fault_of
from gar.records.rollouts import ROLLOUT_SCHEMA

GROWING = "rollouts.arrows"
_compute: Any = pyarrow.compute  # its functions are made when it is imported
FILE_BYTES = 64 * 2**20
"""Size at which the stream becomes a file. It bounds the memory of writing and reading one."""

_NAME = re.compile(r"rollouts/steps-(\d{6,})-(\d{6,})\.parquet")
_TEXTS = {"prompt", "response"}
"""Columns that take most of the memory. They are not kept."""


def file_steps(name: str) -> tuple[int, int] | None:
    """First and last step of a finished file, from its path in the run folder. None for another file."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def append_rollouts(manifest: Manifest, table: pa.Table) -> None:
    """Add the rollouts of a step, all of them or none."""
    if not table.num_rows:
        return
    head = [] if GROWING in manifest.entries else [table.schema]
    manifest.append(GROWING, b"".join(part.serialize().to_pybytes() for part in [*head, *table.to_batches()]))
    if manifest.entries[GROWING].size >= FILE_BYTES:
        close_rollouts(manifest)


def close_rollouts(manifest: Manifest) -> None:
    """Make a file of the stream, if there is one. After a kill the stream counts, or the file."""
    if GROWING in manifest.entries:
        table = _read_stream(manifest)
        steps = _compute.min_max(table["step"])
        name = f"rollouts/steps-{steps['min'].as_py():06d}-{steps['max'].as_py():06d}.parquet"
        write_parquet(manifest.folder / name, table)
        manifest.add(name, gone=[GROWING])
        remove_file(manifest.folder / GROWING)


class RolloutFiles:
    """Reads the files that a manifest lists. Columns that are no texts are read once, and kept.

    `at_fault` receives the fault of each file that cannot be read. Such a file is left out.
    """

    def __init__(self, manifest: Manifest, at_fault: Callable[[Fault], None]) -> None:
        self._manifest, self._at_fault = manifest, at_fault
        self._kept: dict[str, dict[str, pa.ChunkedArray]] | None = None  # columns by file, in the order of steps

    def num_rows(self) -> dict[int, int]:
        """Rollouts of each step, by ascending step."""
        counts = Counter[int]()
        for table in self.tables(["step"]):
            counts.update({row["values"]: row["counts"] for row in _compute.value_counts(table["step"]).to_pylist()})
        return dict(sorted(counts.items()))

    def tables(self, names: Sequence[str], steps: Collection[int] | None = None) -> Iterator[pa.Table]:
        """These columns, a table for each file with one of these steps. None for all steps."""
        schema = pa.schema([ROLLOUT_SCHEMA.field(name) for name in names])
        asked = sorted(steps or ())
        for file in [*self._files()]:
            first, last = file_steps(file) or (0, math.inf)
            wanted = None if steps is None else asked[bisect_left(asked, first) : bisect_right(asked, last)]
            if wanted != [] and (columns := self._columns(file, {*names, "step"})) is not None:
                table = pa.table({name: columns[name] for name in names}, schema)
                yield (
                    table
                    if wanted is None
                    else table.filter(_compute.is_in(columns["step"], pa.array(wanted, pa.int64())))
                )

    def _columns(self, file: str, names: set[str]) -> dict[str, pa.ChunkedArray] | None:
        """Columns of a file. None if it is at fault."""
        kept = self._files()[file]
        try:
            if missing := [name for name in ROLLOUT_SCHEMA.names if name in names - kept.keys()]:
                self._manifest.check(file)
                read = read_parquet(self._manifest.folder / file, missing, schema=ROLLOUT_SCHEMA)
                columns = kept | {name: read[name] for name in missing}
                kept |= {name: columns[name] for name in missing if name not in _TEXTS}
                return columns
        except RecordError as error:
            self._files().pop(file)
            self._at_fault(fault_of(file, error))
            return None
        return kept

    def _files(self) -> dict[str, dict[str, pa.ChunkedArray]]:
        """What is kept of each file. The stream is read at once and kept whole: a running run will remove it."""
        while self._kept is None:
            files = sorted(filter(file_steps, self._manifest.entries), key=lambda file: file_steps(file) or (0, 0))
            kept: dict[str, dict[str, pa.ChunkedArray]] = {file: {} for file in files}
            try:
                if GROWING in self._manifest.entries:
                    table = _read_stream(self._manifest)
                    kept[GROWING] = dict(zip(table.column_names, table.columns, strict=True))
            except RecordError as error:
                if GROWING in self._manifest.entries:
                    self._at_fault(fault_of(GROWING, error))
            if len(files) == sum(map(bool, map(file_steps, self._manifest.entries))):  # else it became a file meanwhile
                self._kept = kept
        return self._kept


def _read_stream(manifest: Manifest) -> pa.Table:
    """The steps in the stream."""
    try:
        table = pa.ipc.open_stream(manifest.read(GROWING)).read_all()
    except pa.ArrowException as error:
        raise RecordError(f"{manifest.folder / GROWING}: not a readable Arrow stream: {first_line(error)}") from error
    if table.schema != ROLLOUT_SCHEMA:
        raise RecordError(f"{manifest.folder / GROWING}: other columns than this version of gar writes.")
    return table
