"""The fairer tasks, their solutions in every method and wording, and the reader of solutions."""

import random
import re
from dataclasses import replace

import pytest

from gar.data.arithmetic import WORDINGS, running_values
from gar.errors import DataError
from gar.types import Problem
from paper.tasks import make_model
from paper.tasks.chains import (
    ARITHMETIC,
    ROLES,
    TASKS,
    WORD_OF,
    ParsedSolution,
    draw_values,
    load_task,
    parse_solution,
    right_steps,
    write_solution,
)
from paper.tasks.long_chains import NUM_PROBLEMS as NUM_LONG_PROBLEMS
from paper.tasks.long_chains import long_chains
from tests.support.errors import raises

pytestmark = pytest.mark.paper
PROBLEM = Problem(id="p", prompt="3+4*7-2=", answer="7")
ALL_METHODS = tuple(dict.fromkeys(method for task in TASKS.values() for method in task.methods))


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


def test_role_of_inverts_method_of_and_unknown_tasks_and_experts_are_errors():
    for task in TASKS.values():
        for prompt in ("3+4*7-2=", "4+4*7-2="):
            problem = replace(PROBLEM, prompt=prompt)
            assert tuple(task.role_of(task.method_of(role, problem), problem) for role in ROLES) == ROLES
    assert ARITHMETIC.role_of("prefix", PROBLEM) is ARITHMETIC.role_of(None, PROBLEM) is None
    for arguments in (["which-way", "test", "running"], ["which-way", "dev"], ["which", "test"]):
        with raises(DataError):
            load_task(*arguments)


def test_parse_solution_inverts_write_solution():
    rng = random.Random(7)
    for method, wording, working in (
        ("prefix", "words", "ok plus 3 4 is 7 then times 7 7 is 9 then minus 9 2 is 7 so"),
        ("padded", "words", "ok is 7 hm hm hm then is 9 hm hm hm then is 7 hm hm hm so"),
        ("padded-guess", "symbols", "[ ? ? ? = ? ; ? ? ? = ? ; ? ? ? = 7 ]"),
    ):
        assert write_solution(PROBLEM, method, wording) == f"<think> {working} </think> <answer> 7 </answer>"
    for method in ALL_METHODS:
        for wording in WORDINGS:
            problem = ARITHMETIC.draw(rng, rng.randint(2, 6))
            values, _ = draw_values(problem, rng, slip_fraction=0.5)
            parsed = parse_solution(write_solution(problem, method, wording, values=values))
            shown = values[-1:] if method in ("guess", "padded-guess") else values
            assert parsed == ParsedSolution(method=method, wording=wording, values=shown, answer=str(values[-1]))
        symbols, words = (write_solution(PROBLEM, method, wording).split() for wording in ("symbols", "words"))
        assert [WORD_OF.get(token, token) for token in symbols] == words
        assert {"[", "=", "]"} <= set(symbols)


@pytest.mark.parametrize(
    ("text", "method", "wording", "answer"),
    [
        ("<think> [ = 7 ; = 9 ] <answer> 9 </answer>", "running", "symbols", "9"),  # no closing tag
        ("[ 3 + 4 = 7 ]", "stepwise", "symbols", None),  # no tags at all
        ("<think> ok maybe is 7 so </think> 7", None, "words", None),  # a stray value after the working
        ("<think> ok is 7 ; is 9 so </think> <answer> 9 </answer>", "running", None, "9"),  # mixed wording
        ("<think> [ = 7 ; 3 + 4 = 7 ] </think> <answer> 7 </answer>", None, "symbols", "7"),  # mixed methods
        ("<think> ok 3 plus 4 is", None, "words", None),  # cut off
        ("<think> [ + 3 4 = 7 ; 7 + 3 = 0 ] </think> <answer> 0 </answer>", None, "symbols", "0"),  # mixed methods
        ("<think> [ ? ? ? = 3 ; ? ? ? = 7 ] </think> <answer> 7 </answer>", None, "symbols", "7"),  # two guesses
        ("<think> [ _ _ = 7 ] </think> <answer> 7 </answer>", None, "symbols", "7"),  # a placeholder is missing
        ("<think> [ = 7 ] </think> <answer> </answer>", "running", "symbols", None),  # empty answer
        ("<think>ok is 7 so</think><answer>7</answer><eos>", "running", "words", "7"),  # no spaces, special token
        ("", None, None, None),
    ],
)
def test_parse_solution_names_what_fits_and_nothing_else(text, method, wording, answer):
    parsed = parse_solution(text)
    assert (parsed.method, parsed.wording, parsed.answer) == (method, wording, answer)
