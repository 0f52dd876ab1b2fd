"""Which triples are asked, and what tells sound samples from others."""

import pytest

from gar.types import Problem
from paper.analyses.similarities.questions import (
    NEAREST,
    Questions,
    ask_labeled,
    chain_soundness,
)
from paper.analyses.similarities.solutions import LabeledSolution

pytestmark = pytest.mark.paper

PROBLEM = Problem(id="one", prompt="3+4*7-2=", answer="7")


def asked(questions: Questions) -> list[tuple[str, str, str, str, str]]:
    """Question, kind, and the texts of what is compared: better, worse, and what both are compared with."""
    rows = []
    for triple in questions.triples:
        (one, a), (two, b) = triple.better, triple.worse
        common, better, worse = (a, one, two) if a == b else (one, a, b)
        rows.append((triple.question, triple.kind, *(questions.solutions[i].text for i in (better, worse, common))))
    return rows


def labeled(problem: str, text: str, method: str, wording: str | None) -> LabeledSolution:
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
    rows = [row for row in asked(questions) if row[-1] in ("anchor", "same in symbols") and row[2] != "anchor"]
    assert ("equal-wording", "short", "same in symbols", "short in symbols", "anchor") in rows
    assert ("over-wording", "short", "same in symbols", "short in words", "anchor") in rows
    own = [row for row in asked(questions) if row[0] == "own" and row[2] == "anchor"]
    assert [row[4] for row in own] == ["same in symbols"] * 2
    assert ("own", NEAREST, "anchor", "as long", "same in symbols") in own


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
