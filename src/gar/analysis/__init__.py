"""Figures and tables of runs, and the style that all figures share."""

from gar.analysis.curves import learning_curve_figure
from gar.analysis.style import COLORS, INK, MUTED, PAGE_WIDTH, STYLE, paper_figure, save_figure

__all__ = [
    "COLORS",
    "INK",
    "MUTED",
    "PAGE_WIDTH",
    "STYLE",
    "learning_curve_figure",
    "paper_figure",
    "save_figure",
]
