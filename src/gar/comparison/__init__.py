"""Several methods over several seeds under equal conditions: what `gar compare` runs, and its tables and figures."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.comparison.figures import cost_figure, curves_figure
    from gar.comparison.pairing import check_paired
    from gar.comparison.plan import planned_runs
    from gar.comparison.report import numbers_of_results
    from gar.comparison.result import RunResult, SetCounts, step_times
    from gar.comparison.run import finished_results
    from gar.comparison.settings import read_comparison
    from gar.comparison.tables import Cost, markdown

__all__ = [
    "Cost",
    "RunResult",
    "SetCounts",
    "check_paired",
    "cost_figure",
    "curves_figure",
    "finished_results",
    "markdown",
    "numbers_of_results",
    "planned_runs",
    "read_comparison",
    "step_times",
]
__getattr__ = lazy_names(
    __name__,
    {
        "gar.comparison.figures": "cost_figure curves_figure",
        "gar.comparison.plan": "planned_runs",
        "gar.comparison.run": "finished_results",
        "gar.comparison.report": "numbers_of_results",
        "gar.comparison.result": "RunResult SetCounts step_times",
        "gar.comparison.settings": "read_comparison",
        "gar.comparison.pairing": "check_paired",
        "gar.comparison.tables": "Cost markdown",
    },
)
