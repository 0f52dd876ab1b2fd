"""Run several methods over several seeds under equal conditions, with tables and curves (`gar compare`)."""

from typing import TYPE_CHECKING

from gar.lazy import lazy_names

if TYPE_CHECKING:
    from gar.comparison.plan import planned_runs, read_comparison
    from gar.comparison.result import RunResult, check_paired, finished_results, step_times
    from gar.comparison.tables import comparison_tables, result_notes, row_curves
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "RunResult",
    "check_paired",
    "comparison_tables",
    "finished_results",
    "planned_runs",
    "read_comparison",
    "result_notes",
    "row_curves",
    "step_times",
]
