"""Several methods over several seeds under equal conditions: what `gar compare` runs, and its tables and figures."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.comparison.figures import cost_figure, curves_figure
    from gar.comparison.report import numbers_of_results
    from gar.comparison.result import RunResult, SetCounts, step_times
    from gar.comparison.settings import read_comparison
    from gar.comparison.store import check_paired
    from gar.comparison.tables import Cost, markdown

__all__ = [
    "Cost",
    "RunResult",
    "SetCounts",
    "check_paired",
    "cost_figure",
    "curves_figure",
    "markdown",
    "numbers_of_results",
    "read_comparison",
    "step_times",
]
__getattr__ = lazy_names(
    __name__,
    {
        "gar.comparison.figures": "cost_figure curves_figure",
        "gar.comparison.report": "numbers_of_results",
        "gar.comparison.result": "RunResult SetCounts step_times",
        "gar.comparison.settings": "read_comparison",
        "gar.comparison.store": "check_paired",
        "gar.comparison.tables": "Cost markdown",
    },
)
