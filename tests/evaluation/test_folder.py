"""An evaluation that resumes loses nothing finished, and is never mixed with another one."""

from pathlib import Path

import pytest

from gar.errors import ConfigError, RecordError
from gar.evaluation.folder import EvaluationFolder
from gar.types import Problem
from tests.support.errors import raises

FIRST, SECOND = {"problem": "a", "sample": 0}, {"problem": "a", "sample": 1}
IDENTITY = {"model": {"path": "here", "hash": "12"}, "seed": 0}


def begun(folder: Path, overwrite: bool = False, **changes) -> EvaluationFolder:
    output = EvaluationFolder(folder)
    output.begin(IDENTITY | changes, [Problem(id="a", prompt="1+1=", answer="2")], overwrite=overwrite)
    return output


def test_finished_lines_of_a_killed_writer_lose_the_torn_line_alone(tmp_path):
    responses = tmp_path / "responses.jsonl"
    output = begun(tmp_path)
    output.add_lines([])
    assert not responses.exists()
    output.add_lines([FIRST])
    whole = responses.read_bytes()
    for size in range(len(whole)):
        responses.write_bytes(whole + whole[:size])
        assert list(output.lines()) == [FIRST]
        begun(tmp_path).add_lines([SECOND])
        assert list(output.lines()) == [FIRST, SECOND]
    responses.write_bytes(b"[]\n" + whole)
    with raises(RecordError, "record", "responses.jsonl:1"):
        list(output.lines())


def test_only_the_same_evaluation_resumes_and_overwrite_begins_anew(tmp_path):
    output = begun(tmp_path)
    output.add_lines([FIRST])
    (tmp_path / "metrics.json").write_text("{}")
    begun(tmp_path, model={"path": "there", "hash": "12"})
    with raises(ConfigError, "other-settings"):
        begun(tmp_path, seed=1)
    with raises(ConfigError, "other-settings"):  # as soon as it is known
        output.check_same({"model": {"hash": "34"}})
    assert list(output.lines()) == [FIRST]
    assert (tmp_path / "metrics.json").exists()
    begun(tmp_path, seed=1, overwrite=True).check_same(IDENTITY | {"seed": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["problems.jsonl", "set.json"]


@pytest.mark.parametrize(
    ("lose", "kind"), [(lambda path: path.write_text("{"), RecordError), (Path.unlink, ConfigError)]
)
def test_work_without_a_whole_identity_is_kept_until_overwritten(tmp_path, lose, kind):
    begun(tmp_path).add_lines([FIRST])
    lose(tmp_path / "set.json")
    with raises(kind):
        begun(tmp_path)
    assert (tmp_path / "responses.jsonl").exists()
    assert list(begun(tmp_path, overwrite=True).lines()) == []
