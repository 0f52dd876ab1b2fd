"""The fairer tasks, and what the models of all tasks were trained on."""

import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from gar.data.arithmetic import NUM_PROBLEMS, WORDINGS, running_values
from gar.types import Problem
from paper.tasks import make_model
from paper.tasks.chains import (
    ROLES,
    TASKS,
    draw_values,
    load_task,
    parse_solution,
    right_steps,
    write_solution,
)
from paper.tasks.long_chains import NUM_PROBLEMS as NUM_LONG_PROBLEMS
from paper.tasks.long_chains import long_chains

pytestmark = pytest.mark.paper
PROBLEM = Problem(id="p", prompt="3+4*7-2=", answer="7")
SPLITS = tuple(NUM_PROBLEMS)


def test_which_way_swaps_expert_and_habit_with_the_parity_of_the_first_digit():
    kinds = Counter()
    for problem in load_task("which-way", "train"):
        (anchor,) = problem.anchors
        parsed = parse_solution(anchor.text)
        assert parsed.method == ("stepwise" if int(problem.prompt[0]) % 2 else "prefix")
        assert (parsed.values, parsed.answer) == (running_values(problem), problem.answer)
        kinds[parsed.method, parsed.wording] += 1
    assert len(kinds) == 4
    assert min(kinds.values()) > 400  # 2,000 in four equal parts: six standard deviations are 116


def test_whose_voice_has_its_expert_write_in_words():
    parsed = [parse_solution(p.anchors[0].text) for split in SPLITS for p in load_task("whose-voice", split)]
    assert {(one.method, one.wording) for one in parsed} == {("stepwise", "words")}


@pytest.mark.parametrize("name", ["which-way", "whose-voice"])
def test_the_methods_of_the_fairer_tasks_are_equally_long(name):
    task = TASKS[name]
    for problem in load_task(name, "test")[:20] + load_task(name, "harder")[:20]:
        texts = [write_solution(problem, task.method_of(role, problem), w) for role in ROLES for w in WORDINGS]
        assert len(set(texts)) == len(texts)
        assert len({len(text.split()) for text in texts}) == 1
        if name == "which-way":  # the two methods even share every token
            assert sorted(texts[0].split()) == sorted(texts[2].split())


@pytest.mark.parametrize(
    ("prompt", "right", "reversed_values"),
    [("3-7+1=", (6, 7), (4, 5)), ("7-3*2-9+4=", (4, 8, 9, 3), (4, 8, 1, 5))],  # 8-9 reversed is 1
)
def test_draw_values_habit_reverses_subtractions_below_zero_alone(prompt, right, reversed_values):
    problem = replace(PROBLEM, prompt=prompt)
    values, slips = draw_values(problem, random.Random(0), habit_fraction=1.0)
    assert (values, any(slips)) == (reversed_values, False)
    assert running_values(problem) == right


def test_right_steps_judges_each_step_by_the_value_before_it():
    assert right_steps(PROBLEM, (7, 9, 7)) == (True, True, True)
    assert right_steps(PROBLEM, (8, 6, 5)) == (False, True, False)  # 8*7 = 56 follows from the slip
    rng = random.Random(8)
    for _ in range(50):
        values, slips = draw_values(PROBLEM, rng, slip_fraction=0.5)
        assert right_steps(PROBLEM, values) == tuple(not slip for slip in slips)


def test_long_chains_are_in_one_split_each_and_the_model_meets_guided_ones_outside_of_them():
    splits = long_chains()
    prompts = [problem.prompt for problems in splits.values() for problem in problems]
    assert {split: len(problems) for split, problems in splits.items()} == NUM_LONG_PROBLEMS
    assert len(set(prompts)) == len(prompts)
    recipe, rng = make_model.RECIPES["long-chains"], random.Random(0)
    rows = [make_model.draw_row(rng, recipe, recipe.phases[0], set(prompts)) for _ in range(300)]
    guided = [row for row in rows if re.search(r"= (?:\[|ok) .*(?:;|then)$", row.read)]
    assert 40 < len(guided) < 110
    assert all(row.write.startswith("<think>") and row.write.endswith("</answer>") for row in guided)
    assert not {row.read.partition(" ")[0] for row in guided} & set(prompts)
