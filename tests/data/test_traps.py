"""Data that is read without an error and is not what its author meant."""

import json

import pytest

from gar.data.check import check_problems
from gar.data.traps import JSON_TEXT, MARKS, TURN, find_traps, trap_note
from gar.types import Anchor, Problem

MESSAGES = [{"role": "user", "content": "3 boxes of 4?"}]


def problem(prompt: str | list, solution: str = "3 * 4 = 12.") -> Problem:
    return Problem(id="p", prompt=prompt, answer="12", anchors=(Anchor(text=solution),))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (problem("3 boxes of 4?"), []),
        (problem("3 boxes of 4?", "3 * 4 = <<3*4=12>>12."), [MARKS]),
        (problem("3 boxes of 4?", "As 3 << 4 and 5 = 5, 1 >> 0."), []),
        (problem("3 boxes of 4?", "<|im_start|>assistant\n3 * 4 = 12.<|im_end|>\n"), [TURN]),
        (problem("3 boxes of 4?", "3 * 4 = 12.<end_of_turn>"), [TURN]),
        (problem("3 boxes of 4?", "<|think|> 3 * 4 <|/think|> 12"), []),
        (problem(json.dumps(MESSAGES)), [JSON_TEXT]),
        (problem(MESSAGES), []),
        (problem('[1, 2] has which "role"?'), []),
        (problem('["role", "content"]'), []),
    ],
)
def test_traps_are_found(made: Problem, expected: list[str]):
    assert find_traps(made) == expected


def test_a_note_counts_traps():
    some = [problem("3 boxes?", "<<3*4=12>>"), problem("4 boxes?", "<<3*4=12>>"), problem(json.dumps(MESSAGES))]
    assert trap_note(some) == f"Of 3 problems read, 2 have {MARKS}; 1 has {JSON_TEXT}."
    assert trap_note(some[:0]) == ""


def test_check_names_the_rows_with_traps(write_rows):
    row = {"prompt": "3 boxes of 4?", "answer": "12", "expert_solution": "3 * 4 = 12."}
    marked = row | {"prompt": "3 of 4?", "expert_solution": "3 * 4 = <<3*4=12>>12."}
    path = write_rows(row, marked, row | {"prompt": json.dumps(MESSAGES)})
    report = check_problems(path)
    assert {trap: [place.split(": ")[0] for place in places] for trap, places in report.traps.items()} == {
        MARKS: [f"{path}:2"],
        JSON_TEXT: [f"{path}:3"],
    }
