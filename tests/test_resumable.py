"""Output that resumes: nothing finished is lost, and nothing is mixed with another run's."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from gar.errors import ConfigError, RecordError
from gar.records.resumable import FinishedLines, ResumableOutput
from tests.support.errors import raises


@dataclass
class Sample:
    id: str
    tokens: Sequence[int]


FIRST, SECOND = {"id": "a", "tokens": [1]}, {"id": "b", "tokens": []}


@pytest.fixture
def samples(tmp_path):
    return FinishedLines(tmp_path / "samples.jsonl", Sample, tmp_path / "set.json")


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


def test_finished_lines_name_a_line_of_another_kind(samples):
    samples.append([FIRST, {"id": 3, "tokens": []}])
    with pytest.raises(RecordError, match=r"samples\.jsonl:2: id: "):
        list(samples)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: [lines[0].replace(b"[1]", b"[2]"), *lines[1:]], 1),
        (lambda lines: [lines[1], lines[0], lines[2]], 1),
        (lambda lines: [lines[0], lines[0], *lines[1:]], 2),
        (lambda lines: lines[::2], 2),
        (lambda lines: [lines[0], b'{"id": "b", "tokens": []}\n'], 2),
    ],
    ids=["edited", "swapped", "twice", "one less", "unchecked"],
)
def test_finished_lines_that_were_changed_are_named_and_never_added_to(samples, change, line):
    samples.append([FIRST, SECOND])
    samples.append([FIRST])
    samples.path.write_bytes(b"".join(change(samples.path.read_bytes().splitlines(keepends=True))))
    again = FinishedLines(samples.path, Sample, samples.path.with_name("set.json"))
    for use in (list, lambda lines: lines.append([SECOND])):
        with raises(RecordError, "damage") as caught:
            use(again)
        assert f"samples.jsonl:{line}: " in str(caught.value)


def test_finished_lines_of_another_output_are_an_error(tmp_path, output, samples):
    output.begin(IDENTITY, overwrite=False)
    samples.append([FIRST])
    output.identity_path.write_text(output.identity_path.read_text().replace("here", "there"))
    with raises(RecordError, "damage"):
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
    with pytest.raises(ConfigError, match=r"set\.json: this output was begun .*: seed was 0, is 1\. Repeat"):
        output.begin(IDENTITY | {"seed": 1}, overwrite=False)
    with pytest.raises(ConfigError, match=r"model\.hash was '12', is '34'"):
        output.refuse_other({"model": {"hash": "34"}})
    assert list(samples) == [FIRST]
    assert output.results[0].exists()
    output.begin(IDENTITY | {"seed": 1}, overwrite=True)
    assert list(samples) == []
    assert not output.results[0].exists()
    output.refuse_other(IDENTITY | {"seed": 1})


def test_output_whose_identity_is_damaged_is_refused_until_overwritten(output, samples):
    output.begin(IDENTITY, overwrite=False)
    samples.append([FIRST])
    output.identity_path.write_text("{")
    with pytest.raises(RecordError, match=r"set\.json: not valid JSON"):
        output.begin(IDENTITY, overwrite=False)
    assert samples.path.exists()
    output.begin(IDENTITY, overwrite=True)
    assert list(samples) == []
    output.refuse_other(IDENTITY)


def test_lines_without_an_identity_are_refused_until_overwritten(output, samples):
    samples.append([FIRST])
    for attempt in (output.refuse_other, lambda identity: output.begin(identity, overwrite=False)):
        with pytest.raises(ConfigError, match=r"samples\.jsonl: finished work, but set\.json .* is missing\."):
            attempt(IDENTITY)
    assert list(samples) == [FIRST]
    output.begin(IDENTITY, overwrite=True)
    assert list(samples) == []
    output.remove()
    output.remove()
    assert not output.exists()
