"""The embedded task. `tests/paper/test_chains.py` reads its solutions."""

from collections import Counter
from dataclasses import replace

import pytest

from gar.data.arithmetic import NUM_OPERATIONS, NUM_PROBLEMS, load_arithmetic, running_values, write_solution
from gar.errors import DataError
from gar.records import canonical_hash
from gar.types import Problem
from paper.tasks.chains import load_task
from tests.support.errors import raises

PROBLEM = Problem(id="p", prompt="3+4*7-2=", answer="7")
# Hashes of all problems. The committed checkpoint was trained away from exactly these tests: a change here leaks them.
GOLDEN = {
    "arithmetic": "de8faf1bf7b750b531e8b2704df9049575b3e8eb97946ac2d9ada3403377f312",
    "which-way": "4d27c1499c96d26d34d2a8655116f814c8d09aa14d7663b22afa57857daee643",
    "whose-voice": "d82063b12945033505395ad712f6df8a0c5615326a54e30673650374ac652f7f",
}


def evaluate_left_to_right(chain: str) -> int:
    """Second route: Python's own arithmetic on integers, bracketed from the left, reduced once at the end."""
    body = chain.removesuffix("=")
    expression = body[0]
    for position in range(1, len(body), 2):
        expression = f"({expression}{body[position : position + 2]})"
    return eval(expression) % 10


@pytest.mark.parametrize("task", GOLDEN)
def test_problems_have_right_answers_and_the_stated_sizes_and_repeat_nothing(task):
    everything = []
    for split, size in NUM_PROBLEMS.items():
        load_task(task, split).clear()  # each caller gets a new list
        problems = load_task(task, split)
        assert [p.id for p in problems] == [f"{split}-{index}" for index in range(size)]
        assert {sum(map(p.prompt.count, "+-*")) for p in problems} == set(NUM_OPERATIONS[split])
        assert all(int(p.answer) == evaluate_left_to_right(p.prompt) for p in problems)
        assert task != "arithmetic" or problems == load_arithmetic(split)
        everything += problems
    assert len({p.prompt for p in everything}) == sum(NUM_PROBLEMS.values())
    rows = [[p.id, p.prompt, p.answer, p.source, p.anchors[0].text] for p in everything]
    assert canonical_hash(rows) == GOLDEN[task]


def test_load_arithmetic_has_no_answer_worth_guessing_and_changes_the_expert_alone():
    answers = Counter(problem.answer for problem in load_arithmetic("train"))
    assert max(answers.values()) < 260  # 2,000 uniform digits: 200 each, standard deviation 13
    for expert in ("running", "guess"):
        for usual, other in zip(load_arithmetic("harder"), load_arithmetic("harder", expert), strict=True):
            wording = "words" if " ok " in usual.anchors[0].text else "symbols"
            assert other.anchors[0].text == write_solution(usual, expert, wording)
            assert replace(other, anchors=usual.anchors) == usual


def test_unknown_splits_experts_and_prompts_are_errors():
    for arguments in (["dev"], ["test", "wild"]):
        with raises(DataError):
            load_arithmetic(*arguments)
    for prompt in ("3+4*7-2", "3+14=", "What is 3+4?", "7=", [{"role": "user", "content": "3+4="}]):
        with raises(DataError):
            running_values(replace(PROBLEM, prompt=prompt))
    with raises(DataError):
        write_solution(PROBLEM, "running", "words", values=(7, 9))


def test_worked_examples():
    assert running_values(PROBLEM) == (7, 9, 7)
    assert running_values(replace(PROBLEM, prompt="2-5*3=")) == (7, 1)
    for method, wording, working in (
        ("stepwise", "symbols", "[ 3 + 4 = 7 ; 7 * 7 = 9 ; 9 - 2 = 7 ]"),
        ("stepwise", "words", "ok 3 plus 4 is 7 then 7 times 7 is 9 then 9 minus 2 is 7 so"),
        ("running", "symbols", "[ = 7 ; = 9 ; = 7 ]"),
        ("guess", "words", "ok maybe is 7 so"),
    ):
        assert write_solution(PROBLEM, method, wording) == f"<think> {working} </think> <answer> 7 </answer>"
    wrong = write_solution(PROBLEM, "stepwise", "symbols", values=(8, 6, 4))  # goes on from the wrong value
    assert wrong == "<think> [ 3 + 4 = 8 ; 8 * 7 = 6 ; 6 - 2 = 4 ] </think> <answer> 4 </answer>"
