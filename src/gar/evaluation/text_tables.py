"""One table as aligned text, GitHub Markdown, LaTeX or CSV. Cells are texts and are never wrapped."""

import csv
import io
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NONE = "-"
"""The cell of a missing value."""

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "<": "$<$", ">": "$>$",
}  # fmt: skip


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


def latex_text(tables: Sequence[TextTable], notes: Sequence[str]) -> str:
    """LaTeX for the package booktabs, with the notes as comments."""
    lines = [line for table in tables for line in _latex_lines(table)]
    return "\n".join([*lines, *(f"% {note}" for note in notes)]).rstrip() + "\n"


def _markdown_lines(table: TextTable) -> list[str]:
    align = ["---"] + ["---:"] * (len(table.headings) - 1)
    rows = ["| " + " | ".join(cells) + " |" for cells in (table.headings, align, *table.rows)]
    return [table.title, "", *rows, ""]


def _latex_lines(table: TextTable) -> list[str]:
    rows = [" & ".join(_escaped(cell) for cell in cells) + r" \\" for cells in (table.headings, *table.rows)]
    columns = "l" + "r" * (len(table.headings) - 1)
    return [
        r"\begin{table}", r"\centering", rf"\caption{{{_escaped(table.title)}}}",
        rf"\begin{{tabular}}{{{columns}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule",
        r"\end{tabular}", r"\end{table}", "",
    ]  # fmt: skip


def csv_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """CSV; short rows are filled up with empty cells."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows([*row, *[None] * (len(headings) - len(row))] for row in rows)
    return file.getvalue()


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
