"""Errors keep their text and code on the way between processes, and each class has a code of its own."""

import ast
import copy
import errno
import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gar
from gar import errors
from gar.errors import DataError, GarError, RecordError
from gar.records.files import system_errors
from gar.verify.workers import WorkerError
from tests.support.errors import raises

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, GarError)]


def test_each_class_has_a_code_of_its_own():
    codes = [kind.code for kind in (*CLASSES, WorkerError)]
    assert len(set(codes)) == len(codes)


def _all_classes() -> list[type[Exception]]:
    """Every exception that a module of gar defines, found in its source."""
    root = Path(gar.__file__).parent
    found = list[type[Exception]]()
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.ClassDef) and any(base.endswith(("Error", "Exception")) for base in bases):
                name = ".".join(("gar", *path.relative_to(root).with_suffix("").parts))
                found.append(getattr(importlib.import_module(name), node.name))
    return found


def _made(kind: type[Exception], text: str) -> Exception:
    return kind(text)


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", _all_classes())
def test_every_error_can_be_pickled_and_copied(kind: type[Exception], way: str):
    error = _made(kind, "rows.jsonl:3: empty.")
    error.add_note("while reading")
    if isinstance(error, GarError):
        error.code = "empty-row"
    if isinstance(error, RecordError):
        error.errno = errno.ENOSPC
    other = WAYS[way](error)
    assert type(other) is kind
    assert str(other) == str(error)
    assert "rows.jsonl:3: empty." in str(other)
    assert vars(other) == vars(error)
    assert getattr(other, "errno", None) == getattr(error, "errno", None)
    assert isinstance(other, GarError) == hasattr(other, "code")


def test_all_classes_of_errors_are_found():
    assert {*CLASSES, WorkerError} - {GarError} <= {*_all_classes()} - {GarError}


def test_an_error_of_records_keeps_the_errno_of_the_system():
    with pytest.raises(OSError) as caught, system_errors("runs/a", "written"):  # noqa: PT011  the number is asserted
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (type(caught.value), caught.value.errno) == (RecordError, errno.ENOSPC)
    with pytest.raises(AssertionError), raises(DataError, "data"):  # the tests' own check of a code
        raise DataError("empty", code="empty-row")
