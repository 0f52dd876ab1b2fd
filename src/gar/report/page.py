"""The content of a report as plain records, and the HTML file made from them. It loads nothing else.

Python computes every number, and `assets/*.js` draws them. The records are JSON in a script element that never runs.
The scripts insert them as text. A content security policy allows only these styles and scripts, by their hashes, and
no text can become HTML.
"""

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

import pandas as pd

MAX_BYTES = 8_000_000
GENERATOR = '<meta name="generator" content="gar report">'
"""In the head of every report."""
SCRIPTS = ("dom.js", "address.js", "charts.js", "tables.js", "rollouts.js", "page.js")

_DIGITS = 5

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A line of a chart with its bands, widest first. A band is a lower and an upper edge. None is a missing value."""

    label: str
    color: str
    dashed: bool
    steps: Sequence[int]
    values: Sequence[float | None]
    bands: Sequence[tuple[Sequence[float | None], Sequence[float | None]]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A metric over the training steps."""

    title: str
    unit: str
    from_zero: bool
    series: Sequence[Series]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownShares:
    """The share of each token in the alignment, under the weights named in the report. None if it is not scored."""

    tokens: Sequence[str]
    shares: Sequence[float | None]
    alignment: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownResponse:
    """One response with its recorded numbers, None if not recorded. `reward` is the reward written as a sum."""

    index: int
    verdict: str
    text: str
    answer: str | None
    reward: str
    numbers: Mapping[str, float | None]
    truncated: bool | None
    shares: ShownShares | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownGroup:
    """The responses to one problem at one step of training, or before or after it in an evaluation.

    `run` is the position of the run. `index` counts the groups of a step or the problems of a set. `step` is None in an
    evaluation, `set_name` and `moment` are None in training.
    """

    run: int
    step: int | None
    index: int
    set_name: str | None
    moment: str | None
    problem_id: str
    prompt: str
    gold: str
    expert: str
    responses: Sequence[ShownResponse]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOrigin:
    """Where the numbers of a run come from: its group, the facts in run.json, and its settings as text."""

    name: str
    label: str
    facts: Mapping[str, str]
    config: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The whole page. Cells of tables are formatted texts.

    `headline` is the verdict, `scope` is what it covers, and `notes` list what cannot be shown. `faults` are of runs
    that could not be read, and are among the notes. `tables` has the
    tables of the summary by title, `all_runs` has a row per run, and `differing` has the settings that differ.
    `problems` has a row per problem, and `problem_notes` count them. `bonus` has a text for each run that paid one.
    `rollout_notes` list the groups that were drawn and those that are missing.
    """

    title: str
    subtitle: str
    headline: str
    scope: str
    notes: Sequence[str]
    faults: Sequence[str]
    tables: Mapping[str, pd.DataFrame]
    all_runs: pd.DataFrame
    problems: pd.DataFrame
    problem_notes: Sequence[str]
    charts: Sequence[Chart]
    runs: Sequence[RunOrigin]
    differing: pd.DataFrame
    definitions: Mapping[str, str]
    groups: Sequence[ShownGroup] = field(default_factory=list)
    rollout_notes: Sequence[str] = field(default_factory=list)
    bonus: Sequence[str] = field(default_factory=list)


def rounded(value: float | None) -> float | None:
    """Five decimals, or five digits of a smaller number. None if it is not finite: JSON has no such numbers."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int) or abs(value) >= 0.1:
        return round(value, _DIGITS)
    return float(f"{value:.{_DIGITS}g}")


def page(report: Report) -> bytes:
    """Make the whole file. Raises a `ValueError` for a number that is not finite."""
    # The policy names style and script by their hashes, so that nothing else on the page can run.
    style = _asset("report.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in SCRIPTS) + "\n})();"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    # The data is text in an element that never runs, with every character of markup escaped.
    data = content_json(report)
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
{GENERATOR}
<title>{html.escape(report.title)}</title>
<style>{style}</style>
</head>
<body>
<noscript><p>This page draws itself with the script inside it: allow scripts for this file.</p></noscript>
<script type="application/json" id="report">{data}</script>
<script>{script}</script>
</body>
</html>
"""
    return text.encode("utf-8", "replace")


def _asset(name: str) -> str:
    return (resources.files("gar.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def content_json(content: object) -> str:
    """Write records, tables, and lists and mappings of them as compact JSON without any markup of HTML."""

    def values(record: Any) -> dict[str, Any]:
        if isinstance(record, pd.DataFrame):
            return {"columns": [*record.columns], "rows": record.to_numpy().tolist()}
        return {each.name: getattr(record, each.name) for each in fields(record)}

    data = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=values)
    for character, escape in _ESCAPES.items():
        data = data.replace(character, escape)
    return data


def num_bytes(content: object) -> int:
    """How many bytes a content takes on the page."""
    return len(content_json(content).encode("utf-8", "replace"))
