"""Errors keep their text and code on the way between processes, and each class has a code of its own."""

import errno
import pickle

import pytest

from gar import errors
from gar.errors import DataError, GarError, LockedError, RecordError
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
    error = RecordError("runs/a: the disk is full.", code="disk-full")
    error.errno = errno.ENOSPC
    assert isinstance(error, OSError)
    assert (error.code, error.errno, str(error)) == ("disk-full", errno.ENOSPC, "runs/a: the disk is full.")


def test_raises_compares_the_code():
    with raises(DataError, "empty-row"):
        raise DataError("empty", code="empty-row")
    with raises(RecordError, "locked"):
        raise LockedError("locked")
    with raises(DataError):
        raise DataError("empty", code="empty-row")
    with pytest.raises(AssertionError, match="expected code 'data', got 'empty-row'"), raises(DataError, "data"):
        raise DataError("empty", code="empty-row")
