"""Questions about labeled, rated and sampled solutions, and what makes a solution sound."""

import pytest

from gar.types import Problem
from paper.analyses.similarities.questions import NEAREST, Questions, ask_labeled, chain_soundness
from paper.analyses.similarities.solutions import LabeledSolution
from paper.analyses.similarities.sources import Scope, questions_for, read_rated, text_soundness
from tests.support.files import write_jsonl

pytestmark = pytest.mark.paper
PROBLEM = Problem(id="p", prompt="3+4*7-2=", answer="7")


def labeled(problem: str, text: str, method: str, wording: str) -> LabeledSolution:
    return LabeledSolution(problem_id=problem, prompt=problem, text=text, method=method, wording=wording)


def test_ask_labeled_by_hand():
    solutions = [
        labeled("p", "anchor", "long", "words"),
        labeled("p", "same in symbols", "long", "symbols"),
        labeled("p", "short in symbols", "short", "symbols"),
        labeled("p", "short in words", "short", "words"),
        labeled("q", "other anchor", "long", "words"),
        labeled("r", "as long", "long", "words"),
    ]
    questions = Questions()
    ask_labeled(questions, solutions, "long", lambda s: {"other anchor": 9, "as long": 6, "anchor": 6}.get(s.text, 1))
    asked = {
        (triple.question, triple.kind, *(questions.solutions[i].text for i in (*triple.better, *triple.worse)))
        for triple in questions.triples
    }
    same = "same in symbols"
    assert ("equal-wording", "short", same, "anchor", "short in symbols", "anchor") in asked
    assert ("over-wording", "short", same, "anchor", "short in words", "anchor") in asked
    assert ("own", NEAREST, same, "anchor", same, "as long") in asked
    assert {row[:5] for row in asked if row[0] == "own" and row[3] == "anchor"} == {
        ("own", kind, same, "anchor", same) for kind in ("any", NEAREST)
    }


@pytest.mark.parametrize(
    ("working", "label"),
    [
        ("[ 3 + 4 = 7 ; 7 * 7 = 9 ; 9 - 2 = 7 ]", "sound"),
        ("ok is 7 then is 9 then is 7 so", "sound"),
        ("[ 3 + 4 = 7 ; 7 * 7 = 8 ; 9 - 2 = 7 ]", "wrong step"),
        ("[ 3 + 4 = 7 ; 7 * 7 = 9 ; 8 - 2 = 7 ]", "wrong step"),  # a wrong operand
        ("[ 7 * 7 = 9 ; 9 - 2 = 7 ]", "wrong step"),
        ("[ = 7 ; = 7 ]", "wrong step"),
        ("[ 3 plus 4 = 7 ; 7 * 7 = 9 ; 9 - 2 = 7 ]", "wrong step"),  # two wordings
        ("[ ? = 7 ]", "guess"),
        ("[ ? ? ? = ? ; ? ? ? = ? ; ? ? ? = 7 ]", "guess"),
        ("[ + 3 4 = 7 ; * 7 7 = 9 ; - 9 2 = 7 ]", "sound"),
        ("", "wrong step"),
    ],
)
def test_chain_soundness_sees_every_step(working, label):
    assert chain_soundness(PROBLEM, f"<think> {working} </think> <answer> 7 </answer>") == label


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
