"""Tables of texts for a terminal or as GitHub Markdown. The first column names the rows."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gar.errors import printable
from gar.records.evaluations import EvaluatedSet

NONE = "-"
"""The cell of a missing value."""
NUMBER_HEADINGS = ("", "mean", "95% over problems")
"""Headings of the table of `number_rows`."""


def markdown_text(tables: Mapping[str, pd.DataFrame], notes: Sequence[str], heading: Sequence[str] = ()) -> str:
    """Format as GitHub Markdown: heading, tables by title, and notes as a list."""
    lines = list(heading)
    for title, table in tables.items():
        align = ["---"] + ["---:"] * (table.shape[1] - 1)
        first, *rows = zip(*_columns(table), strict=True)
        lines += [title, "", *("| " + " | ".join(cells) + " |" for cells in (first, align, *rows)), ""]
    return "\n".join([*lines, *(f"- {note}" for note in notes)]).rstrip() + "\n"


def print_tables(
    tables: Mapping[str, pd.DataFrame], notes: Sequence[str], heading: Sequence[str] = (), *, markdown: bool = False
) -> None:
    """Print tables and notes on a terminal, in its width. A file or pipe always gets Markdown."""
    if markdown or not sys.stdout.isatty():
        print(printable(markdown_text(tables, notes, heading)), end="", flush=True)
        return
    console = Console(highlight=False)
    for title, table in tables.items():
        shown = Table(title=_shown(title), title_justify="left")
        for i, (name, *cells) in enumerate(_columns(table)):
            right = i > 0 and all(cell[:1] in "+-<0123456789" for cell in cells)
            shown.add_column(_shown(name), justify="right" if right else "left")
        for row in rows_of(table):
            shown.add_row(*map(_shown, row))
        console.print(shown)
    for note in notes:
        console.print(_shown(f"- {note}"))


def _shown(text: object) -> str:
    """Without markup, and with control characters as escapes."""
    return escape(printable(text))


def rows_of(table: pd.DataFrame) -> list[Any]:
    """The rows as named tuples."""
    return list(table.itertuples(index=False))


def number_rows(identity: Mapping[str, Any], part: EvaluatedSet) -> tuple[str, list[tuple[str, ...]]]:
    """Title and rows of the numbers of one evaluation, from its `set.json` and `metrics.json`. () draws a line."""
    ranges = {k: f"{ends[0]:.3f} to {ends[1]:.3f}" for k, ends in part.interval_95.items() if ends}
    statuses, total = part.status_counts.items(), part.num_samples * len(part.problems)
    rows = [
        *((f"pass@{k}", number_text(value), ranges.get(k, NONE)) for k, value in part.pass_at.items()),
        # maj@1 is pass@1, and maj@2 too, if no sample abstains
        *((f"maj@{k}", f"{value:.3f}", "") for k, value in part.majority_at.items() if int(k) > 2),
        (),
        ("mean tokens of a response", _known(part.mean_response_tokens, ".1f"), ""),
        ("truncated", _known(part.truncated_fraction, ".1%"), ""),
        ("well formatted", _known(part.well_formatted_fraction, ".1%"), ""),
        ("right, whatever the format", _known(part.verified_fraction, ".1%"), ""),
        (),
        *((f"verification: {status}", f"{count / total:.1%}", f"{count:,}") for status, count in statuses),
    ]
    name = f"{identity['benchmark']['name']}, {identity['prompt']['template']}"
    return f"{name}: {len(part.problems):,} problems, {part.num_samples} samples each", rows


def ungraded_notes(evaluations: Iterable[tuple[str, str, EvaluatedSet]]) -> list[str]:
    """A clause for each evaluation with responses that were not graded. Takes owner, set and result."""
    return [
        f"{owner}: {part.num_ungraded:,} of {part.num_samples * len(part.problems):,} responses on {name} were not "
        "graded (timeout or error) and count as wrong"
        for owner, name, part in evaluations
        if part.num_ungraded
    ]


def _known(value: float | None, form: str) -> str:
    return NONE if value is None else f"{value:{form}}"


def measure_name(row: Any) -> str:
    """The set and measure of a row of `contrasts` or `scores`: `math-500 pass@8`."""
    return f"{row.set_name} {'maj' if row.measure == 'majority' else 'pass'}@{row.k}"


def difference_cells(row: Any) -> tuple[str, str, str, str, str]:
    """Difference, interval, corrected p-value, detectable effect and verdict of a row of `contrasts`."""
    interval = f"{row.low:+.3f} to {row.high:+.3f}"
    detectable = number_text(row.detectable)
    return f"{row.difference:+.3f}", interval, p_text(row.p_corrected), detectable, row.verdict


def p_text(p_value: float | None) -> str:
    """A p-value with three digits, never as zero: `0.031`, `<0.001`. `-` without a test."""
    return "<0.001" if p_value is not None and p_value < 0.001 else number_text(p_value)


def number_text(value: float | None) -> str:
    """A number with three digits. `-` for None and NaN."""
    return NONE if value is None or math.isnan(value) else f"{value:.3f}"


def _columns(table: pd.DataFrame) -> list[list[str]]:
    """Every column, its heading first."""
    return [[str(name), *map(str, table.iloc[:, i])] for i, name in enumerate(table.columns)]
