"""Rules of the house that no linter has: few parameters, one name for one thing, sentences with a subject."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCES = sorted((Path(__file__).parents[1] / "src" / "gar").rglob("*.py"))

# Entry points for users, who pass plain tensors or flags; and kernels, which Triton gives no records.
WIDE = {
    "core/cuda.py: exponentials_kernel",
    "core/cuda.py: response_sums_kernel",
    "core/gradients.py: gradient_activation_means",
    "core/gradients.py: gradient_activation_vectors",
    "core/rewards.py: gradient_aligned_rewards",
    "core/vocab_parallel.py: vocab_parallel_means",
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


def test_docstrings_begin_with_what_they_are_about():
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [(place, ast.get_docstring(node) or "") for place, node in definitions() if isinstance(node, documented)]
    assert not [(place, text) for place, text in texts if text.startswith("Of ")]
