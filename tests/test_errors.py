"""Errors keep their text and code on the way between processes, and each class has a code of its own."""

import errno
import pickle

import pytest

from gar import errors
from gar.errors import DataError, GarError, RecordError
from gar.records.files import system_errors
from gar.records.manifest import DamageError
from gar.verify.workers import WorkerError
from tests.support.errors import raises

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, GarError)]


def test_each_class_has_a_code_of_its_own():
    codes = [kind.code for kind in (*CLASSES, DamageError, WorkerError)]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_between_processes_keeps_text_and_code(kind: type[GarError]):
    for error in (kind("rows.jsonl:3: empty."), kind("rows.jsonl:3: empty.", code="empty-row")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.code) == (kind, "rows.jsonl:3: empty.", error.code)


def test_an_error_of_records_keeps_the_errno_of_the_system():
    with pytest.raises(OSError) as caught, system_errors("runs/a", "written"):  # noqa: PT011  the number is asserted
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (type(caught.value), caught.value.errno) == (RecordError, errno.ENOSPC)
    with pytest.raises(AssertionError), raises(DataError, "data"):  # the tests' own check of a code
        raise DataError("empty", code="empty-row")
