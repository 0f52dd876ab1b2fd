"""Output that resumes loses nothing finished, and is never mixed with the output of another run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gar.errors import ConfigError, RecordError
from gar.records.resumable import FinishedLines, ResumableOutput
from tests.support.errors import raises

FIRST, SECOND = {"id": "a", "tokens": [1]}, {"id": "b", "tokens": []}


@pytest.fixture
def samples(tmp_path):
    return FinishedLines(tmp_path / "samples.jsonl", tmp_path / "set.json")


@pytest.fixture
def output(tmp_path, samples):
    results = (tmp_path / "metrics.json",)
    return ResumableOutput(tmp_path / "set.json", (samples,), results=results, ignored=("model.path",))


IDENTITY = {"model": {"path": "here", "hash": "12"}, "seed": 0}


def test_finished_lines_of_a_killed_writer_lose_the_torn_line_alone(samples):
    assert list(samples) == []
    samples.append([])
    assert not samples.path.exists()
    samples.append([FIRST, SECOND])
    samples.path.write_bytes(samples.path.read_bytes()[:-3])
    assert list(samples) == [FIRST]
    samples.append([SECOND])
    assert list(samples) == [FIRST, SECOND]


CHANGES: list[tuple[Callable[[list[bytes]], list[bytes]], int]] = [
    (lambda lines: [lines[0].replace(b"[1]", b"[2]"), *lines[1:]], 1),  # edited
    (lambda lines: [lines[1], lines[0], lines[2]], 1),
    (lambda lines: [lines[0], lines[0], *lines[1:]], 2),
    (lambda lines: lines[::2], 2),
    (lambda lines: [lines[0], b'{"id": "b", "tokens": []}\n'], 2),  # without a checksum
]
"""What was done to three lines, and the first of them that is no longer what was written."""


def test_finished_lines_that_were_changed_are_named_and_never_added_to(samples, output):
    samples.append([FIRST, SECOND])
    samples.append([FIRST])
    whole = samples.path.read_bytes()
    for change, line in CHANGES:
        samples.path.write_bytes(b"".join(change(whole.splitlines(keepends=True))))
        again = FinishedLines(samples.path, samples.path.with_name("set.json"))
        for use in (list, lambda lines: lines.append([SECOND])):
            with raises(RecordError, "damage") as caught:
                use(again)
            assert f"samples.jsonl:{line}: " in str(caught.value)
    samples.path.write_bytes(whole)
    output.begin(IDENTITY, overwrite=True)
    samples.append([FIRST])
    output.identity_path.write_text(output.identity_path.read_text().replace("here", "there"))
    with raises(RecordError, "damage"):  # lines of another output
        list(samples)


def test_output_is_resumed_by_the_same_run_alone(output, samples):
    assert not output.exists()
    problems = output.identity_path.with_name("problems.jsonl")
    output.begin(IDENTITY, overwrite=False, prepare=lambda: problems.write_text("first\n"))
    output.begin(IDENTITY, overwrite=False, prepare=lambda: problems.write_text("second\n"))
    assert problems.read_text() == "first\n"  # it is resumed
    samples.append([FIRST])
    output.results[0].write_text("{}")
    output.begin(IDENTITY | {"model": {"path": "there", "hash": "12"}}, overwrite=False)
    output.begin(IDENTITY, overwrite=True)
    assert list(samples) == [FIRST]
    with raises(ConfigError, "other-settings"):
        output.begin(IDENTITY | {"seed": 1}, overwrite=False)
    with raises(ConfigError, "other-settings"):
        output.refuse_other({"model": {"hash": "34"}})
    assert list(samples) == [FIRST]
    assert output.results[0].exists()
    output.begin(IDENTITY | {"seed": 1}, overwrite=True)
    assert list(samples) == []
    assert not output.results[0].exists()
    output.refuse_other(IDENTITY | {"seed": 1})


def test_work_without_a_whole_identity_is_kept_until_overwritten(output, samples):
    for lost, kind in ((lambda path: path.write_text("{"), RecordError), (Path.unlink, ConfigError)):
        output.begin(IDENTITY, overwrite=False)
        samples.append([FIRST])
        lost(output.identity_path)
        with raises(kind):
            output.begin(IDENTITY, overwrite=False)
        assert samples.path.exists()
        output.begin(IDENTITY, overwrite=True)
        assert list(samples) == []
        output.refuse_other(IDENTITY)
    output.remove()
    output.remove()
    assert not output.exists()
