"""Public names that are imported when first asked for, so that `import gar` needs no torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562).

    Args:
        package: Its `__name__`.
        modules: Names, separated by spaces, by the module that defines them.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def public_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(import_module(homes[name]), name)

    return public_name
