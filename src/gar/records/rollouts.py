"""One row per response: everything from the rollout to its advantage."""

import types
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from gar.errors import RecordError
from gar.types import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRecord:
    """One response of one training step: a row of `rollouts/step-000012.parquet`.

    Attributes:
        step: Training step.
        problem_id: The problem's id in its source.
        group_index: Which group of the step.
        response_index: Which response of the group.
        prompt: The prompt as the model saw it.
        response: The response as text, special tokens included.
        gold: The correct answer.
        answer: The answer extracted from the response; None if it has none.
        status: How verification ended.
        verified: The answer is correct.
        well_formatted: The response is in the required format.
        eligible: The response earns the base reward: it is in P(x) of the paper.
        anchor: The problem has an expert solution.
        alignment: Cosine with the anchor's vector; None, not 0, if the response was not scored.
        bonus: Added to the reward for alignment, beta included.
        penalty: Added to the reward for bad format, at most 0.
        reward: Base reward where eligible, plus penalty, plus the bonus.
        advantage: The reward after group normalization.
        num_tokens: Tokens of the response.
        truncated: The response was cut off at the length limit.
        num_scored_tokens: Tokens that entered the gradient-activation vector.
        signal_norm: Norm of that vector before it was scaled to one; None without a vector.
        prompt_tokens: Tokens of the prompt.
    """

    step: int
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
    eligible: bool
    anchor: bool
    alignment: float | None
    bonus: float
    penalty: float
    reward: float
    advantage: float
    num_tokens: int
    truncated: bool
    num_scored_tokens: int
    signal_norm: float | None
    prompt_tokens: int


def record_schema(kind: type) -> pa.Schema:
    """Columns that follow from the types of a record, so that an empty column has its type, too."""
    arrow_types = {str: pa.string(), Status: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    columns = []
    for field in fields(kind):
        nullable = isinstance(field.type, types.UnionType)
        value_type: Any = get_args(field.type)[0] if nullable else field.type
        columns.append(pa.field(field.name, arrow_types[value_type], nullable=nullable))
    return pa.schema(columns)


ROLLOUT_SCHEMA = record_schema(RolloutRecord)
"""Columns of a rollout file."""


def record_table(records: Sequence[Any], schema: pa.Schema = ROLLOUT_SCHEMA) -> pa.Table:
    """The records as a table with the schema of their class, in their order.

    Raises:
        ValueError: A value has the wrong type, or is None in a column without nulls; names column and row.
    """
    columns = []
    for field in schema:
        values = [getattr(record, field.name) for record in records]
        try:
            columns.append(pa.array(values, field.type))
        except (pa.ArrowException, TypeError) as error:
            raise ValueError(f"rollout records: column {field.name!r} must hold {field.type}: {error}") from error
        if not field.nullable and columns[-1].null_count:
            raise ValueError(f"rollout records: {field.name!r} must not be None, got None in row {values.index(None)}")
    return pa.table(columns, schema=schema)


_KEY = ("step", "group_index", "response_index")
"""Columns that identify a response."""


def sound_columns(
    names: Sequence[str], columns: Sequence[str] | None, path: Path, *, optional: Collection[str] = ()
) -> list[str]:
    """Columns of a rollout file to read, so that `sound_rows` can check its rows.

    Args:
        names: Columns of the file.
        columns: Wanted columns; None for all of `ROLLOUT_SCHEMA`.
        path: The file, for the error.
        optional: Columns that may be missing, as in files of earlier versions.

    Raises:
        RecordError: A column is missing or occurs twice.
    """
    needed = list(dict.fromkeys([*_KEY, *(columns or ROLLOUT_SCHEMA.names)]))
    for name in needed:
        if names.count(name) != 1 and (name in names or name not in optional):
            fault = f"{names.count(name)} columns" if name in names else "no column"
            raise RecordError(f"{path}: {fault} {name!r}; it has {', '.join(names)}.")
    return [name for name in needed if name in names]


def sound_rows(rows: pa.Table, step: int, columns: Sequence[str] | None, path: Path) -> pa.Table:
    """The rollouts of one step in the types of `ROLLOUT_SCHEMA`, even if another tool rewrote the file.

    Args:
        rows: Rows of the step, with the columns that `sound_columns` returns.
        step: The step.
        columns: Columns to return, in this order; None for all. A column that `rows` lack is null.
        path: The file, for the error.

    Raises:
        RecordError: The rows are not what was written: a column has a type that loses values, a value is missing, or
            rows occur twice or belong to another step.
    """
    wanted = list(columns or ROLLOUT_SCHEMA.names)
    needed = list(dict.fromkeys([*_KEY, *wanted]))
    names = rows.column_names
    arrays = {
        name: _column(rows[name], ROLLOUT_SCHEMA.field(name), path)
        if name in names
        else pa.nulls(len(rows), ROLLOUT_SCHEMA.field(name).type)
        for name in needed
    }
    columns_read = [ROLLOUT_SCHEMA.field(name) for name in needed]
    schema = pa.schema([field.with_nullable(field.nullable or field.name not in names) for field in columns_read])
    table = pa.table(arrays, schema=schema)
    _check_rows(table.select(_KEY), step, path)
    return table.select(wanted)


def _column(column: pa.ChunkedArray, field: pa.Field, path: Path) -> pa.ChunkedArray:
    """A column in the type of the schema, if the cast loses nothing. A narrower float has already lost digits."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    target = field.type
    same = kind == target or pa.types.is_null(kind)
    text = pa.types.is_string(target) and (pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
    number = pa.types.is_integer(kind) and not pa.types.is_boolean(target) and not pa.types.is_string(target)
    whole = pa.types.is_integer(target) and pa.types.is_float64(kind)  # the cast rejects fractions
    if not (same or text or number or whole):
        raise RecordError(f"{path}: column {field.name!r} must hold {target}, got {kind}. Did another tool write it?")
    try:
        column = column.cast(kind).cast(target)
    except pa.ArrowException as error:
        raise RecordError(f"{path}: column {field.name!r} must hold {target}, got {kind}: {error}") from error
    if column.null_count and not field.nullable:
        raise RecordError(f"{path}: column {field.name!r} lacks {column.null_count} of {len(column)} values.")
    if pa.types.is_floating(target) and not np.isfinite(column.drop_null().to_numpy()).all():
        raise RecordError(f"{path}: column {field.name!r} holds values that are not finite.")
    return column


def _check_rows(keys: pa.Table, step: int, path: Path) -> None:
    foreign = sorted({*keys["step"].unique().to_pylist()} - {step})
    if foreign:
        raise RecordError(f"{path}: it should hold step {step}, but has rows of step {foreign[0]}. Was it renamed?")
    num_keys = keys.group_by(list(_KEY)).aggregate([]).num_rows
    if num_keys < len(keys):
        raise RecordError(f"{path}: {len(keys) - num_keys} of {len(keys)} rows are duplicates.")
