"""Figures and tables of runs, and the style that all figures share."""

from gar.analysis.curves import learning_curve_figure
from gar.analysis.intervals import ClusteredMean, clustered_mean
from gar.analysis.metrics import step_times
from gar.analysis.style import (
    COLORS,
    INK,
    MUTED,
    PAGE_WIDTH,
    STYLE,
    add_caption,
    bare_rows,
    method_color,
    paper_figure,
    save_figure,
)

__all__ = [
    "COLORS",
    "INK",
    "MUTED",
    "PAGE_WIDTH",
    "STYLE",
    "ClusteredMean",
    "add_caption",
    "bare_rows",
    "clustered_mean",
    "learning_curve_figure",
    "method_color",
    "paper_figure",
    "save_figure",
    "step_times",
]
