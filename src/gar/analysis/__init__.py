"""Figures and tables of runs, and the style that all figures share."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.analysis.curves import learning_curve_figure
    from gar.analysis.panels import COLORS, INK, MUTED
    from gar.analysis.style import PAGE_WIDTH, STYLE, paper_figure, save_figure
else:
    __getattr__, __dir__ = lazy_names(__name__)

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
