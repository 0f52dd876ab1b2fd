import random
from collections import Counter
from dataclasses import replace

import pytest

from gar.data import arithmetic
from gar.data.arithmetic import (
    NUM_OPERATIONS,
    NUM_PROBLEMS,
    WORDINGS,
    ParsedSolution,
    draw_problem,
    load_arithmetic,
    running_values,
)
from gar.errors import DataError
from gar.records import canonical_hash
from gar.types import Problem
from paper.tasks.chains import (
    ARITHMETIC,
    NOTATION,
    ROLES,
    TASKS,
    draw_values,
    load_task,
    parse_solution,
    write_solution,
)
from tests.support.errors import raises

PROBLEM = Problem(id="p", prompt="3+4*7-2=", answer="7")
ALL_METHODS = tuple(dict.fromkeys(method for task in TASKS.values() for method in task.methods))
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
def test_load_task_has_right_answers_and_the_stated_sizes_and_repeats_nothing(task):
    everything = []
    for split, size in NUM_PROBLEMS.items():
        load_task(task, split).clear()  # each caller has a list of its own
        problems = load_task(task, split)
        assert [p.id for p in problems] == [f"{split}-{index}" for index in range(size)]
        assert {sum(map(p.prompt.count, "+-*")) for p in problems} == set(NUM_OPERATIONS[split])
        assert all(int(p.answer) == evaluate_left_to_right(p.prompt) for p in problems)
        everything += problems
    assert len({p.prompt for p in everything}) == sum(NUM_PROBLEMS.values())
    rows = [[p.id, p.prompt, p.answer, p.source, p.anchors[0].text] for p in everything]
    assert canonical_hash(rows) == GOLDEN[task]


def test_role_of_inverts_method_of():
    for task in TASKS.values():
        for prompt in ("3+4*7-2=", "4+4*7-2="):
            problem = replace(PROBLEM, prompt=prompt)
            assert tuple(task.role_of(task.method_of(role, problem), problem) for role in ROLES) == ROLES
    assert ARITHMETIC.role_of("prefix", PROBLEM) is ARITHMETIC.role_of(None, PROBLEM) is None


def test_load_arithmetic_has_right_stepwise_experts_in_both_wordings_and_no_answer_worth_guessing():
    problems = load_arithmetic("train")
    parsed = [parse_solution(problem.anchors[0].text) for problem in problems]
    assert {one.method for one in parsed} == {"stepwise"}
    assert [(one.values, one.answer) for one in parsed] == [(running_values(p), p.answer) for p in problems]
    wordings, answers = Counter(one.wording for one in parsed), Counter(p.answer for p in problems)
    assert min(wordings[wording] for wording in WORDINGS) > 900  # 2,000 fair coins: six standard deviations are 134
    assert max(answers.values()) < 260  # 2,000 uniform digits: 200 each, standard deviation 13
    for expert in ("running", "guess"):
        for usual, other in zip(load_arithmetic("harder"), load_arithmetic("harder", expert), strict=True):
            parsed, before = parse_solution(other.anchors[0].text), parse_solution(usual.anchors[0].text)
            assert (parsed.method, parsed.wording, parsed.answer) == (expert, before.wording, usual.answer)
            assert replace(other, anchors=usual.anchors) == usual


def test_unknown_splits_experts_tasks_and_prompts_are_errors():
    for load, *arguments in (
        (load_arithmetic, "dev"),
        (load_arithmetic, "test", "wild"),
        (load_task, "which-way", "test", "running"),
        (load_task, "which", "test"),
    ):
        with raises(DataError):
            load(*arguments)
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
        ("prefix", "words", "ok plus 3 4 is 7 then times 7 7 is 9 then minus 9 2 is 7 so"),
        ("padded", "words", "ok is 7 hm hm hm then is 9 hm hm hm then is 7 hm hm hm so"),
        ("padded-guess", "symbols", "[ ? ? ? = ? ; ? ? ? = ? ; ? ? ? = 7 ]"),
    ):
        text = write_solution(PROBLEM, method, wording)
        assert text == f"<think> {working} </think> <answer> 7 </answer>"
        if method in arithmetic.METHODS:  # the package writes and reads its three methods alone
            assert arithmetic.write_solution(PROBLEM, method, wording) == text
            assert arithmetic.parse_solution(text) == parse_solution(text)
    assert arithmetic.parse_solution("[ + 3 4 = 7 ]").method is None
    wrong = write_solution(PROBLEM, "stepwise", "symbols", values=(8, 6, 4))  # goes on from the wrong value
    assert wrong == "<think> [ 3 + 4 = 8 ; 8 * 7 = 6 ; 6 - 2 = 4 ] </think> <answer> 4 </answer>"


def test_parse_solution_inverts_write_solution():
    rng = random.Random(7)
    for method in ALL_METHODS:
        for wording in WORDINGS:
            problem = draw_problem(rng, rng.randint(2, 6))
            values, _ = draw_values(problem, rng, slip_fraction=0.5)
            parsed = parse_solution(write_solution(problem, method, wording, values=values))
            shown = values[-1:] if method in ("guess", "padded-guess") else values
            assert parsed == ParsedSolution(method=method, wording=wording, values=shown, answer=str(values[-1]))
        symbols, words = (write_solution(PROBLEM, method, wording).split() for wording in ("symbols", "words"))
        assert [NOTATION.words.get(token, token) for token in symbols] == words
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
