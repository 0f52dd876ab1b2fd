"""The output of an analysis: data as Parquet, a figure as SVG and PNG, a short table and notes."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from gar.analysis import MUTED, save_figure
from gar.evaluation import print_tables
from gar.records import write_atomic, write_parquet

Cell = str | int | float | None

COLUMN_WIDTH = 3.35
"""Inches: one column of a two-column paper."""
MARKERS = ("o", "s", "^", "D", "v", "P")
"""A marker for each of the colors: a figure survives a gray printer."""

_CAPTION_CHARACTERS_PER_INCH = 19
"""At 6.5 points. Ordinary text has 21, which leaves a margin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """One analysis, ready to be written and shown.

    Attributes:
        name: Name of the analysis and of its files.
        title: Title of the table, with n.
        headings: Headings of the table.
        rows: Cells of the table. None is "-".
        data: Everything that the figure shows.
        figure: None if there is nothing to draw.
        notes: What the output cannot show, and what is odd about the input.
        text: Markdown with more than the table holds.
        numbers: All numbers, for JSON, where the table rounds them.
    """

    name: str
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    data: pa.Table
    figure: Figure | None = None
    notes: Sequence[str] = ()
    text: str | None = None
    numbers: Mapping[str, Any] | None = None


def add_caption(figure: Figure | SubFigure, text: str) -> None:
    """Write a small caption below the panels, wrapped to the width of the figure. It should state n."""
    characters = int(_CAPTION_CHARACTERS_PER_INCH * figure.bbox.width / figure.dpi)
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, characters)]
    figure.supxlabel("\n".join(lines), x=0.995, ha="right", size=6.5, color=MUTED)


def bare_rows(axes: Axes) -> None:
    """Leave out grid lines, ticks and the left edge beside rows that have names."""
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def write_output(output: Output, folder: str | Path) -> list[Path]:
    """Write `NAME.parquet`, and where the output has them `NAME.svg`, `.png`, `.md` and `.json`.

    Raises:
        RecordError: A file cannot be written.
    """
    folder = Path(folder)
    paths = [folder / f"{output.name}.parquet"]
    write_parquet(paths[0], output.data)
    if output.figure is not None:
        paths += save_figure(output.figure, folder / output.name)
    numbers = None if output.numbers is None else json.dumps(output.numbers, indent=1, allow_nan=False) + "\n"
    for ending, content in (("md", output.text), ("json", numbers)):
        if content is not None:
            paths.append(folder / f"{output.name}.{ending}")
            write_atomic(paths[-1], content)
    return paths


def present(output: Output, folder: str | Path) -> None:
    """Write the output into a folder, and print its table, its notes and the files.

    Raises:
        RecordError: A file cannot be written.
    """
    paths = write_output(output, folder)
    rows = [[_text(cell) for cell in row] for row in output.rows]
    print_tables({output.title: pd.DataFrame(rows, columns=[*output.headings])}, output.notes)
    print(*paths, sep="\n")


def _text(cell: Cell) -> str:
    if cell is None or cell != cell:
        return "-"
    return f"{cell:,.3f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell
