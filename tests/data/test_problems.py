import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from gar.data.problems import ProblemReader, load_problems, problems_of, prompt_hash
from gar.data.schemas import Dropped
from gar.errors import DataError
from gar.settings import SourceSettings
from gar.types import Anchor, Problem
from tests.files import write_jsonl


def ours(number: int, **changes: object) -> dict[str, object]:
    row = {"id": f"n-{number}", "prompt": f"{number}+1=", "answer": str(number + 1), "expert_solution": f"add {number}"}
    return row | changes


def test_load_problems_keeps_order_ids_and_anchors(write_rows):
    loaded = load_problems(write_rows(ours(1), ours(2)))
    assert loaded.problems == [
        Problem(id="n-1", prompt="1+1=", answer="2", anchors=(Anchor(text="add 1"),), source="rows"),
        Problem(id="n-2", prompt="2+1=", answer="3", anchors=(Anchor(text="add 2"),), source="rows"),
    ]
    assert (loaded.column_schema, loaded.dropped, loaded.notes, loaded.num_without_anchor) == ("gar", [], [], 0)


def test_loaded_problems_are_iterated_like_a_list(write_rows):
    loaded = load_problems(write_rows(ours(1), ours(2)))
    assert ([*loaded], len(loaded)) == (loaded.problems, 2)


@pytest.mark.parametrize(
    "kind", [list, Dataset.from_list, lambda rows: load_problems(write_jsonl(Path("r.jsonl"), rows))]
)
def test_problems_of_rows_are_those_of_a_file(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = problems_of(kind([ours(1, source="s"), ours(2, source="s")]))
    assert found == [
        Problem(id="n-1", prompt="1+1=", answer="2", anchors=(Anchor(text="add 1"),), source="s"),
        Problem(id="n-2", prompt="2+1=", answer="3", anchors=(Anchor(text="add 2"),), source="s"),
    ]
    assert problems_of(found) == found


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["3+4="], r"problem 1 is str, expected a gar\.types\.Problem or a row with the columns prompt, answer and "),
        ([{"prompt": "3+4=", "gold": "7"}], "the rows: no column 'answer'"),
        ([ours(1), ours(2, answer="")], r"row 2: the answer is empty\. Leave out such rows\."),
        ([ours(1), ours(1)], "row 2: the problem id 'n-1' was already used at row 1"),
    ],
)
def test_problems_of_names_the_row_that_is_wrong(rows, message):
    with pytest.raises(DataError, match=message):
        problems_of(rows)


def test_load_problems_makes_ids_from_the_line_where_there_are_none(write_rows):
    rows = [{"prompt": "a", "answer": "1"}, "", {"prompt": "b", "answer": "2"}]
    assert [problem.id for problem in load_problems(write_rows(*rows, name="p.jsonl")).problems] == ["p-1", "p-3"]


def test_load_problems_counts_missing_anchors_and_names_the_first(write_rows):
    loaded = load_problems(write_rows(ours(1), ours(2, expert_solution=""), ours(3, expert_solution=None), ours(4)))
    assert loaded.num_without_anchor == 2
    assert len(loaded.notes) == 1
    assert re.search(r"rows.jsonl:2: problem 'n-2' has no anchor; 2 of 4 lack one\.$", loaded.notes[0])


def test_load_problems_lists_dropped_rows_with_line_and_reason(write_rows):
    rows = [{"problem": f"{i}?", "solution": "\\boxed{1}" if i % 3 else "unclear", "messages": []} for i in range(6)]
    path = write_rows(*rows)
    loaded = load_problems(path)
    assert [problem.id for problem in loaded.problems] == ["rows-2", "rows-3", "rows-5", "rows-6"]
    reason = "no \\boxed{} in the solution"
    assert loaded.dropped == [Dropped(place=f"{path}:{line}", reason=reason) for line in (1, 4)]
    assert loaded.notes == [f"{path}:1: dropped, {reason}; 2 of 6 rows like this."]


def test_load_problems_gives_the_same_from_jsonl_parquet_and_a_folder(write_rows, tmp_path):
    rows = [ours(number, expert_solution=["one", "two"], source="s") for number in range(700)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "folder").mkdir()
    write_jsonl(tmp_path / "folder" / "train.jsonl", rows)
    from_jsonl = load_problems(write_rows(*rows)).problems
    assert len(from_jsonl) == 700
    assert load_problems(str(tmp_path / "rows.parquet")).problems == from_jsonl
    assert load_problems(str(tmp_path / "folder")).problems == from_jsonl


def test_load_problems_stops_after_max_problems_without_reading_on(write_rows):
    path = write_rows(ours(1), ours(2, answer=""), ours(3), "this line is broken")
    assert [problem.id for problem in load_problems(path, max_problems=2).problems] == ["n-1", "n-3"]
    with pytest.raises(DataError, match=r"rows\.jsonl:4: not valid JSON"):
        load_problems(path, max_problems=3)


def test_load_problems_refuses_an_empty_source(write_rows, tmp_path):
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), tmp_path / "rows.parquet")
    for path in (write_rows(), write_rows("", "  ", name="blank.jsonl"), str(tmp_path / "rows.parquet")):
        with pytest.raises(
            DataError, match=r"(rows|blank)\.(jsonl|parquet): no rows\. Was the file written to the end"
        ):
            load_problems(path)


def test_load_problems_names_both_places_of_a_repeated_id(write_rows):
    path = write_rows(ours(1), ours(2), ours(3, id="n-1"))
    with pytest.raises(DataError, match=r"rows.jsonl:3: the problem id 'n-1' was already used at .*rows.jsonl:1\. Ids"):
        load_problems(path)


def test_load_problems_says_why_no_row_gives_a_problem(write_rows):
    rows = [{"question": f"{number}?", "answer": "just 7"} for number in range(3)]
    message = (
        r"none of 3 rows gives a problem when read as gsm8k \(3 x nothing after #### in the answer\).*--column-schema"
    )
    with pytest.raises(DataError, match=message):
        load_problems(write_rows(*rows))
    options = SourceSettings(column_schema="gar", prompt_field="question")
    assert load_problems(write_rows(*rows), options=options).problems[0].answer == "just 7"


def test_load_problems_refuses_anchor_fields_that_occur_nowhere(write_rows):
    message = r"no row has a column 'expert_soluton', named in anchor_fields .* Did you mean 'expert_solution'\?"
    with pytest.raises(DataError, match=message):
        load_problems(write_rows(ours(1)), options=SourceSettings(anchor_fields=("expert_soluton",)))


def test_load_problems_accepts_anchor_fields_of_which_one_occurs_in_a_later_row(write_rows):
    options = SourceSettings(anchor_fields=("nowhere", "teacher"))
    loaded = load_problems(write_rows(ours(1), ours(2, teacher="by hand")), options=options)
    assert [problem.anchors for problem in loaded.problems] == [(), (Anchor(text="by hand", field="teacher"),)]


def test_load_problems_is_silent_where_stderr_is_no_terminal(write_rows, capfd):
    load_problems(write_rows(ours(1)))
    assert capfd.readouterr() == ("", "")


def test_problem_reader_goes_on_after_bad_rows_where_errors_are_collected(write_rows):
    errors: list[DataError] = []
    path = write_rows(ours(1), "broken", ours(3, prompt=7), ours(4, answer=""), ours(5))
    items = [item for _, item in ProblemReader(path, on_error=errors.append)]
    assert [item.id if isinstance(item, Problem) else item.reason for item in items] == [
        "n-1",
        "the answer is empty",
        "n-5",
    ]
    assert [re.search(r":(\d): ", str(error))[1] for error in errors] == ["2", "3"]


def test_problem_reader_holds_one_row_at_a_time(write_rows):
    reader = iter(ProblemReader(write_rows(ours(1), "broken")))
    assert next(reader)[1].id == "n-1"
    with pytest.raises(DataError, match=r"rows\.jsonl:2"):
        next(reader)


def test_prompt_hash_ignores_white_space_and_nothing_else():
    assert prompt_hash("3 + 4\n=") == prompt_hash("  3 +  4 =  ")
    assert prompt_hash([{"role": "user", "content": "3 + 4 ="}]) == prompt_hash("3 + 4 =")
    assert len({prompt_hash("3 + 4 ="), prompt_hash("3+4="), prompt_hash("3 + 4 =", seed=1)}) == 3


def test_prompt_hash_is_the_same_on_every_machine():
    assert prompt_hash("3 + 4 =", seed=17) == 10483405682060780254  # another value would change every published subset


@pytest.mark.data
@pytest.mark.parametrize(("name", "num_problems"), [("gsm8k_train_2000", 2000), ("gsm8k_test", 1319)])
def test_load_problems_reads_gsm8k(data_dir, name, num_problems):
    loaded = load_problems(str(data_dir / f"{name}.jsonl"))
    assert (len(loaded.problems), loaded.column_schema, loaded.dropped, loaded.num_without_anchor) == (
        num_problems,
        "gsm8k",
        [],
        0,
    )
    assert all(re.fullmatch(r"-?\d+(\.\d+)?", problem.answer) for problem in loaded.problems)
    texts = [problem.anchors[0].text for problem in loaded.problems]
    assert not [text for text in texts if "<<" in text or "####" in text]
    assert len({problem.prompt for problem in loaded.problems}) == num_problems
    if name == "gsm8k_train_2000":
        first = loaded.problems[0]
        assert (first.id, first.answer) == ("gsm8k_train_2000-1", "72")
        assert first.anchors[0].text == (
            "Natalia sold 48/2 = 24 clips in May.\nNatalia sold 48+24 = 72 clips altogether in April and May."
        )
