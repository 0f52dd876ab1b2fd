"""Several methods over several seeds under equal conditions: what `gar compare` runs, and its tables and figures."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.comparison.figures import curves_figure
    from gar.comparison.report import numbers_of_results
    from gar.comparison.result import RunResult, SetCounts
    from gar.comparison.settings import read_comparison
    from gar.comparison.store import check_paired
    from gar.comparison.tables import markdown

__all__ = [
    "RunResult",
    "SetCounts",
    "check_paired",
    "curves_figure",
    "markdown",
    "numbers_of_results",
    "read_comparison",
]
__getattr__ = lazy_names(
    __name__,
    {
        "gar.comparison.figures": "curves_figure",
        "gar.comparison.report": "numbers_of_results",
        "gar.comparison.result": "RunResult SetCounts",
        "gar.comparison.settings": "read_comparison",
        "gar.comparison.store": "check_paired",
        "gar.comparison.tables": "markdown",
    },
)
