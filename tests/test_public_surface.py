"""The paper's part, the benchmarks, the examples and the documentation use what a package's `__init__` lists."""

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = "analysis comparison core data evaluation integrations.trl methods models records scoring verify"
PUBLIC = ("gar", *(f"gar.{part}" for part in PARTS.split()))
PLACES = ("paper/**/*.py", "benchmarks/*.py", "examples/*.py", "examples/*.ipynb", "docs/**/*.md", "README.md")
FILES = [path for place in PLACES for path in ROOT.glob(place)]
IMPORTS = re.compile(r"^[> ]*((?:from|import) gar\b.*)$", re.MULTILINE)


def source(path: Path) -> str:
    """The code of a module, the code cells of a notebook, or the imports of gar in a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    return text if path.suffix == ".py" else "\n".join(IMPORTS.findall(text))


def hidden_names(path: Path) -> Iterator[str]:
    """What a file imports from gar and no package lists."""
    for node in ast.walk(ast.parse(source(path))):
        names = {alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
        if isinstance(node, ast.Import):
            yield from (name for name in names if name.startswith("gar."))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "gar":
            listed = importlib.import_module(node.module).__all__ if node.module in PUBLIC else ()
            yield from (f"{node.module}.{name}" for name in names.difference(listed))


def test_public_names_exist():
    for module in map(importlib.import_module, PUBLIC):
        assert not [name for name in module.__all__ if not hasattr(module, name)]
        assert {*module.__all__} <= {*dir(module)}
        assert "lazy_names" not in dir(module)
        with pytest.raises(AttributeError):
            _ = module.nothing


def test_imports_of_gar_are_public():
    hidden = {str(path.relative_to(ROOT)): sorted(hidden_names(path)) for path in FILES}
    assert not {path: names for path, names in hidden.items() if names}
