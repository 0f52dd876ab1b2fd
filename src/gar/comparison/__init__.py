"""Several methods over several seeds under equal conditions: what `gar compare` runs, and its tables and figures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
_MODULES = ("settings", "result", "store", "tables", "report", "figures")


def __getattr__(name: str) -> Any:
    """A public name, imported when first asked for: most of them need NumPy and matplotlib."""
    if name in __all__:
        modules = (import_module(f"gar.comparison.{module}") for module in _MODULES)
        return next(getattr(module, name) for module in modules if hasattr(module, name))
    raise AttributeError(f"module 'gar.comparison' has no attribute '{name}'")
