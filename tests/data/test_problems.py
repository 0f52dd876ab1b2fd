import re
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from gar.data.arithmetic import load_arithmetic
from gar.data.problem_set import load_problems
from gar.data.problems import (
    evaluation_data,
    iter_problems,
    problems_of,
    prompt_hash,
    schema_of,
)
from gar.errors import DataError
from gar.settings import DataSettings, SourceSettings
from gar.types import Anchor, Problem
from tests.support.errors import raises


def ours(number: int, **changes: object) -> dict[str, object]:
    row = {"id": f"n-{number}", "prompt": f"{number}+1=", "answer": str(number + 1), "expert_solution": f"add {number}"}
    return row | changes


def problem(number: int, source: str) -> Problem:
    anchors = (Anchor(text=f"add {number}"),)
    return Problem(id=f"n-{number}", prompt=f"{number}+1=", answer=str(number + 1), anchors=anchors, source=source)


def test_problems_keep_order_ids_and_anchors_whoever_holds_the_rows(write_rows, capfd):
    loaded = load_problems(write_rows(ours(1), ours(2)))
    assert ([*loaded], len(loaded), loaded.notes) == ([problem(1, "rows"), problem(2, "rows")], 2, [])
    rows = [ours(1, source="s"), ours(2, source="s")]
    for held in (rows, Dataset.from_list(rows), load_problems(write_rows(*rows))):
        found = problems_of(held)
        assert found == [problem(1, "s"), problem(2, "s")]
        assert problems_of(found) == found
    assert capfd.readouterr() == ("", "")  # no progress bar where stderr is no terminal


def test_problems_of_names_the_row_that_is_wrong():
    for rows, named in (
        (["3+4="], ("1", "str")),
        ([{"prompt": "3+4=", "gold": "7"}], ("'answer'",)),
        ([ours(1), ours(2, answer="")], ("row 2",)),
        ([ours(1), ours(1)], ("row 2", "row 1")),
    ):
        with raises(DataError, None, *named):
            problems_of(rows)


def test_load_problems_makes_ids_from_lines_and_notes_what_was_dropped_and_what_lacks_an_anchor(write_rows):
    rows = [{"prompt": "a", "answer": "1"}, "", {"prompt": "b", "answer": "2"}]
    assert [problem.id for problem in load_problems(write_rows(*rows, name="p.jsonl"))] == ["p-1", "p-3"]
    path = write_rows(ours(1, answer=""), ours(2, expert_solution=""), ours(3, answer=None), ours(4), ours(5))
    assert load_problems(path).notes == [
        f"{path}:1: dropped, the answer is empty (2 of 5 rows).",
        f"{path}:2: problem 'n-2' has no expert solution (1 of 3 lack one).",
    ]


def test_load_problems_rejects_an_empty_source_and_says_why_no_row_gives_a_problem(write_rows, tmp_path):
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), tmp_path / "rows.parquet")
    for path in (write_rows(), write_rows("", "  ", name="blank.jsonl"), str(tmp_path / "rows.parquet")):
        with raises(DataError):
            load_problems(path)
    path = write_rows(*({"question": f"{number}?", "answer": "just 7"} for number in range(3)))
    with raises(DataError, None, "gsm8k", "3 x nothing after ####"):
        load_problems(path)
    options = SourceSettings(column_schema="gar", prompt_field="question")
    assert load_problems(path, options=options)[0].answer == "just 7"
    assert (schema_of(path).name, schema_of(path, options).name) == ("gsm8k", "gar")


def test_load_problems_needs_one_of_the_named_expert_fields_somewhere(write_rows):
    path = write_rows(ours(1), ours(2, teacher="by hand"))
    with raises(DataError, None, "'expert_soluton'", "Did you mean 'expert_solution'?"):
        load_problems(path, options=SourceSettings(expert_fields=("expert_soluton",)))
    loaded = load_problems(path, options=SourceSettings(expert_fields=("nowhere", "teacher")))
    assert [each.anchors for each in loaded] == [(), (Anchor(text="by hand"),)]


def test_a_later_row_with_columns_of_another_schema_is_an_error(write_rows):
    """A writer may leave out what is null. A first row without an answer had all gold answers read from boxes."""
    rows = [
        {"problem": "1+2", "solution": r"so \boxed{3}"},
        {"problem": "2+2", "solution": r"\boxed{4}", "answer": "5"},
    ]
    for read in (lambda **options: load_problems(write_rows(*rows), **options), partial(problems_of, rows)):
        with raises(DataError, "data", "the schema is numina-1.5", "read as numina-cot"):
            read()
        found = read(options=SourceSettings(column_schema="numina-cot"))
        assert [problem.answer for problem in found] == ["3", "4"]
    others = write_rows({"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "2", "note": "c"})
    assert len(load_problems(others)) == 2


def test_iter_problems_reads_row_by_row_and_goes_on_where_errors_are_collected(write_rows):
    path = write_rows(ours(1), ours(2, answer=""), ours(3), "broken", ours(5, prompt=7), ours(6))
    assert [problem.id for problem in load_problems(path, max_problems=2)] == ["n-1", "n-3"]
    with raises(DataError, None, "rows.jsonl:4: "):
        load_problems(path, max_problems=3)
    errors: list[DataError] = []
    dropped = []
    found = [
        problem.id
        for _, problem in iter_problems(path, on_error=errors.append, on_drop=lambda *row: dropped.append(row))
    ]
    assert (found, dropped) == (["n-1", "n-3", "n-6"], [(f"{path}:2", "the answer is empty")])
    assert [re.search(r":(\d): ", str(error))[1] for error in errors] == ["4", "5"]


def test_prompt_hash_ignores_white_space_and_nothing_else():
    assert prompt_hash("3 + 4\n=") == prompt_hash("  3 +  4 =  ")
    assert prompt_hash([{"role": "user", "content": "3 + 4 ="}]) == prompt_hash("3 + 4 =")
    assert len({prompt_hash("3 + 4 ="), prompt_hash("3+4="), prompt_hash("3 + 4 =", seed=1)}) == 3
    assert prompt_hash("3 + 4 =", seed=17) == 10483405682060780254  # another value would change every published subset


def test_load_problems_reads_the_named_split_and_subset():
    found = load_problems("arithmetic", options=SourceSettings(split="test", subset="guess"), max_problems=3)
    assert list(found) == load_arithmetic("test", "guess")[:3]


def test_evaluation_data_is_that_of_the_run_from_another_place(tmp_path, monkeypatch):
    for source, expected in (("harder", ("arithmetic", "harder")), ("a/b/numina", ("a/b/numina", "train"))):
        data = evaluation_data(DataSettings(subset="guess"), source)
        assert ((data.source, data.split), data.subset) == (expected, "guess")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test").touch()
    assert evaluation_data(DataSettings(), "test").source == "test"  # a file goes before a split of its name


@pytest.mark.data
def test_load_problems_reads_gsm8k(data_dir):
    for name, num_problems in (("gsm8k_train_2000", 2000), ("gsm8k_test", 1319)):
        loaded = load_problems(str(data_dir / f"{name}.jsonl"))
        assert (len(loaded), loaded.notes) == (num_problems, [])
        assert all(re.fullmatch(r"-?\d+(\.\d+)?", problem.answer) for problem in loaded)
        assert not [each for each in loaded if "<<" in each.anchors[0].text or "####" in each.anchors[0].text]
        assert len({problem.prompt for problem in loaded}) == num_problems
