"""The paper's part and the examples use what a package's `__init__` lists, and nothing else of the library."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = ("", "core", "methods", "models", "data", "verify", "scoring", "evaluation", "records", "integrations.trl")
FILES = sorted((ROOT / "paper" / "methods").glob("*.py"))


@pytest.mark.parametrize("package", [".".join(["gar", *part.split(".")]).strip(".") for part in PUBLIC])
def test_public_names_exist(package: str):
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", ()):
        assert hasattr(module, name), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_paper_imports_public_names_alone(path: Path):
    public = {".".join(["gar", *part.split(".")]).strip(".") for part in PUBLIC}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if alias.name.split(".")[0] == "gar"]
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "gar":
            assert node.module in public, f"{path.name}: {node.module}"
            listed = importlib.import_module(node.module).__all__
            assert not {alias.name for alias in node.names} - set(listed), f"{path.name}: {node.module}"
