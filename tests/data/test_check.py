import dataclasses
import re

import pytest

from gar.data.check import check_problems
from gar.data.problems import load_problems
from gar.errors import DataError
from gar.settings import SourceSettings


def ours(number: int, **changes: object) -> dict[str, object]:
    row = {"id": f"n-{number}", "prompt": f"{number} + 1 =", "answer": str(number + 1), "expert_solution": "a b"}
    return row | changes


def test_check_problems_counts_everything_it_finds(write_rows):
    path = write_rows(
        ours(1),
        "not json",
        ours(3, expert_solution=None),
        ours(4, answer=""),
        ours(5, prompt=5),
        ours(6, id="n-1"),
        ours(7, prompt=" 1  + 1 ="),
        ours(8, prompt="Write <think> and 8", expert_solution=["<think> x </think>", "y"]),
    )
    report = check_problems(path)
    assert (report.column_schema, report.num_problems, report.num_anchors) == ("gar", 5, 5)
    assert (report.prompt_tokens, report.anchor_tokens) == (None, None)
    assert report.without_anchor.examples == [f"{path}:3: problem 'n-3'"]
    assert {reason: finding.examples for reason, finding in report.dropped.items()} == {
        "the answer is empty": [f"{path}:4"]
    }
    assert report.errors.count == 3
    assert [re.search(r":(\d+): (.*)", error).groups() for error in report.errors.examples] == [
        ("2", "not valid JSON: Expecting value at column 1."),
        ("5", "column 'prompt' must be text, got a number: 5."),
        ("6", "problem 'n-1': the id was already used by an earlier row"),
    ]
    assert report.repeated_prompts.examples == [f"{path}:7: problem 'n-7'"]
    assert report.prompts_with_tags.examples == [f"{path}:8: problem 'n-8' has <think>"]


def test_check_problems_knows_the_tags_of_both_variants_and_no_comparisons(write_rows):
    tags = ["<think>", "</think>", "<answer>", "</answer>", "<|think|>", "<|/think|>"]
    rows = [ours(number, prompt=f"say {tag} now") for number, tag in enumerate(tags)]
    report = check_problems(write_rows(*rows, ours(7, prompt="Is 1<think and 2>1?")))
    assert report.prompts_with_tags.count == len(tags)


@pytest.mark.parametrize(
    "rows",
    [
        [ours(1), ours(2)],
        [ours(1), ours(1)],
        [ours(1, answer="")],
        [],
        ["broken"],
        [{"promt": "a", "answer": "b"}],
        [ours(1), {"prompt": "no answer column"}],
    ],
)
def test_check_problems_has_errors_exactly_where_load_problems_refuses(write_rows, rows):
    path = write_rows(*rows)
    try:
        load_problems(path)
        rejected = False
    except DataError:
        rejected = True
    assert (check_problems(path).errors.count > 0) == rejected


def test_check_problems_reports_a_source_that_cannot_be_read(tmp_path):
    errors = dataclasses.asdict(check_problems(str(tmp_path / "nowhere.jsonl")))["errors"]
    assert errors["count"] == len(errors["examples"]) == 1
    assert "no such file" in errors["examples"][0]


def test_check_problems_measures_tokens_over_several_batches(write_rows, tokenizer):
    rows = [ours(i, prompt=f"q{i} " + "w " * i, expert_solution=["a b", "a b c d"]) for i in range(1000)]
    report = check_problems(write_rows(*rows), tokenizer=tokenizer)
    assert report.prompt_tokens == dict(num_texts=1000, min=1, median=501, p90=901, p99=991, max=1000)
    assert report.anchor_tokens == dict(num_texts=2000, min=2, median=4, p90=4, p99=4, max=4)


def test_check_problems_compares_every_anchor_with_the_gold_answer(write_rows):
    rows = [ours(i, expert_solution=[f"A: {i + 1}", "A: 0"] if i % 2 else f"A: {i + 1}") for i in range(700)]
    path = write_rows(*rows)
    report = check_problems(path, compare_workers=1)
    assert {status: found.count for status, found in report.comparisons.items()} == {"ok": 700, "wrong": 350}
    assert report.comparisons["wrong"].examples[0] == (
        f"{path}:2: problem 'n-1': expert solution ends in '0', gold is '2'"
    )


def test_check_problems_follows_the_named_fields(write_rows):
    options = SourceSettings(prompt_field="task", anchor_fields=("teacher",))
    report = check_problems(write_rows({"task": "1+1=", "answer": 2, "teacher": "x"}), options=options)
    assert (report.num_problems, report.num_anchors, report.errors.count) == (1, 1, 0)


@pytest.mark.data
@pytest.mark.parametrize(("name", "num_problems"), [("gsm8k_train_2000", 2000), ("gsm8k_test", 1319)])
def test_check_problems_finds_nothing_wrong_with_gsm8k(data_dir, tokenizer, name, num_problems):
    report = check_problems(str(data_dir / f"{name}.jsonl"), tokenizer=tokenizer)
    assert (report.num_problems, report.num_anchors, report.errors.count) == (num_problems, num_problems, 0)
    assert (report.dropped, report.repeated_prompts.count, report.prompts_with_tags.count) == ({}, 0, 0)
    assert report.prompt_tokens["num_texts"] == report.anchor_tokens["num_texts"] == num_problems
