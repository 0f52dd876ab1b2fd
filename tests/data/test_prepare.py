import json
import random
import resource
import signal
import tracemalloc
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gar.data.prepare import draw_subset, length_refusal, write_problems
from gar.data.problems import load_problems
from gar.errors import ConfigError, DataError, RecordError
from gar.types import Anchor, Problem


def rows(num: int) -> list[dict[str, object]]:
    return [
        {"id": f"n-{i}", "prompt": f"what is {i} plus {i}", "answer": str(2 * i), "expert_solution": f"{i} and {i}"}
        for i in range(num)
    ]


def ids(subset) -> list[str]:
    return [problem.id for problem in subset.problems]


def test_draw_subset_gives_the_same_for_the_same_seed_and_another_for_another(write_rows):
    path = write_rows(*rows(500))
    first = draw_subset(path, num_problems=40, seed=3)
    assert len(set(ids(first))) == 40
    assert draw_subset(path, num_problems=40, seed=3) == first
    assert draw_subset(path, num_problems=40, seed=4).problems != first.problems


def test_draw_subset_does_not_depend_on_the_order_or_the_format_of_the_source(write_rows, tmp_path):
    given = rows(500)
    expected = ids(draw_subset(write_rows(*given), num_problems=40, seed=3))
    random.Random(0).shuffle(given)
    assert ids(draw_subset(write_rows(*given, name="shuffled.jsonl"), num_problems=40, seed=3)) == expected
    for row_group_size in (7, 500):
        path = tmp_path / f"{row_group_size}.parquet"
        pq.write_table(pa.Table.from_pylist(given), path, row_group_size=row_group_size)
        assert ids(draw_subset(str(path), num_problems=40, seed=3)) == expected


def test_draw_subset_begins_with_the_smaller_subset(write_rows):
    path = write_rows(*rows(500))
    large = ids(draw_subset(path, num_problems=200, seed=3))
    for num_problems in (1, 10, 199):
        assert ids(draw_subset(path, num_problems=num_problems, seed=3)) == large[:num_problems]


def test_draw_subset_takes_every_row_equally_often(write_rows):
    path = write_rows(*rows(20))
    counts = Counter(problem for seed in range(400) for problem in ids(draw_subset(path, num_problems=5, seed=seed)))
    # Each of 20 rows is expected 100 times with standard deviation sqrt(400 * 1/4 * 3/4) = 8.7: 5 of them is 44.
    assert len(counts) == 20
    assert max(abs(count - 100) for count in counts.values()) < 44


def test_draw_subset_needs_memory_for_the_subset_and_not_for_the_source(write_rows):
    peaks = []
    for num_rows in (2_000, 20_000):
        path = write_rows(*rows(num_rows), name=f"{num_rows}.jsonl")
        tracemalloc.start()
        draw_subset(path, num_problems=500, seed=0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_draw_subset_accounts_for_every_row(write_rows):
    given = rows(30)
    for row in given[:4]:
        row["expert_solution"] = ""
    for row in given[4:7]:
        row["answer"] = ""
    given[8] = given[7] | {"id": "twin"}
    subset = draw_subset(write_rows(*given), num_problems=100, seed=0)
    assert (subset.num_rows, subset.num_usable, len(subset.problems)) == (30, 23, 22)
    assert subset.dropped == {"no anchor": 4, "the answer is empty": 3}
    assert subset.set_aside == {"prompt seen before": 1}
    assert "twin" not in ids(subset)


def test_draw_subset_keeps_problems_without_anchor_on_request(write_rows):
    path = write_rows({"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "2"})
    assert len(draw_subset(path, num_problems=5, seed=0, require_anchor=False).problems) == 2
    with pytest.raises(DataError, match=r"none of 2 rows gives a problem when read as gar \(2 x no anchor\)"):
        draw_subset(path, num_problems=5, seed=0)


def test_draw_subset_gives_the_subset_of_those_that_are_not_refused(write_rows):
    given = rows(300)
    even = [row for row in given if int(str(row["answer"])) % 4 == 0]
    expected = ids(draw_subset(write_rows(*even), num_problems=20, seed=1))
    asked = []

    def refusal(problem: Problem) -> str:
        asked.append(problem.id)
        return "odd" if int(problem.answer) % 4 else ""

    subset = draw_subset(write_rows(*given), num_problems=20, seed=1, refusal=refusal)
    assert ids(subset) == expected
    assert subset.set_aside["odd"] == sum(int(each[2:]) % 2 for each in asked)
    assert 40 <= len(asked) < 200  # about 2 * 20 * (1 + log(150 / 20)) = 120: only those that could still be drawn


def test_draw_subset_refuses_ids_that_two_drawn_problems_share(write_rows):
    given = [row | {"id": "same"} for row in rows(2)]
    with pytest.raises(DataError, match=r"rows.jsonl:\d: the problem id 'same' was already used at .*rows.jsonl:\d"):
        draw_subset(write_rows(*given), num_problems=2, seed=0)


@pytest.mark.parametrize(("num_problems", "seed"), [(0, 0), (1, -1), (1, 2**64)])
def test_draw_subset_refuses_settings_out_of_range(write_rows, num_problems, seed):
    with pytest.raises(ConfigError, match="expected num_problems >= 1 and 0 <= seed"):
        draw_subset(write_rows(*rows(2)), num_problems=num_problems, seed=seed)


@pytest.mark.parametrize(
    ("max_prompt_tokens", "max_anchor_tokens", "reason"),
    [(3, None, ""), (2, None, "prompt longer than 2 tokens"), (None, 2, ""), (None, 1, "anchor longer than 1 tokens")],
)
def test_length_refusal_measures_the_prompt_and_the_longest_anchor(
    tokenizer, max_prompt_tokens, max_anchor_tokens, reason
):
    problem = Problem(id="p", prompt="a b c", answer="1", anchors=(Anchor(text="a"), Anchor(text="a b")))
    refusal = length_refusal(tokenizer, max_prompt_tokens=max_prompt_tokens, max_anchor_tokens=max_anchor_tokens)
    assert refusal(problem) == reason


PROBLEMS = [
    Problem(id="a", prompt="3+4= ä", answer="7", anchors=(Anchor(text="one\nline"),), source="s"),
    Problem(id="b", prompt="1+1=", answer="2", anchors=(Anchor(text="x"), Anchor(text="y")), source="s"),
    Problem(id="c", prompt="2+2=", answer="4", source="s"),
]


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_write_problems_gives_back_what_load_problems_reads(tmp_path, name):
    path = tmp_path / "new" / name
    write_problems(PROBLEMS, path)
    assert load_problems(str(path)).problems == PROBLEMS
    assert [file.name for file in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_write_problems_keeps_chat_messages(tmp_path, name):
    chats = [Problem(id="a", prompt=[{"role": "user", "content": "3+4="}], answer="7", source="s")]
    write_problems(chats, tmp_path / name)
    assert load_problems(str(tmp_path / name)).problems == chats


def test_write_problems_writes_our_columns_readably(tmp_path):
    write_problems(PROBLEMS, tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines[0] == (
        '{"id": "a", "prompt": "3+4= ä", "answer": "7", "expert_solution": "one\\nline", "source": "s"}'
    )
    assert [json.loads(line)["expert_solution"] for line in lines[1:]] == [["x", "y"], None]


def test_write_problems_refuses_mixed_prompts_in_parquet(tmp_path):
    mixed = [PROBLEMS[0], Problem(id="d", prompt=[{"role": "user", "content": "1"}], answer="1")]
    with pytest.raises(ConfigError, match=r"some prompts are text and some chat messages.*write \.jsonl"):
        write_problems(mixed, tmp_path / "out.parquet")
    write_problems(mixed, tmp_path / "out.jsonl")
    assert len(load_problems(str(tmp_path / "out.jsonl")).problems) == 2


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_write_problems_says_that_the_disk_is_full_and_leaves_the_older_file(tmp_path, name):
    path = tmp_path / name
    write_problems(PROBLEMS, path)
    before = path.read_bytes()
    large = [Problem(id=str(i), prompt=random.Random(i).randbytes(500).hex(), answer="1") for i in range(1000)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # the nearest to a full disk that needs no root
    try:
        with pytest.raises(RecordError, match=r"cannot be written: .*the allowed file size is used up"):
            write_problems(large, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.data
def test_draw_subset_of_gsm8k_never_changes(data_dir, tmp_path):
    subset = draw_subset(str(data_dir / "gsm8k_train_2000.jsonl"), num_problems=100, seed=0)
    assert (subset.num_rows, subset.num_usable, subset.dropped, subset.set_aside) == (2000, 2000, {}, {})
    path: Path = tmp_path / "subset.jsonl"
    write_problems(subset.problems, path)
    assert [p.answer for p in load_problems(str(path)).problems] == [p.answer for p in subset.problems]
    assert [int(each.rpartition("-")[2]) for each in ids(subset)[:3]] == [1604, 402, 1779]
