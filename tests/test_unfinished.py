"""Append-only files of killed processes."""

import pytest

from gar.errors import RecordError
from gar.records.unfinished import differences, whole_objects


def test_whole_lines_leave_out_a_torn_last_line(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert list(whole_objects(path)) == []
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n{"a":')
    assert list(whole_objects(path)) == [{"a": 1}, {"a": 2}]


def test_whole_lines_name_the_line_that_is_no_object(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\n[2]\n')
    with pytest.raises(RecordError, match=r"lines\.jsonl:2: expected a JSON object, got list"):
        list(whole_objects(path))


def test_differences_are_of_what_the_second_says_alone():
    there = {"a": {"b": 1, "c": [2]}, "d": 3}
    assert differences(there, {"a": {"b": 1, "c": (2,)}}) == {}
    assert differences(there, {"a": {"b": 0}, "e": 4}) == {"a.b": (1, 0), "e": (None, 4)}
