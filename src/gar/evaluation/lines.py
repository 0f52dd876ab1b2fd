"""What the files of an evaluation must hold for others to read them: the types of their lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from gar.records.evaluations import Rate
from gar.types import ResponseFormat, Status

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Benchmark:
    name: str
    num_problems: Count
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Prompt:
    form: str
    format: ResponseFormat


@dataclass(frozen=True, kw_only=True, slots=True)
class _Model:
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sampling:
    num_samples: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class SetFile:
    """`set.json`."""

    benchmark: _Benchmark
    prompt: _Prompt
    model: _Model
    sampling: _Sampling


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemLine:
    """A line of `problems.jsonl`."""

    id: str
    prompt: Any
    answer: str
    num_choices: Count
    category: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleLine:
    """A line of `samples.jsonl`."""

    problem: str
    sample: Count
    text: str
    tokens: Sequence[int]
    stop: Literal["length", "end"]
    prefilled_think: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictLine:
    """A line of `verdicts.jsonl`."""

    problem: str
    sample: Count
    status: Status
    correct: bool
    verified: bool
    well_formatted: bool
    answer: str | None
    detail: str
    vote: str | None
    num_tokens: Count
    truncated: bool
    format: ResponseFormat


@dataclass(frozen=True, kw_only=True, slots=True)
class _Counts:
    id: str
    category: str
    num_correct: Count
    wrong_votes: Sequence[Count]


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricsFile:
    """`metrics.json`."""

    format: ResponseFormat
    num_samples: Annotated[int, Field(ge=1)]
    pass_at: Mapping[str, Rate]
    problems: Annotated[Sequence[_Counts], Field(min_length=1)]
