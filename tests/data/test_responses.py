"""Rows of responses: which column holds what, and what is said of a row that cannot be read."""

import json
from pathlib import Path

from gar.data.responses import (
    ResponseColumns,
    ResponseRow,
    iter_response_rows,
    read_response_row,
    stated_answer,
    survey_rows,
)
from gar.errors import DataError
from tests.support.errors import raises

ROW = {"prompt": "3+4=", "responses": ["7", "so 8"], "answer": "7", "expert_solution": "3+4 is 7"}


def read(row: dict, **columns: object) -> ResponseRow:
    return read_response_row(row, ResponseColumns.model_validate(columns), source="rows.jsonl", line=5)


def test_read_response_row_takes_our_columns_text_messages_and_numbers():
    assert read(ROW) == ResponseRow(
        line=5,
        place="rows.jsonl:5",
        id="rows-5",
        prompt="3+4=",
        responses=("7", "so 8"),
        response_fields=("responses", "responses"),
        answer="7",
        anchors=("3+4 is 7",),
    )
    messages = [{"role": "user", "content": "3+4="}]
    row = read(ROW | {"id": 17, "prompt": messages, "answer": 7.0, "expert_solution": ["a", "", "b"]})
    assert (row.id, row.prompt, row.answer, row.anchors) == ("17", messages, "7", ("a", "b"))
    row = read(ROW | {"prompt": " 3+4=\n\n", "responses": [" 7 \n"]})
    assert (row.prompt, row.responses) == (" 3+4=\n\n", (" 7 \n",))
    assert read(ROW | {"responses": "7"}).responses == ("7",)


def test_read_response_row_reaches_into_objects_and_several_columns():
    row = {"q": "3+4=", "a.b": "of this very name", "small": {"text": "7", "more": {"t": "8"}}, "big": ["x", "y"]}
    fields = ["small.text", "a.b", "small.more.t", "big"]
    found = read(row | {"answer": 7}, prompt_field="q", responses_fields=fields)
    assert found.responses == ("7", "of this very name", "8", "x", "y")
    assert found.response_fields == ("small.text", "a.b", "small.more.t", "big", "big")
    assert found.anchors == ()


def test_read_response_row_names_what_is_wrong():
    for changes, columns, named in (
        ({"answer": None}, {}, "answer"),
        ({"prompt": []}, {}, "prompt"),
        ({"prompt": [1, 2]}, {}, "'prompt'"),
        ({"responses": []}, {}, "responses"),
        ({"responses": ["7", None]}, {}, "'responses'"),
        ({"responses": [[7, 8]]}, {}, "'responses'"),
        ({"responses": [7, 8]}, {}, "must hold responses as text, one or a list of them, got int: 7."),
        ({"a": "7", "b": [7, 8]}, {"responses_fields": ["a", "b"]}, "'b'"),
        ({"responses": {"a": "7"}}, {}, "'responses'"),
        ({"responses": ["\ud800"]}, {}, "'responses'"),
        ({"b": {"d": "7"}}, {"responses_fields": ["b.c"]}, "'b.c'"),
        ({"b": "7"}, {"responses_fields": ["b.c"]}, "'b.c'"),
        ({"answer": "So 7."}, {"answer_in_solution": True}, "answer"),
    ):
        with raises(DataError, None, "rows.jsonl:5: ", named):
            read(ROW | changes, **columns)


def test_stated_answer_is_a_box_or_a_marked_line_but_no_last_number():
    for solution, answer in (
        ("A: 3, so \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("Answer: 3\nno:\n  **Final answer: 18**\n", "18"),
        ("9 * 2 = 18 dollars", ""),
        ("Alice: 18", ""),
    ):
        assert stated_answer(solution) == answer


def test_iter_response_rows_goes_on_after_bad_rows_and_survey_rows_counts(tmp_path: Path):
    same = ROW | {"prompt": "3+4= ", "expert_solution": None}  # the same but for white space
    talk = ROW | {"prompt": [{"role": "user", "content": "3+5="}], "responses": ["8"]}
    rows = ["{broken", "", ROW, ROW | {"answer": []}, "[1]", same, talk, ROW | {"prompt": "3+6="}, talk]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*(row if isinstance(row, str) else json.dumps(row) for row in rows), "{cut"]))
    found = list(iter_response_rows(str(path), ResponseColumns()))
    assert [row.line if isinstance(row, ResponseRow) else str(row).split(": ")[0] for row in found] == [
        f"{path}:1", 3, f"{path}:4", f"{path}:5", 6, 7, 8, 9, f"{path}:10",
    ]  # fmt: skip
    survey = survey_rows(found)
    assert (survey.num_rows, survey.num_responses, survey.num_anchored, survey.num_repeated) == (9, 8, 4, 2)
    assert survey.errors == [found[place] for place in (0, 2, 3, 8)]
