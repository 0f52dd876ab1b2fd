import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gar.data.prepare import draw_subset, write_problems
from gar.data.problem_set import load_problems
from gar.errors import DataError, RecordError
from gar.types import Anchor, Problem
from tests.support.errors import raises
from tests.support.files import full_disk


def rows(num: int) -> list[dict[str, object]]:
    return [
        {"id": f"n-{i}", "prompt": f"what is {i} plus {i}", "answer": str(2 * i), "expert_solution": f"{i} and {i}"}
        for i in range(num)
    ]


def ids(subset) -> list[str]:
    return [problem.id for problem in subset.problems]


def test_draw_subset_depends_on_prompts_and_seed_alone_and_subsets_are_nested(write_rows, tmp_path):
    given = rows(500)
    path = write_rows(*given)
    expected = ids(draw_subset(path, num_problems=40, seed=3))
    assert len(set(expected)) == 40
    assert ids(draw_subset(path, num_problems=40, seed=4)) != expected
    assert ids(draw_subset(path, num_problems=10, seed=3)) == expected[:10]
    random.Random(0).shuffle(given)
    pq.write_table(pa.Table.from_pylist(given), tmp_path / "rows.parquet", row_group_size=7)
    for other in (write_rows(*given, name="shuffled.jsonl"), str(tmp_path / "rows.parquet")):
        assert ids(draw_subset(other, num_problems=40, seed=3)) == expected


def test_draw_subset_accounts_for_every_row(write_rows):
    given = rows(30)
    for row in given[:4]:
        row["expert_solution"] = ""
    for row in given[4:7]:
        row["answer"] = ""
    given[8] = given[7] | {"id": "twin"}
    path = write_rows(*given)
    subset = draw_subset(path, num_problems=100, seed=0)
    assert (subset.num_usable, len(subset.problems)) == (22, 22)
    assert subset.dropped == {"no expert solution": 4, "the answer is empty": 3, "repeated prompt": 1}
    assert "twin" not in ids(subset)
    assert draw_subset(path, num_problems=100, seed=0, require_anchor=False).num_usable == 26
    for wrong in ([{"prompt": "a", "answer": "1"}], [row | {"id": "same"} for row in rows(2)]):
        with raises(DataError):
            draw_subset(write_rows(*wrong), num_problems=2, seed=0)


PROBLEMS = [
    Problem(id="a", prompt="3+4= ä", answer="7", anchors=(Anchor(text="one\nline"),), source="s"),
    Problem(id="b", prompt="1+1=", answer="2", anchors=(Anchor(text="x"), Anchor(text="y")), source="s"),
    Problem(id="c", prompt="2+2=", answer="4", source="s"),
]
CHAT = Problem(id="d", prompt=[{"role": "user", "content": "3+4="}], answer="7", source="s")


def test_write_problems_gives_back_what_load_problems_reads_and_keeps_the_older_file_on_a_full_disk(tmp_path):
    path = tmp_path / "new" / "out.jsonl"
    for problems in ([CHAT], PROBLEMS):
        write_problems(problems, path)
        assert list(load_problems(str(path))) == problems
    first, *others = path.read_text(encoding="utf-8").splitlines()
    assert first == '{"id": "a", "prompt": "3+4= ä", "answer": "7", "expert_solution": "one\\nline", "source": "s"}'
    assert [json.loads(line)["expert_solution"] for line in others] == [["x", "y"], None]
    before = path.read_bytes()
    large = [Problem(id=str(i), prompt=random.Random(i).randbytes(500).hex(), answer="1") for i in range(1000)]
    with raises(RecordError), full_disk():
        write_problems(large, path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["out.jsonl"]


@pytest.mark.data
def test_draw_subset_of_gsm8k_never_changes(data_dir):
    subset = draw_subset(str(data_dir / "gsm8k_train_2000.jsonl"), num_problems=100, seed=0)
    assert (subset.num_usable, subset.dropped) == (2000, {})
    assert [int(each.rpartition("-")[2]) for each in ids(subset)[:3]] == [1604, 402, 1779]
