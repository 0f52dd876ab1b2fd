"""Public names that are imported when first asked for, so that `import gar` needs no torch."""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from gar.extras import require_extra


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package (PEP 562) for the names that it imports under `if TYPE_CHECKING`."""

    @cache
    def homes() -> dict[str, str]:
        source = Path(str(sys.modules[package].__file__)).read_bytes()
        block = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
        imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
        return {alias.name: str(node.module) for node in imports for alias in node.names}

    def public_name(name: str) -> Any:
        if name not in homes():
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        try:
            return getattr(import_module(homes()[name]), name)
        except ModuleNotFoundError:
            require_extra("train", f"{package}.{name}")
            raise

    return public_name, lambda: sorted(sys.modules[package].__all__)
