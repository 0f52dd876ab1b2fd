"""The rollouts of a run in files of many steps.

    rollouts/steps-000001-000100.parquet   one row per response, see `gar.records.rollouts`
    rollouts.arrows                        the steps since the last file, an Arrow stream

Each step is added to the stream, of which whole batches count: a kill loses none but the one under way. The stream
becomes a file at a checkpoint, at the end of the run, and when it is large. So a file ends at each checkpoint, and a
resume removes whole ones.
"""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute

from gar.errors import RecordError, first_line
from gar.records.files import append_bytes, read_bytes, remove_file, write_parquet
from gar.records.rollouts import ROLLOUT_SCHEMA

GROWING = "rollouts.arrows"
FILE_BYTES = 64 * 2**20
"""Size from which the stream becomes a file. It bounds the memory of writing and reading one."""

_compute: Any = pyarrow.compute  # its functions are made when it is imported
_NAME = re.compile(r"rollouts/steps-(\d{6,})-(\d{6,})\.parquet")


def file_steps(name: str) -> tuple[int, int] | None:
    """First and last step of a file, from its path in the run folder. None for another file."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def rollout_files(run: Path) -> dict[str, tuple[int, int]]:
    """The files of a run with their first and last steps, ascending."""
    names = (f"rollouts/{path.name}" for path in run.glob("rollouts/*"))
    found = {name: steps for name in names if (steps := file_steps(name))}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def append_rollouts(run: Path, table: pa.Table) -> None:
    """Add the rollouts of a step to the stream, all of them or none."""
    if not table.num_rows:
        return
    stream = run / GROWING
    if stream.exists() and stream.stat().st_size >= FILE_BYTES:
        close_rollouts(run, unless_step=table["step"][0].as_py())
    head = [] if stream.exists() else [table.schema]
    append_bytes(stream, b"".join(part.serialize().to_pybytes() for part in [*head, *table.to_batches()]))


def close_rollouts(run: Path, *, unless_step: int | None = None) -> None:
    """Make a file of the stream, if there is one. A stream that ends with `unless_step` stays: a step has one file."""
    if not (run / GROWING).exists():
        return
    table = read_stream(run, torn=False)
    first, last = (_compute.min_max(table["step"])[end].as_py() for end in ("min", "max"))
    if last == unless_step:
        return
    if first is not None:
        write_parquet(run / f"rollouts/steps-{first:06d}-{last:06d}.parquet", table)
    remove_file(run / GROWING)  # after a kill before this, its steps are in a file and do not count again


def read_stream(run: Path, *, torn: bool = True) -> pa.Table:
    """The whole batches of the stream. No rows if there is no stream.

    Args:
        run: The run folder.
        torn: Whether the stream may end in the middle of a batch, as after a kill.

    Raises:
        RecordError: It has other columns, or it is torn and that is not allowed.
    """
    path, batches = run / GROWING, list[pa.RecordBatch]()
    try:
        content = read_bytes(path)
    except RecordError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return ROLLOUT_SCHEMA.empty_table()
        raise
    try:
        with pa.ipc.open_stream(content) as stream:
            if stream.schema != ROLLOUT_SCHEMA:
                raise RecordError(f"{path}: other columns than this version of gar writes.")
            while True:
                batch = stream.read_next_batch()
                batch.validate(full=True)
                batches.append(batch)
    except StopIteration:
        pass
    except (pa.ArrowException, OSError) as error:
        if not torn or isinstance(error, RecordError):
            raise RecordError(f"{path}: not a readable Arrow stream: {first_line(error)}") from error
    return pa.Table.from_batches(batches, ROLLOUT_SCHEMA)
