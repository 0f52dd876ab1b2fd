"""One row per response: of a training step, or of an evaluation."""

import json
import types
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, get_args

import pyarrow as pa

from gar.response import Response
from gar.types import Problem, Prompt, Status


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


def record_schema(kind: type, *, without: Collection[str] = ()) -> pa.Schema:
    """The Arrow columns of a record class, from the types of its fields. Fields in `without` are left out."""
    arrow_types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    columns = []
    for field in fields(kind):
        if field.name in without:
            continue
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
