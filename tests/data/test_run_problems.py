"""A run's problems are those of its data section, whoever asks."""

import json

import pytest

from gar.data.arithmetic import load_arithmetic
from gar.data.run_problems import evaluation_data, find_run_problems, load_run_problems
from gar.errors import DataError
from gar.settings import DataSettings
from tests.support.errors import raises


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"id": f"n-{i}", "question": f"{i}+1=", "answer": str(i + 1)}) for i in range(5)]
    path.write_text("\n".join([*lines[:2], "no json", *lines[2:]]) + "\n")
    return path


def fields(path, **changes) -> DataSettings:
    return DataSettings(source=str(path), prompt_field="question", answer_field="answer", **changes)


def test_load_run_problems_takes_split_expert_and_number_of_the_embedded_task():
    found = load_run_problems(DataSettings(split="test", subset="guess", max_problems=3))
    assert found.problems == load_arithmetic("test", "guess")[:3]
    for change in ({"split": "validation"}, {"subset": "wise"}):
        with raises(DataError):
            load_run_problems(DataSettings(**change))


def test_load_run_problems_reads_a_file_with_the_named_columns(rows):
    found = load_run_problems(fields(rows, max_problems=2))
    assert [(problem.prompt, problem.answer) for problem in found.problems] == [("0+1=", "1"), ("1+1=", "2")]
    with pytest.raises(DataError, match=r"rows.jsonl:3"):
        load_run_problems(fields(rows))


def test_find_run_problems_passes_over_bad_rows_and_stops_when_all_are_found(rows):
    ids = [problem.id for problem in load_run_problems(fields(rows, max_problems=2)).problems]
    assert list(find_run_problems(fields(rows), ids)) == ids
    found = find_run_problems(fields(rows), ["n-4", "unknown"])
    assert {name: problem.answer for name, problem in found.items()} == {"n-4": "5"}
    assert list(find_run_problems(DataSettings(split="test"), ["test-7"])) == ["test-7"]


def test_evaluation_data_is_that_of_the_run_from_another_place(tmp_path, monkeypatch):
    for source, expected in (("harder", ("arithmetic", "harder")), ("a/b/numina", ("a/b/numina", "train"))):
        data = evaluation_data(DataSettings(subset="guess"), source)
        assert ((data.source, data.split), data.subset) == (expected, "guess")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test").touch()
    assert evaluation_data(DataSettings(), "test").source == "test"  # a file goes before a split of its name
