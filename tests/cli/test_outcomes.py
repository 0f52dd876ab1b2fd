"""How a command ends where every response failed in the same way: one sentence, the flag that mends it, status 3."""

import json
import re
from pathlib import Path
from typing import Any

from gar.cli import outcomes
from gar.cli.main import main
from gar.cli.outcomes import DEGENERATE, degenerate
from gar.data.arithmetic import load_arithmetic


def sentence_of(**changes: Any) -> str:
    values: dict[str, Any] = {"total": 12, "format": "think-answer", "well_formatted": 12, "statuses": {"ok": 12}}
    return degenerate(**values | changes)


def test_degenerate_says_nothing_of_an_ordinary_result():
    for changes in (
        {},
        {"statuses": {"wrong": 12}},  # hard problems are an ordinary result
        {"statuses": {"wrong": 1, "unparsed": 11}, "well_formatted": 1, "truncated": 11, "aligned": 1},
        {"statuses": {}, "aligned": 12},  # the file itself says which responses are right
        {"unknown_fraction": 0.5},
    ):
        assert sentence_of(**changes) == ""


def test_degenerate_names_the_fault_and_the_flag_that_mends_it():
    for changes, flag in (
        ({"truncated": 12}, "--max-new-tokens"),
        ({"well_formatted": 0}, "--format none"),
        ({"statuses": {"unparsed": 12}}, "--format none"),
        ({"statuses": {"error": 12}}, "--answer-in-solution"),
        ({"statuses": {"error": 5, "timeout": 7}}, "timeout-seconds"),
        ({"aligned": 0}, "--anchor-fields"),
        ({"unknown_fraction": 0.87}, "Name the model that wrote the responses as MODEL"),
    ):
        assert flag in sentence_of(**changes)
        assert "\n" not in sentence_of(**changes)
    assert "--format" not in sentence_of(format="none", statuses={"unparsed": 12})  # it is the one that was used


def rows(path: Path, **changes: Any) -> str:
    problem = load_arithmetic("test")[0]
    row = {"prompt": problem.prompt, "responses": ["7", "8"], "answer": "7", "expert_solution": problem.anchors[0].text}
    path.write_text(json.dumps(row | changes) + "\n")
    return str(path)


def test_score_says_it_above_the_table_and_exits_with_3(tmp_path, capsys):
    file, unknown = tmp_path / "rows.jsonl", {"responses": ["Natalia sold clips in April. 7"] * 2}
    for changes, flags, status, words in (
        ({}, [], DEGENERATE, "None of 2 responses is in the format 'think-answer'"),
        ({}, ["--allow-degenerate"], 0, "None of 2 responses is in the format 'think-answer'"),
        (unknown, ["--format", "none"], DEGENERATE, "unknown to the tokenizer"),
    ):
        command = ["score", "embedded", rows(file, **changes), "--out", str(tmp_path / "out.jsonl"), "--overwrite"]
        assert main([*command, *flags]) == status
        assert words in capsys.readouterr().out.splitlines()[0]


def test_eval_says_it_above_the_table_and_exits_with_3(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["eval", "run", "embedded", "--benchmark", "arithmetic", "--limit", "2", "--samples", "1"]
    assert main([*command, "--max-new-tokens", "2"]) == DEGENERATE
    expected = "All 2 responses were cut off at the length limit. Raise --max-new-tokens."
    assert capsys.readouterr().out.splitlines()[0] == expected
    assert main(["eval", "score", "evals/embedded", "--allow-degenerate"]) == 0


def test_statuses_stand_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert listed == {value for name, value in vars(outcomes).items() if name.isupper() and isinstance(value, int)}
