"""A rule that no linter has: one name for one thing."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = (Path(__file__).parents[1] / "src" / "gar").rglob("*.py")


def test_a_public_class_has_a_name_that_no_other_class_has():
    places = defaultdict(set)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    assert not {name: where for name, where in places.items() if len(where) > 1}
