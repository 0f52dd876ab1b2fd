import re

from gar.data.check import check_problems
from gar.data.problems import load_problems
from gar.errors import DataError
from gar.settings import SourceSettings
from tests.support.tiny import word_tokenizer


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
    )
    report = check_problems(path)
    assert (report.column_schema, report.num_problems, report.num_anchors) == ("gar", 4, 3)
    assert (report.prompt_tokens, report.anchor_tokens) == (None, None)
    assert report.without_anchor.examples == [f"{path}:3: problem 'n-3'"]
    assert {reason: finding.examples for reason, finding in report.dropped.items()} == {
        "the answer is empty": [f"{path}:4"]
    }
    assert [re.search(r":(\d+): ", error)[1] for error in report.errors.examples] == ["2", "5", "6"]
    assert report.repeated_prompts.examples == [f"{path}:7: problem 'n-7'"]
    options = SourceSettings(prompt_field="task", anchor_fields=("teacher",))
    report = check_problems(write_rows({"task": "1+1=", "answer": "2", "teacher": "so 2"}), options=options)
    assert (report.num_problems, report.num_anchors, report.errors.count) == (1, 1, 0)


def test_check_problems_has_errors_exactly_where_load_problems_raises(write_rows):
    for rows in (
        [ours(1), ours(2)],
        [ours(1), ours(1)],
        [ours(1, answer="")],
        ["broken"],
        [{"promt": "a", "answer": "b"}],
        [ours(1), {"prompt": "no answer column"}],
    ):
        path = write_rows(*rows)
        try:
            load_problems(path)
            rejected = False
        except DataError:
            rejected = True
        assert bool(check_problems(path).errors.count) == rejected


def test_check_problems_measures_and_compares_every_anchor_over_several_batches(write_rows):
    rows = [ours(i, prompt=f"q{i} " + "w " * i, expert_solution=[f"A: {i + 1}", "so A: 0"]) for i in range(700)]
    path = write_rows(*rows)
    report = check_problems(path, tokenizer=word_tokenizer(signs=True), compare_workers=1)
    assert report.prompt_tokens == dict(num_texts=700, min=1, median=351, p90=631, p99=694, max=700)
    assert report.anchor_tokens == dict(num_texts=1400, min=3, median=4, p90=4, p99=4, max=4)
    assert {status: found.count for status, found in report.comparisons.items()} == {"ok": 700, "wrong": 700}
    assert report.comparisons["wrong"].examples[0].startswith(f"{path}:1: problem 'n-0'")
