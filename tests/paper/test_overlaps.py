"""`find_overlaps`: copies and shared runs of 13 words; and its command."""

import json

import pytest

from paper.analyses.overlaps import find_overlaps, main

# Of 21, 14 and 5 words.
LONG = "Ann has 3 red apples and Bob has 4 green pears in a box of wood; how many fruits are there?"
SHORT = "What is 3+4*7?"
FILLER = "A train leaves the station at noon and travels for 3 hours at 60 miles an hour. How far does it go?"
WORDS = LONG.split()


@pytest.mark.parametrize(
    ("rows", "problem", "expected"),
    [
        ([FILLER] * 3, LONG, None),
        ([FILLER, LONG.upper(), LONG.replace(" ", "\n "), SHORT], LONG, (1.0, "rows:2")),
        ([FILLER, SHORT.upper()], SHORT, (1.0, "rows:2")),
        (["What is 3*4+7?"], SHORT, None),
        ([f"{FILLER} Solve: {LONG.replace(';', ',').replace('3', '$3$')} {FILLER}"], LONG, (1.0, "rows:1")),
        # 21 words have 9 runs of 13: the first row has 3 of them, the second 2.
        ([" ".join(WORDS[:15]), " ".join(WORDS[:14])], LONG, (3 / 9, "rows:1")),
        ([" ".join(WORDS[:12])], LONG, None),
    ],
)
def test_find_overlaps_names_the_row_with_the_largest_share(rows, problem, expected):
    numbered = ((f"rows:{line}", text) for line, text in enumerate(rows, 1))
    assert find_overlaps(numbered, {"a": problem}).get("a") == expected


def test_the_command_counts_the_problems_of_a_benchmark(tmp_path, capsys):
    rows = [{"prompt": text, "answer": "7", "anchors": ["7"]} for text in (LONG, FILLER, SHORT)]
    for name, part in (("train.jsonl", rows[:2]), ("test.jsonl", rows[::2])):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in part))
    main([str(tmp_path / "train.jsonl"), str(tmp_path / "test.jsonl")])
    printed = capsys.readouterr().out
    assert "Of 2 problems 1 are whole in one row, 1 whole or with 13 words." in printed
    assert "100% in" in printed
