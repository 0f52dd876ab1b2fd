"""How a command ends where every response failed in the same way: one sentence, the flag that mends it, status 3."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gar.cli import outcomes
from gar.cli.main import main
from gar.cli.outcomes import DEGENERATE, degenerate
from gar.data.arithmetic import load_arithmetic


def sentence_of(**changes: Any) -> str:
    values: dict[str, Any] = {"total": 12, "format": "think-answer", "well_formatted": 12, "statuses": {"ok": 12}}
    return degenerate(**values | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"statuses": {"wrong": 12}},  # hard problems are an ordinary result
        {"statuses": {"wrong": 1, "unparsed": 11}, "well_formatted": 1, "truncated": 11, "aligned": 1},
        {"statuses": {}, "aligned": 12},  # the file itself says which responses are right
        {"unknown_fraction": 0.5},
    ],
)
def test_degenerate_says_nothing_of_an_ordinary_result(changes):
    assert sentence_of(**changes) == ""


@pytest.mark.parametrize(
    ("changes", "sentence", "flag"),
    [
        ({"truncated": 12}, "All 12 responses were cut off at the length limit.", "--max-new-tokens"),
        ({"well_formatted": 0}, "None of 12 responses is in the format 'think-answer'", "--format none"),
        ({"statuses": {"unparsed": 12}}, "None of 12 responses was graded: no answer was found", "--format none"),
        ({"statuses": {"error": 12}}, "None of 12 responses was graded: the gold answers", "--answer-in-solution"),
        ({"statuses": {"error": 5, "timeout": 7}}, "every check ran into its time limit", "timeout-seconds"),
        ({"aligned": 0}, "None of 12 responses has an alignment", "--anchor-fields"),
        ({"unknown_fraction": 0.87}, "87% of the responses' tokens are unknown to the tokenizer", "MODEL"),
    ],
)
def test_degenerate_names_the_fault_and_the_flag_that_mends_it(changes, sentence, flag):
    text = sentence_of(**changes)
    assert sentence in text
    assert flag in text
    assert "\n" not in text
    assert "--format" not in sentence_of(format="none", statuses={"unparsed": 12})  # it is the one that was used


def rows(path: Path, **changes: Any) -> str:
    problem = load_arithmetic("test")[0]
    row = {"prompt": problem.prompt, "responses": ["7", "8"], "answer": "7", "expert_solution": problem.anchors[0].text}
    path.write_text(json.dumps(row | changes) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("changes", "flags", "words"),
    [
        ({}, [], "None of 2 responses is in the format 'think-answer'"),
        ({"responses": ["", "?"]}, ["--format", "none"], "None of 2 responses was graded: no answer"),
        ({"answer": "3 + 4 is 7.\n#### 7"}, ["--format", "none"], "--answer-in-solution"),
        ({"responses": ["Natalia sold clips in April. 7"] * 2}, ["--format", "none"], "unknown to the tokenizer"),
    ],
)
def test_score_says_it_above_the_table_and_exits_with_3(tmp_path, capsys, changes, flags, words):
    command = ["score", "embedded", rows(tmp_path / "rows.jsonl", **changes), "--out", str(tmp_path / "out.jsonl")]
    assert main([*command, *flags]) == DEGENERATE
    assert words in capsys.readouterr().out.splitlines()[0]
    if not flags:
        assert main([*command, "--overwrite", "--allow-degenerate"]) == 0
        assert words in capsys.readouterr().out.splitlines()[0]


def test_eval_says_it_above_the_table_and_exits_with_3(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["eval", "run", "embedded", "--benchmark", "arithmetic", "--limit", "2", "--samples", "1"]
    command += ["--max-new-tokens", "2"]
    assert main(command) == DEGENERATE
    expected = "All 2 responses were cut off at the length limit. Raise --max-new-tokens."
    assert capsys.readouterr().out.splitlines()[0] == expected
    assert main(["eval", "score", "evals/embedded"]) == DEGENERATE
    assert main([*command, "--allow-degenerate"]) == 0


def test_statuses_stand_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert listed == {value for name, value in vars(outcomes).items() if name.isupper() and isinstance(value, int)}
