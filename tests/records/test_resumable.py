"""Output that resumes loses nothing finished, and is never mixed with the output of another run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gar.errors import ConfigError, RecordError
from gar.records.manifest import Manifest
from gar.records.resumable import ResumableOutput
from tests.support.errors import raises

FIRST, SECOND = {"id": "a", "tokens": [1]}, {"id": "b", "tokens": []}


def output_in(folder: Path) -> ResumableOutput:
    return ResumableOutput(Manifest(folder), "set.json", "samples.jsonl", ["metrics.json"], ignored=["model.path"])


@pytest.fixture
def output(tmp_path):
    return output_in(tmp_path)


IDENTITY = {"model": {"path": "here", "hash": "12"}, "seed": 0}


def test_finished_lines_of_a_killed_writer_lose_the_torn_line_alone(output):
    assert list(output.finished()) == []
    output.append([])
    assert not output.lines_path.exists()
    output.append([FIRST])
    whole = output.lines_path.read_bytes()
    for tail in (b"", b'{"id": "b", "tok', b'{"id": "b", "tokens": []}\n'):  # not listed: the writer was killed
        output.lines_path.write_bytes(whole + tail)
        again = output_in(output.lines_path.parent)
        assert list(again.finished()) == [FIRST]
        again.append([SECOND])
        assert list(again.finished()) == list(output.finished()) == [FIRST, SECOND]
        output.lines_path.write_bytes(whole)
        output.manifest.path.write_bytes(output.manifest.path.read_bytes().splitlines(keepends=True)[0])


CHANGES: list[Callable[[list[bytes]], list[bytes]]] = [
    lambda lines: [lines[0].replace(b"[1]", b"[2]"), *lines[1:]],  # edited
    lambda lines: [lines[1], lines[0], lines[2]],
    lambda lines: [lines[0], lines[0], *lines[1:]],
    lambda lines: lines[::2],
    lambda lines: lines[:-1],
]
"""What was done to three lines."""


def test_finished_lines_that_were_changed_are_found_and_never_added_to(output):
    output.begin(IDENTITY, overwrite=False)
    output.append([FIRST, SECOND])
    output.append([FIRST])
    whole = output.lines_path.read_bytes()
    for change in CHANGES:
        changed = b"".join(change(whole.splitlines(keepends=True)))
        output.lines_path.write_bytes(changed)
        again = output_in(output.lines_path.parent)
        for use in (lambda lines: list(lines.finished()), lambda lines: lines.append([SECOND])):
            with raises(RecordError, "damage", "samples.jsonl"):
                use(again)
        assert output.lines_path.read_bytes() == changed
    output.lines_path.write_bytes(whole)
    output.identity_path.write_text(output.identity_path.read_text().replace("here", "there"))
    with raises(RecordError, "damage", "set.json"):
        output.begin(IDENTITY, overwrite=False)


def test_output_is_resumed_by_the_same_run_alone(output):
    assert not output.exists()
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
    assert not output.exists()


def test_a_finished_output_leaves_no_unfinished_work_wherever_a_kill_comes(output):
    final = output.lines_path.with_name("scores.jsonl")
    output.begin(IDENTITY, overwrite=False)
    output.append([FIRST])
    final.write_text("scores")
    kept = output.identity_path.read_text(), output.lines_path.read_text()
    output.finish(final)
    assert sorted(path.name for path in final.parent.iterdir()) == ["manifest.jsonl", "scores.jsonl"]
    assert output.manifest.faults() == []
    for path, text in zip((output.identity_path, output.lines_path), kept, strict=True):
        path.write_text(text)  # the kill came before it was removed
        assert not output.exists()
        assert list(output.finished()) == []
    output.begin(IDENTITY | {"seed": 1}, overwrite=True)
    assert (list(output.finished()), output.exists()) == ([], True)
