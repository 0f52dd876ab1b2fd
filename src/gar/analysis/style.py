"""Lines and sizes of all figures, and how figures are saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from gar.analysis.panels import INK, MUTED
from gar.records import atomic_file

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "large",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "svg.hashsalt": "gar",  # else the ids inside an SVG are random
    "text.color": INK,
    "text.parse_math": False,  # a run may have a $ in its name
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}

PAGE_WIDTH = 6.95
"""Inches: both columns of a two-column paper."""


@contextmanager
def paper_figure(height: float, width: float = PAGE_WIDTH) -> Iterator[Figure]:
    """An empty figure of this size in inches, with letters small enough for print at that size.

    >>> with paper_figure(2.5) as figure:
    ...     axes = figure.subplots()
    """
    with matplotlib.rc_context({**STYLE, "font.size": 7.5}):
        figure = Figure(figsize=(width, height))
        figure.set_layout_engine("constrained", w_pad=0.05, h_pad=0.05)
        yield figure


def save_figure(figure: Figure, stem: str | Path) -> list[Path]:
    """Write `STEM.png` (200 dpi) and `STEM.svg`. Equal figures give equal files with the same version of Matplotlib.

    Raises:
        RecordError: A picture cannot be written.
    """
    paths = []
    with matplotlib.rc_context(STYLE):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # arranged once, not before each format
        for ending in ("png", "svg"):
            path = Path(f"{stem}.{ending}")
            with atomic_file(path) as file:
                figure.savefig(file, format=ending, dpi=200, metadata={"Date": None} if ending == "svg" else None)
            paths.append(path)
    return paths
