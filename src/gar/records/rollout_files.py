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
    """Reads the files that a manifest lists.

    `at_fault` receives the fault of each file that cannot be read. Such a file is left out.
    """

    def __init__(self, manifest: Manifest, at_fault: Callable[[Fault], None]) -> None:
        self._manifest, self._at_fault = manifest, at_fault
        self._files: list[str] | None = None  # in the order of steps
        self._stream = ROLLOUT_SCHEMA.empty_table()

    def num_rows(self) -> dict[int, int]:
        """Rollouts of each step, by ascending step."""
        counts = Counter[int]()
        for table in self.tables(["step"]):
            counts.update({row["values"]: row["counts"] for row in _compute.value_counts(table["step"]).to_pylist()})
        return dict(sorted(counts.items()))

    def tables(self, names: Sequence[str], steps: Collection[int] | None = None) -> Iterator[pa.Table]:
        """These columns, a table for each file with one of these steps. None for all steps."""
        asked = sorted(steps or ())
        for file in [*self._listed()]:
            first, last = file_steps(file) or (0, math.inf)
            wanted = None if steps is None else asked[bisect_left(asked, first) : bisect_right(asked, last)]
            if wanted != [] and (table := self._read(file, {*names, "step"})) is not None:
                if wanted is not None:
                    table = table.filter(_compute.is_in(table["step"], pa.array(wanted, pa.int64())))
                yield table.select(names)

    def _read(self, file: str, names: Collection[str]) -> pa.Table | None:
        """Columns of a file. None if it is at fault."""
        if file == GROWING:
            return self._stream
        try:
            self._manifest.check(file)
            return read_parquet(self._manifest.folder / file, [*names], schema=ROLLOUT_SCHEMA)
        except RecordError as error:
            self._listed().remove(file)
            self._at_fault(fault_of(file, error))
            return None

    def _listed(self) -> list[str]:
        """The files. The stream is read at once and kept: a running run will remove it."""
        while self._files is None:
            files = sorted(filter(file_steps, self._manifest.entries), key=lambda file: file_steps(file) or (0, 0))
            growing = GROWING in self._manifest.entries
            try:
                self._stream = _read_stream(self._manifest) if growing else self._stream
            except RecordError as error:
                growing = False
                if GROWING in self._manifest.entries:
                    self._at_fault(fault_of(GROWING, error))
            if len(files) == sum(map(bool, map(file_steps, self._manifest.entries))):  # else it became a file meanwhile
                self._files = [*files, *([GROWING] if growing else [])]
        return self._files


def _read_stream(manifest: Manifest) -> pa.Table:
    """The steps in the stream."""
    try:
        table = pa.ipc.open_stream(manifest.read(GROWING)).read_all()
    except pa.ArrowException as error:
        raise RecordError(f"{manifest.folder / GROWING}: not a readable Arrow stream: {first_line(error)}") from error
    if table.schema != ROLLOUT_SCHEMA:
        raise RecordError(f"{manifest.folder / GROWING}: other columns than this version of gar writes.")
    return table
