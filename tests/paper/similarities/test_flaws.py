"""Planted flaws: one fault each, and the right answer at the end."""

import random

import pytest

from gar.data.arithmetic import running_values
from gar.types import Problem
from paper.analyses.similarities.flaws import FLAWS, chain_flaws, split_answer, text_flaws
from paper.tasks.chains import parse_solution, write_solution

pytestmark = pytest.mark.paper

PROBLEM = Problem(id="one", prompt="3+4*7-2=", answer="7")  # 7, 9, 7
OTHER = Problem(id="two", prompt="1+1+1+1=", answer="4")  # 2, 3, 4

SOLUTION = """Tom has 3 + 4 = <<3+4=7>>7 apples.
He sells 2, so 7 - 2 = <<7-2=5>>5 are left.
Each costs $3: he has 5 * 3 = $<<5*3=15>>15 in apples.
A: 15"""


@pytest.mark.parametrize("seed", range(20))
def test_chain_flaws_plant_one_fault_each(seed):
    flaws = chain_flaws(PROBLEM, OTHER, "symbols", random.Random(seed))
    assert tuple(flaws) == FLAWS
    sound = write_solution(PROBLEM, "stepwise", "symbols").split()
    wrong = flaws["wrong value"].split()
    assert len(wrong) == len(sound)
    changed = [i for i, pair in enumerate(zip(wrong, sound, strict=True)) if len(set(pair)) > 1]
    assert len(changed) == 1
    assert parse_solution(flaws["wrong value"]).values[-1] == 7  # the fault is in an intermediate value
    assert len(parse_solution(flaws["dropped step"]).values) == 2
    assert sorted(flaws["swapped steps"].split()) == sorted(sound)
    assert flaws["swapped steps"] != " ".join(sound)
    assert all(parse_solution(text).answer == "7" for text in flaws.values())


def test_chain_flaws_in_words_by_hand():
    flaws = chain_flaws(PROBLEM, OTHER, "words", random.Random(0))
    assert flaws["other problem's work"] == (
        "<think> ok 1 plus 1 is 2 then 2 plus 1 is 3 then 3 plus 1 is 7 so </think> <answer> 7 </answer>"
    )
    assert flaws["answer only"] == "<think> ok maybe is 7 so </think> <answer> 7 </answer>"
    assert all(parse_solution(flaws[name]).method == "stepwise" for name in FLAWS[:4])
    assert running_values(OTHER)[:2] == (2, 3)


@pytest.mark.parametrize("seed", range(20))
def test_text_flaws_plant_one_fault_each(seed):
    flaws = text_flaws(SOLUTION, "Ann has 9 hats.\nA: 9", random.Random(seed))
    assert set(flaws) == set(FLAWS)
    lines = split_answer(SOLUTION)[0]
    wrong = split_answer(flaws["wrong value"])[0]
    assert sum(one != two for one, two in zip(lines, wrong, strict=True)) == 1
    assert wrong[2] == lines[2]
    assert len("".join(wrong)) == len("".join(lines))
    assert split_answer(flaws["dropped step"])[0] in ([lines[1], lines[2]], [lines[0], lines[2]])
    assert split_answer(flaws["swapped steps"])[0] in (
        [lines[1], lines[0], lines[2]],
        [lines[0], lines[2], lines[1]],
    )
    assert flaws["other problem's work"] == "Ann has 9 hats.\nA: 15"
    assert flaws["answer only"] == "A: 15"


def test_text_flaws_are_only_those_that_the_lines_allow():
    one_line = "He has 3 + 4 = 7.\n#### 7"
    assert set(text_flaws(one_line, SOLUTION, random.Random(0))) == {"other problem's work", "answer only"}
    independent = "He has 3 + 4 = 7.\nShe has 1 + 1 = 2.\n#### 9"
    assert "swapped steps" not in text_flaws(independent, SOLUTION, random.Random(0))
    assert text_flaws("no result, no answer", SOLUTION, random.Random(0)) == {}


def test_text_flaws_read_numbers_with_commas():
    text = "It costs 2 * 600 = $1,200, of which half is left.\nSo 1,200 / 2 = 600.\nA: 600"
    flaws = text_flaws(text, SOLUTION, random.Random(1))
    assert flaws["wrong value"].startswith("It costs 2 * 600 = $1,20")
    assert flaws["wrong value"] != text
    assert flaws["swapped steps"].startswith("So 1,200 / 2")
