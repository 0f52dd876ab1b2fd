"""One table as aligned text or GitHub Markdown. Cells are texts and are never wrapped."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

NONE = "-"
"""The cell of a missing value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextTable:
    """A table whose first column names its rows."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def aligned(table: TextTable) -> str:
    """For a terminal or a log: numbers to the right, words to the left, one line per row."""
    columns = list(zip(table.headings, *table.rows, strict=True))
    padded = []
    for i, cells in enumerate(columns):
        width = max(map(len, cells))
        right = i > 0 and all(cell[:1] in "+-<0123456789" for cell in cells[1:])
        padded.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    lines = ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]
    return "\n".join([textwrap.fill(table.title, 80), *lines])


def markdown_text(tables: Sequence[TextTable], notes: Sequence[str], heading: Sequence[str] = ()) -> str:
    """GitHub Markdown: lines of a heading, the tables, and the notes as a list."""
    lines = [line for table in tables for line in _markdown_lines(table)]
    return "\n".join([*heading, *lines, *(f"- {note}" for note in notes)]).rstrip() + "\n"


def _markdown_lines(table: TextTable) -> list[str]:
    align = ["---"] + ["---:"] * (len(table.headings) - 1)
    rows = ["| " + " | ".join(cells) + " |" for cells in (table.headings, align, *table.rows)]
    return [table.title, "", *rows, ""]
