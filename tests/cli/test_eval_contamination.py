"""`gar eval contamination`: a training file and a benchmark file in, a report with examples out."""

import json
from pathlib import Path

import pytest

from gar.cli.eval_contamination import main
from tests.files import write_jsonl

PROBLEM = "Ann has {} red apples and Bob has {} green pears in a box of wood; how many fruits are there?"


def write(path: Path, *prompts: str) -> str:
    rows = [{"id": f"p{i}", "prompt": prompt, "answer": "7", "expert_solution": ""} for i, prompt in enumerate(prompts)]
    return write_jsonl(path, rows)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_contamination_reports_a_copy_with_its_line(tmp_path: Path, wide: None, capsys) -> None:
    train = write(tmp_path / "train.jsonl", "What is 3+4?", PROBLEM.format(3, 4), "What is 3+5?")
    benchmark = write(tmp_path / "own.jsonl", PROBLEM.format(3, 4), PROBLEM.format(8, 9), "What is 1+1?")
    out = tmp_path / "report.json"
    assert main([train, "--benchmark", benchmark, "--json", str(out)]) == 1
    printed = capsys.readouterr().out
    assert f"3 rows of {train}" in printed
    rows = [line.split("│") for line in printed.splitlines() if line.startswith("│")]
    assert {label.strip(): int(count) for _, label, count, _ in rows} == {
        "with an exact copy": 1,
        "with all 13-grams in one row": 1,
        "with half of them in one row": 1,
        "with any 13-gram": 1,
        "too short for a 13-gram": 1,
    }
    assert "p0: 1 exact; 100% of its 13-grams, rows that share one: 1" in printed
    assert f"{train}:2  ann has 3 red apples" in printed
    overlaps = json.loads(out.read_text())["overlaps"]
    assert [overlap["num_exact"] for overlap in overlaps] == [1, 0, 0]
    assert overlaps[0]["place"] == f"{train}:2"


def test_contamination_of_a_clean_set_is_zero(tmp_path: Path, wide: None, capsys) -> None:
    train = write(tmp_path / "train.jsonl", "What is 3+4?")
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write(json.dumps({"id": "x", "prompt": "What is 4+4?", "answer": ""}) + "\n")
    benchmark = write(tmp_path / "own.jsonl", PROBLEM.format(3, 4))
    assert main([train, "--benchmark", benchmark]) == 0
    printed = capsys.readouterr().out
    assert "1 rows of the training set hold no usable problem" in printed
    assert "problem  " not in printed  # no example


def test_contamination_near_duplicates(tmp_path: Path, wide: None, capsys) -> None:
    train = write(tmp_path / "train.jsonl", PROBLEM.format(3, 5))
    benchmark = write(tmp_path / "own.jsonl", PROBLEM.format(3, 4))
    assert main([train, "--benchmark", benchmark, "--near", "0.4"]) == 0
    printed = capsys.readouterr().out
    (row,) = [line for line in printed.splitlines() if "near-duplicate, similarity 0.4" in line]
    assert row.split("│")[2].strip() == "1"
    assert "similarity 0.5" in printed
