"""What stands on the page, as plain records: made in Python, drawn by `assets/*.js` without a number of its own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

Part = str | int
"""Of a text: text as it is, or the index of a formula."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """A number of the summary. `term` names its definition."""

    term: str
    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of a table. `term` names the definition of its heading, where it needs one."""

    heading: str
    term: str | None = None
    kind: Literal["text", "number", "verdict"] = "number"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Cells that are ready to read."""

    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One line of a chart with its band. None where there is nothing."""

    label: str
    colour: str
    dashed: bool
    steps: Sequence[int]
    values: Sequence[float | None]
    low: Sequence[float | None]
    high: Sequence[float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A metric over the training steps."""

    term: str
    title: str
    unit: str
    from_zero: bool
    series: Sequence[Series]


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A figure as the source of an image: a data URI."""

    title: str
    caption: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownText:
    """A text in parts. `num_cut` characters at its end are left out."""

    parts: Sequence[Part]
    num_cut: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownShares:
    """What each token adds to the alignment under the weights that the report names; None outside the span."""

    tokens: Sequence[str]
    shares: Sequence[float | None]
    alignment: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownResponse:
    """One response. Numbers are as recorded in training; None where they were not."""

    index: int
    verdict: str
    text: ShownText
    answer: str | None
    numbers: Mapping[str, float | None]
    truncated: bool | None
    shares: ShownShares | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownGroup:
    """The responses to one problem at one step."""

    run: int
    step: int
    problem_id: str
    prompt: ShownText
    gold: str
    expert: ShownText | None
    responses: Sequence[ShownResponse]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollouts:
    """The rollout browser. `notes` say what was sampled and how, and what is missing."""

    groups: Sequence[ShownGroup]
    formulas: Sequence[Mapping[str, Any]]
    notes: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """Where the numbers of one run come from."""

    name: str
    label: str
    colour: str
    facts: Sequence[tuple[str, str, str | None]]
    config: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The whole page."""

    title: str
    subtitle: str
    headline: str
    sentences: Sequence[str]
    notes: Sequence[str]
    tiles: Sequence[Tile]
    tables: Sequence[Table]
    charts: Sequence[Chart]
    chart_note: str
    rollouts: Rollouts
    pictures: Sequence[Picture]
    runs: Sequence[RunFacts]
    settings: Table | None
    definitions: Mapping[str, str]


def content_json(content: object) -> str:
    """Records, and lists and mappings of them, as compact JSON.

    Raises:
        ValueError: A number is not finite.
    """
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _plain(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}
