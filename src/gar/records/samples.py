"""`evaluation/before.parquet` and `after.parquet`: every sample of the evaluations of a run, one row per response."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from gar.errors import RecordError
from gar.records.files import read_parquet, write_parquet
from gar.records.rollouts import record_schema, record_table
from gar.types import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRecord:
    """One sample of an evaluation. Columns with the name of a rollout column have the same meaning.

    Attributes:
        set_name: The evaluation set.
        group_index: Position of the problem in its set.
        response_index: Which sample of the problem.
    """

    set_name: str
    problem_id: str
    group_index: int
    response_index: int
    prompt: str
    response: str
    gold: str
    answer: str | None
    status: Status
    verified: bool
    well_formatted: bool
    num_tokens: int
    truncated: bool


SAMPLE_SCHEMA = record_schema(SampleRecord)


def write_samples(path: Path, records: Sequence[SampleRecord]) -> None:
    """Write the samples of one evaluation, whole or not at all.

    Raises:
        RecordError: The system reports an error.
    """
    write_parquet(path, record_table(records, SAMPLE_SCHEMA))


def read_samples(path: Path) -> pa.Table:
    """The samples in the order in which they were written; no rows where there is no such file.

    Raises:
        RecordError: The file cannot be read, or is not what `write_samples` wrote.
    """
    if not path.is_file():
        return SAMPLE_SCHEMA.empty_table()
    table = read_parquet(path)
    if table.schema.names != SAMPLE_SCHEMA.names or table.schema.types != SAMPLE_SCHEMA.types:
        raise RecordError(
            f"{path}: expected {SAMPLE_SCHEMA.names}, got {table.schema.names}. Did another tool write it?"
        )
    lacking = [field.name for field in SAMPLE_SCHEMA if not field.nullable and table[field.name].null_count]
    if lacking:
        raise RecordError(f"{path}: column {lacking[0]!r} lacks values.")
    return table
