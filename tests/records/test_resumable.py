"""Output that resumes loses nothing finished, and is never mixed with the output of another run."""

from pathlib import Path

import pytest

from gar.errors import ConfigError, RecordError
from gar.records.resumable import ResumableOutput
from tests.support.errors import raises

FIRST, SECOND = {"id": "a", "tokens": [1]}, {"id": "b", "tokens": []}


def output_in(folder: Path) -> ResumableOutput:
    return ResumableOutput(folder, "set.json", "samples.jsonl", ["metrics.json"], ignored=["model.path"])


@pytest.fixture
def output(tmp_path):
    return output_in(tmp_path)


IDENTITY = {"model": {"path": "here", "hash": "12"}, "seed": 0}


def test_finished_lines_of_a_killed_writer_lose_the_torn_line_alone(output):
    assert list(output.finished()) == []
    output.begin(IDENTITY, overwrite=False)
    output.append([])
    assert not output.lines_path.exists()
    output.append([FIRST])
    whole = output.lines_path.read_bytes()
    for size in range(len(whole)):
        output.lines_path.write_bytes(whole + whole[:size])
        assert list(output.finished()) == [FIRST]
        output.begin(IDENTITY, overwrite=False)
        output.append([SECOND])
        assert list(output.finished()) == [FIRST, SECOND]
    output.lines_path.write_bytes(b"[]\n" + whole)
    with raises(RecordError, "record", "samples.jsonl:1"):
        list(output.finished())


def test_output_is_resumed_by_the_same_run_alone(output):
    problems = output.identity_path.with_name("problems.jsonl")
    output.begin(IDENTITY, overwrite=False, prepare=lambda: problems.write_text("first\n"))
    output.begin(IDENTITY, overwrite=False, prepare=lambda: problems.write_text("second\n"))
    assert problems.read_text() == "first\n"  # it is resumed
    output.append([FIRST])
    result = output.lines_path.with_name("metrics.json")
    result.write_text("{}")
    output.begin(IDENTITY | {"model": {"path": "there", "hash": "12"}}, overwrite=False)
    output.begin(IDENTITY, overwrite=True)
    assert list(output.finished()) == [FIRST]
    with raises(ConfigError, "other-settings"):
        output.begin(IDENTITY | {"seed": 1}, overwrite=False)
    with raises(ConfigError, "other-settings"):
        output.refuse_other({"model": {"hash": "34"}})
    assert list(output.finished()) == [FIRST]
    assert result.exists()
    output.begin(IDENTITY | {"seed": 1}, overwrite=True)
    assert list(output.finished()) == []
    assert not result.exists()
    output.refuse_other(IDENTITY | {"seed": 1})


def test_work_without_a_whole_identity_is_kept_until_overwritten(output):
    for lost, kind in ((lambda path: path.write_text("{"), RecordError), (Path.unlink, ConfigError)):
        output.begin(IDENTITY, overwrite=False)
        output.append([FIRST])
        lost(output.identity_path)
        with raises(kind):
            output.begin(IDENTITY, overwrite=False)
        assert output.lines_path.exists()
        output.begin(IDENTITY, overwrite=True)
        assert list(output.finished()) == []
        output.refuse_other(IDENTITY)
    output.remove()
    output.remove()
    assert not output.identity_path.exists()
