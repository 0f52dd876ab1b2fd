"""Rules that no linter has: one name for one thing, and no test that waits for ever."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SOURCES = (TESTS.parent / "src" / "gar").rglob("*.py")
STARTS_CHILDREN = {"tests.support.processes", "tests.verify.hostile_graders", "tests.faults.process"}


def test_a_public_class_has_a_name_that_no_other_class_has():
    places = defaultdict(set)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_nothing_builds_an_object_past_its_constructor():
    """A class with a constructor of its own shows what such an object has."""
    for folder in ("src", "tests", "paper"):
        for path in (TESTS.parent / folder).rglob("*.py"):
            assert not re.findall(r"(?<!super\(\))\.__new__\(", path.read_text()), path


def endless(source: str) -> Iterator[str]:
    """Calls that may wait for ever, or start what outlives its test."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            call, _, name = ast.unparse(node.func).rpartition(".")
            named = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if (
                (call == "subprocess" and name[0].islower() and "timeout" not in named)
                or (call == "subprocess" and name == "Popen")
                or (name in {"Thread", "Process"} and call != "psutil" and "daemon" not in named)
                or (name in {"wait", "join", "communicate", "result"} and not (node.args or "timeout" in named))
                or (named.get("timeout", "").isdigit() and int(named["timeout"]) < 300)
            ):
                yield f"{node.lineno}: {ast.unparse(node.func)}"


def test_a_test_waits_with_a_limit_and_its_children_end_with_it():
    """By `tests.support.processes`, or with a timeout. A process or thread is a daemon."""
    assert [*endless("subprocess.run(['x'])\nthread.join()\nThread(target=f)\n', '.join(a)\np.wait(timeout=30)")] == [
        "1: subprocess.run", "2: thread.join", "3: Thread", "5: p.wait",
    ]  # fmt: skip
    names = {path: ".".join(path.relative_to(TESTS.parent).with_suffix("").parts) for path in TESTS.rglob("*.py")}
    paths = [path for path, name in names.items() if name not in STARTS_CHILDREN]
    assert not {str(path): found for path in paths if (found := [*endless(path.read_text())])}
