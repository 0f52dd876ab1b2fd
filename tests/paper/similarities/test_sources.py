"""Questions from files and from samples, and the check of written calculations."""

import pytest

from gar.types import Problem
from paper.analyses.similarities.sources import (
    Scope,
    questions_for,
    read_rated,
    text_soundness,
)
from tests.support.files import write_jsonl

pytestmark = pytest.mark.paper

PROBLEM = Problem(id="p", prompt="How many?", answer="7")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("She has 3 + 4 = 7 eggs.\nA: 7", "sound"),
        ("It costs 2 x $1,200 = $2,400.", "sound"),
        ("Half of it: 10 / 4 = 2.5, and (1 + 2) * 3 = 9", "sound"),
        ("She has 3 + 4 = 8 eggs, so 8 - 1 = 7.", "wrong step"),
        ("1 / 3 = 0.33", "sound"),  # written to a cent
        ("She has 7 eggs.\n#### 7", "no steps"),
        ("So x = 7", "no steps"),  # no calculation
        ("7 = 7", "no steps"),
        ("4 / 0 = 7", "no steps"),
        ("2 ** 99999999 = 7", "no steps"),
        ("((((((1 + = 7", "no steps"),
        (f"{'(' * 5000}1+1 = 2", "no steps"),
    ],
)
def test_text_soundness_checks_what_it_can_read(text, label):
    assert text_soundness(PROBLEM, text) == label


def rated(question: str, right: str) -> dict:
    return {
        "question": question,
        "ground_truth": "It is 3 + 4 = <<3+4=7>>7.\nA: 7",
        "small": {"solution": right, "is_correct": True},
        "large": {"solution": "3 + 4 = 8\nA: 8", "is_correct": False},
    }


def test_questions_for_rated_solutions(embedded, tmp_path):
    rows = [rated(f"{i}+4=", f"Add {i}:\n{i} + 4 = <<3+4=7>>7\n7 + 0 = 7\nA: 7") for i in range(4)]
    path = write_jsonl(tmp_path / "rated.jsonl", rows)
    first = read_rated(path, embedded)[0]
    assert (first.expert, first.right) == ("It is 3 + 4 = 7.", ["Add 0:\n0 + 4 = 7\n7 + 0 = 7\nA: 7"])
    assert first.wrong == ["3 + 4 = 8\nA: 8"]
    questions = questions_for(embedded, Scope(solutions=path, num_problems=2, skip=1))
    assert {triple.problem_id for triple in questions.triples} == {"line-2", "line-3"}
    assert {triple.question for triple in questions.triples} == {"own", "sound", "natural"}
