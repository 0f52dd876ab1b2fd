"""Print progress on stderr and results on stdout."""

import os
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from gar.errors import printable


def announce(text: str) -> None:
    """Print progress on rank 0, before the first slow import."""
    if os.environ.get("RANK", "0") == "0":
        print(f"gar: {text}", file=sys.stderr, flush=True)


def show(shown: RenderableType, style: str = "") -> None:
    """Print a table, or a text without markup or added line breaks. Control characters are shown, not obeyed."""
    text = isinstance(shown, str)
    shown = printable(shown) if isinstance(shown, str) else shown
    Console(highlight=False).print(shown, style=style or None, markup=not text, soft_wrap=text)


def show_table(title: str, rows: Iterable[Sequence[str]], headings: Sequence[str] = ()) -> None:
    """Print a table with words in the first column and numbers in the others. An empty row draws a line."""
    rows = list(rows)
    table = Table(title=escape(printable(title)) or None, title_justify="left", show_header=bool(headings))
    for column in range(max(map(len, rows))):
        table.add_column(headings[column] if headings else "", justify="right" if column else "left")
    for row in rows:
        if row:
            table.add_row(*(escape(printable(cell)) for cell in row))
        else:
            table.add_section()
    show(table)
