"""Figures and tables of runs, and the style that all figures share."""

from gar.analysis.curves import learning_curve_figure
from gar.analysis.intervals import MeanInterval, mean_interval
from gar.analysis.style import (
    COLORS,
    INK,
    MUTED,
    PAGE_WIDTH,
    STYLE,
    add_caption,
    bare_rows,
    paper_figure,
    save_figure,
)

__all__ = [
    "COLORS",
    "INK",
    "MUTED",
    "PAGE_WIDTH",
    "STYLE",
    "MeanInterval",
    "add_caption",
    "bare_rows",
    "learning_curve_figure",
    "mean_interval",
    "paper_figure",
    "save_figure",
]
