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
SPLITS = tuple(NUM_PROBLEMS)
ALL_METHODS = tuple(dict.fromkeys(method for task in TASKS.values() for method in task.methods))
GOLDEN_FIRST_PROMPTS = {
    "arithmetic": ["1*6+2+4+4=", "1+9-1*1*3=", "0*6+5-8-1-2-0="],
    "which-way": ["7-3+7=", "2*1*9*3=", "6*3*2*2*9-9+2="],
    "whose-voice": ["6-1*4+7-7=", "4+3+4+6+7=", "6+5*4+0*8-1="],
}


def evaluate_left_to_right(chain: str) -> int:
    """Second route: Python's own arithmetic on integers, bracketed from the left, reduced once at the end."""
    body = chain.removesuffix("=")
    expression = body[0]
    for position in range(1, len(body), 2):
        expression = f"({expression}{body[position : position + 2]})"
    return eval(expression) % 10


@pytest.mark.parametrize("task", TASKS)
def test_load_task_has_right_answers_and_the_stated_sizes_and_repeats_nothing(task):
    prompts = set()
    for split in SPLITS:
        load_task(task, split).clear()  # each caller has a list of its own
        problems = load_task(task, split)
        assert [p.id for p in problems] == [f"{split}-{index}" for index in range(NUM_PROBLEMS[split])]
        assert {sum(map(p.prompt.count, "+-*")) for p in problems} == set(NUM_OPERATIONS[split])
        assert all(int(p.answer) == evaluate_left_to_right(p.prompt) for p in problems)
        prompts |= {p.prompt for p in problems}
    assert len(prompts) == sum(NUM_PROBLEMS.values())
    # The committed checkpoint was trained away from exactly these test problems: a change here leaks them.
    assert [load_task(task, split)[0].prompt for split in SPLITS] == GOLDEN_FIRST_PROMPTS[task]


def test_role_of_inverts_method_of():
    for task in TASKS.values():
        for prompt in ("3+4*7-2=", "4+4*7-2="):
            problem = replace(PROBLEM, prompt=prompt)
            assert tuple(task.role_of(task.method_of(role, problem), problem) for role in ROLES) == ROLES
    assert ARITHMETIC.role_of("prefix", PROBLEM) is None
    assert ARITHMETIC.role_of(None, PROBLEM) is None


def test_load_arithmetic_has_right_stepwise_experts_in_both_wordings_and_no_answer_worth_guessing():
    problems = load_arithmetic("train")
    assert problems == load_task("arithmetic", "train")
    parsed = [parse_solution(problem.anchors[0].text) for problem in problems]
    assert {one.method for one in parsed} == {"stepwise"}
    assert [(one.values, one.answer) for one in parsed] == [(running_values(p), p.answer) for p in problems]
    wordings, answers = Counter(one.wording for one in parsed), Counter(p.answer for p in problems)
    assert min(wordings[wording] for wording in WORDINGS) > 900  # 2,000 fair coins: six standard deviations are 134
    assert max(answers.values()) < 260  # 2,000 uniform digits: 200 each, standard deviation 13


@pytest.mark.parametrize("expert", ["running", "guess"])
def test_load_arithmetic_changes_the_experts_method_and_nothing_else(expert):
    for usual, other in zip(load_arithmetic("harder"), load_arithmetic("harder", expert), strict=True):
        parsed, before = parse_solution(other.anchors[0].text), parse_solution(usual.anchors[0].text)
        assert (parsed.method, before.method) == (expert, "stepwise")
        assert (parsed.wording, parsed.answer) == (before.wording, usual.answer)
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


@pytest.mark.parametrize("method", arithmetic.METHODS)
def test_the_package_writes_and_reads_its_three_methods_alone(method):
    text = write_solution(PROBLEM, method, "words")
    assert arithmetic.write_solution(PROBLEM, method, "words") == text
    assert arithmetic.parse_solution(text) == parse_solution(text)
    assert arithmetic.parse_solution("[ + 3 4 = 7 ]").method is None


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
        assert write_solution(PROBLEM, method, wording) == f"<think> {working} </think> <answer> 7 </answer>"
    wrong = write_solution(PROBLEM, "stepwise", "symbols", values=(8, 6, 4))  # goes on from the wrong value
    assert wrong == "<think> [ 3 + 4 = 8 ; 8 * 7 = 6 ; 6 - 2 = 4 ] </think> <answer> 4 </answer>"


@pytest.mark.parametrize("method", ALL_METHODS)
def test_parse_solution_inverts_write_solution(method):
    rng = random.Random(7)
    for wording in WORDINGS:
        for num_operations in (2, 3, 4, 5, 6):
            problem = draw_problem(rng, num_operations)
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
