"""Rules that no linter has: few parameters, one name for one thing, and no import of an extra at module level."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "gar").rglob("*.py"))

# Entry points for users, who pass plain tensors or flags; and kernels, which Triton gives no records.
WIDE = {
    "core/cuda.py: exponentials_kernel",
    "core/cuda.py: response_sums_kernel",
    "core/vectors.py: gradient_activation_means",
    "integrations/trl/trainer.py: __init__",
    "rollouts/generate.py: generate_responses",
}


def definitions() -> Iterator[tuple[str, ast.AST]]:
    for path in SOURCES:
        place = str(path).rpartition("/gar/")[2]
        for node in ast.walk(ast.parse(path.read_text())):
            yield place, node


def test_functions_have_at_most_eight_parameters():
    wide = set()
    for place, node in definitions():
        if isinstance(node, ast.FunctionDef):
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if len(names) - (names[:1] in (["self"], ["cls"])) > 8:
                wide.add(f"{place}: {node.name}")
    assert wide == WIDE


def test_a_public_class_has_a_name_of_its_own():
    places = defaultdict(set)
    for place, node in definitions():
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            places[node.name].add(place)
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_extras_are_imported_only_where_they_are_used():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {Requirement(text).name for group in extras.values() for text in group} | {"vllm"}
    loaded = set()
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                loaded |= {(path.name, module.split(".")[0]) for module in modules}
    assert {(file, module) for file, module in loaded if module in names - {"trl"}} == {("cuda.py", "triton")}
