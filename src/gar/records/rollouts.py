"""One row per response, of a training step or of an evaluation, and the rollouts of a run in files of many steps.

    rollouts/steps-000001-000100.parquet   `ROLLOUT_SCHEMA`
    rollouts.arrows                        the steps since the last file, an Arrow stream

Each step is added to the stream, of which whole batches count: a kill loses none but the one under way. The stream
becomes a file at a checkpoint, at the end of the run, and when it is large. So a file ends at each checkpoint, and a
resume removes whole ones.
"""

import json
import re
import types
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute

from gar.errors import RecordError, first_line
from gar.records.files import append_bytes, read_bytes, remove_file, write_parquet
from gar.response import Response
from gar.types import Problem, Prompt, Status

GROWING = "rollouts.arrows"
FILE_BYTES = 64 * 2**20
"""Size from which the stream becomes a file. It bounds the memory of writing and reading one."""

_compute: Any = pyarrow.compute  # its functions are made when it is imported
_NAME = re.compile(r"rollouts/steps-(\d{6,})-(\d{6,})\.parquet")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseRecord:
    """A response with its verdict: the columns that rollouts and the samples of evaluations share.

    Attributes:
        group_index: Number of the group in its step, or of the problem in its evaluation set.
        prompt: What the model saw, before its chat template. A file holds it as JSON, which `read_prompt` reads.
        gold: The gold answer.
        answer: The answer found in the response. None if there is none.
    """

    problem_id: str
    group_index: int
    response_index: int
    prompt: Prompt
    response: str
    gold: str
    answer: str | None
    status: Status
    verified: bool
    well_formatted: bool
    num_tokens: int
    truncated: bool


def response_record(problem: Problem, response: Response) -> dict[str, Any]:
    """The fields of a `ResponseRecord` without `group_index` and `response_index`."""
    verdict = response.verdict
    return {
        "problem_id": problem.id,
        "prompt": problem.prompt,
        "response": response.text,
        "gold": problem.answer,
        "answer": verdict.answer,
        "status": verdict.status,
        "verified": verdict.verified,
        "well_formatted": verdict.well_formatted,
        "num_tokens": response.num_tokens,
        "truncated": response.truncated,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRecord(ResponseRecord):
    """One response of one training step: a row of a file in `rollouts/`.

    Attributes:
        step: Training step.
        eligible: The response earns the base reward: it is in P(x) of the paper.
        anchor: The problem has an expert solution.
        alignment: Cosine with the anchor's vector. None, not 0, if the response was not scored.
        bonus: Added to the reward for alignment, `bonus_weight` included.
        penalty: Added to the reward for bad format, at most 0.
        reward: Base reward if eligible, plus penalty, plus the bonus.
        advantage: The reward after group normalization.
        num_scored_tokens: Tokens that entered the gradient-activation vector.
        signal_norm: Norm of that vector before it was scaled to one. None without a vector.
        prompt_tokens: Tokens of the prompt.
    """

    step: int
    eligible: bool
    anchor: bool
    alignment: float | None
    bonus: float
    penalty: float
    reward: float
    advantage: float
    num_scored_tokens: int
    signal_norm: float | None
    prompt_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRecord(ResponseRecord):
    """One sample of an evaluation on `set_name`: a row of its `samples.parquet`."""

    set_name: str


def record_schema(kind: type) -> pa.Schema:
    """The Arrow columns of a record class, from the types of its fields."""
    arrow_types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    columns = []
    for field in fields(kind):
        if field.name == "prompt":
            columns.append(pa.field("prompt", pa.string(), nullable=False))
            continue
        nullable = isinstance(field.type, types.UnionType)
        value_type: Any = get_args(field.type)[0] if nullable else field.type
        value_type = str if issubclass(value_type, StrEnum) else value_type
        columns.append(pa.field(field.name, arrow_types[value_type], nullable=nullable))
    return pa.schema(columns)


ROLLOUT_SCHEMA = record_schema(RolloutRecord)
"""Columns of a rollout file."""
SAMPLE_SCHEMA = record_schema(SampleRecord)
"""Columns of a file of samples."""


def record_table(records: Sequence[Any], schema: pa.Schema = ROLLOUT_SCHEMA) -> pa.Table:
    """The records as a table with the schema of their class, in their order.

    Raises:
        ValueError: A value is None in a column without nulls, or has the wrong type. pyarrow may raise a TypeError
            instead.
    """
    values = {name: [getattr(record, name) for record in records] for name in schema.names}
    if "prompt" in values:
        values["prompt"] = [json.dumps(prompt, ensure_ascii=False) for prompt in values["prompt"]]
    table = pa.table(values, schema=schema)
    if empty := [field.name for field in schema if not field.nullable and table[field.name].null_count]:
        raise ValueError(f"{', '.join(empty)} must not be None in a record")
    return table


def read_prompt(text: str) -> Prompt:
    """The prompt in a row of a file."""
    return json.loads(text)


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
    # Only between two steps: a step of several generations lies in one file.
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
    # A running run may make a file of the stream at any moment, so only the attempt to read shows if it is there.
    try:
        content = read_bytes(path)
    except RecordError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return ROLLOUT_SCHEMA.empty_table()
        raise
    # What follows the last whole batch was being written when the run was killed.
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
