"""`evaluation/before.parquet` and `after.parquet`: every sample of the evaluations of a run, one row per response."""

from dataclasses import dataclass

from gar.records.rollouts import record_schema
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
"""Columns of a file of samples."""
