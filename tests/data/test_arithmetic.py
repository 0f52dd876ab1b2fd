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
@pytest.mark.parametrize("split", SPLITS)
def test_load_task_answers_follow_from_the_chain(task, split):
    for problem in load_task(task, split):
        assert int(problem.answer) == evaluate_left_to_right(problem.prompt)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("split", SPLITS)
def test_load_task_has_the_stated_sizes_and_ids(task, split):
    problems = load_task(task, split)
    load_task(task, split).clear()  # each caller has a list of its own
    assert len(load_task(task, split)) == NUM_PROBLEMS[split]
    assert [p.id for p in problems] == [f"{split}-{index}" for index in range(NUM_PROBLEMS[split])]
    lengths = {sum(prompt.count(operator) for operator in "+-*") for prompt in (p.prompt for p in problems)}
    assert lengths == set(NUM_OPERATIONS[split])


@pytest.mark.parametrize("task", TASKS)
def test_load_task_shares_no_problem_between_or_within_splits(task):
    prompts = [p.prompt for split in SPLITS for p in load_task(task, split)]
    assert len(prompts) == len(set(prompts)) == sum(NUM_PROBLEMS.values())


@pytest.mark.parametrize("task", TASKS)
def test_load_task_is_the_same_in_every_version(task):
    # The committed checkpoint was trained away from exactly these test problems: a change here leaks them.
    assert [load_task(task, split)[0].prompt for split in SPLITS] == GOLDEN_FIRST_PROMPTS[task]
    assert load_arithmetic("test") == load_task("arithmetic", "test")


def test_role_of_inverts_method_of():
    for task in TASKS.values():
        for prompt in ("3+4*7-2=", "4+4*7-2="):
            problem = replace(PROBLEM, prompt=prompt)
            assert tuple(task.role_of(task.method_of(role, problem), problem) for role in ROLES) == ROLES
    assert ARITHMETIC.role_of("prefix", PROBLEM) is None
    assert ARITHMETIC.role_of(None, PROBLEM) is None


@pytest.mark.parametrize("expert", ["running", "guess"])
def test_load_arithmetic_changes_the_experts_method_and_nothing_else(expert):
    for usual, other in zip(load_arithmetic("harder"), load_arithmetic("harder", expert), strict=True):
        parsed, before = parse_solution(other.anchors[0].text), parse_solution(usual.anchors[0].text)
        assert (parsed.method, before.method) == (expert, "stepwise")
        assert (parsed.wording, parsed.answer) == (before.wording, usual.answer)
        assert replace(other, anchors=usual.anchors) == usual


def test_load_arithmetic_has_one_right_stepwise_expert_in_both_wordings():
    wordings = Counter()
    for problem in load_arithmetic("train"):
        (anchor,) = problem.anchors
        parsed = parse_solution(anchor.text)
        assert parsed.method == "stepwise"
        assert parsed.values == running_values(problem)
        assert parsed.answer == problem.answer
        wordings[parsed.wording] += 1
    assert min(wordings[wording] for wording in WORDINGS) > 900  # 2,000 fair coins: six standard deviations are 134


def test_load_arithmetic_has_no_answer_worth_guessing():
    counts = Counter(p.answer for p in load_arithmetic("train"))
    assert max(counts.values()) < 260  # 2,000 uniform digits: 200 each, standard deviation 13


def test_load_arithmetic_refuses_an_unknown_split_or_expert():
    with pytest.raises(DataError, match="no split 'dev', expected one of train, test, harder"):
        load_arithmetic("dev")
    with pytest.raises(DataError, match="no expert 'wild', expected one of stepwise, running, guess"):
        load_arithmetic("test", "wild")
    with pytest.raises(DataError, match="which-way task has no expert 'running', expected one of stepwise, prefix"):
        load_task("which-way", "test", "running")
    with pytest.raises(DataError, match="no task 'which', expected one of arithmetic, which-way, whose-voice"):
        load_task("which", "test")


@pytest.mark.parametrize("method", arithmetic.METHODS)
def test_the_package_writes_and_reads_its_three_methods_alone(method):
    text = write_solution(PROBLEM, method, "words")
    assert arithmetic.write_solution(PROBLEM, method, "words") == text
    assert arithmetic.parse_solution(text) == parse_solution(text)
    assert arithmetic.parse_solution("[ + 3 4 = 7 ]").method is None


def test_running_values_worked_example():
    assert running_values(PROBLEM) == (7, 9, 7)
    assert running_values(replace(PROBLEM, prompt="2-5*3=")) == (7, 1)


@pytest.mark.parametrize("prompt", ["3+4*7-2", "3+14=", "What is 3+4?", "7=", [{"role": "user", "content": "3+4="}]])
def test_running_values_other_prompts_are_refused(prompt):
    with pytest.raises(DataError, match="problem 'p': expected a prompt such as"):
        running_values(replace(PROBLEM, prompt=prompt))


def test_write_solution_worked_examples():
    def working(method, wording):
        return write_solution(PROBLEM, method, wording).split("<think> ")[1].split(" </think>")[0]

    assert working("stepwise", "symbols") == "[ 3 + 4 = 7 ; 7 * 7 = 9 ; 9 - 2 = 7 ]"
    assert working("stepwise", "words") == "ok 3 plus 4 is 7 then 7 times 7 is 9 then 9 minus 2 is 7 so"
    assert working("running", "symbols") == "[ = 7 ; = 9 ; = 7 ]"
    assert working("guess", "words") == "ok maybe is 7 so"
    assert working("prefix", "words") == "ok plus 3 4 is 7 then times 7 7 is 9 then minus 9 2 is 7 so"
    assert working("padded", "words") == "ok is 7 hm hm hm then is 9 hm hm hm then is 7 hm hm hm so"
    assert working("padded-guess", "symbols") == "[ ? ? ? = ? ; ? ? ? = ? ; ? ? ? = 7 ]"
    assert write_solution(PROBLEM, "guess", "symbols") == "<think> [ ? = 7 ] </think> <answer> 7 </answer>"


def test_write_solution_carries_a_wrong_value_into_the_next_step():
    text = write_solution(PROBLEM, "stepwise", "symbols", values=(8, 6, 4))
    assert text == "<think> [ 3 + 4 = 8 ; 8 * 7 = 6 ; 6 - 2 = 4 ] </think> <answer> 4 </answer>"


def test_write_solution_wrong_number_of_values_is_refused():
    with pytest.raises(DataError, match="'p' has 3 operations, got 2 values"):
        write_solution(PROBLEM, "running", "words", values=(7, 9))


@pytest.mark.parametrize("method", ALL_METHODS)
@pytest.mark.parametrize("wording", WORDINGS)
def test_parse_solution_inverts_write_solution(method, wording):
    rng = random.Random(7)
    for num_operations in (2, 3, 4, 5, 6):
        problem = draw_problem(rng, num_operations)
        values, _ = draw_values(problem, rng, slip_fraction=0.5)
        parsed = parse_solution(write_solution(problem, method, wording, values=values))
        shown = values[-1:] if method in ("guess", "padded-guess") else values
        assert parsed == ParsedSolution(method=method, wording=wording, values=shown, answer=str(values[-1]))


@pytest.mark.parametrize("method", ALL_METHODS)
def test_write_solution_wordings_differ_token_by_token_and_share_tokens_across_methods(method):
    symbols = write_solution(PROBLEM, method, "symbols").split()
    words = write_solution(PROBLEM, method, "words").split()
    assert [NOTATION.words.get(token, token) for token in symbols] == words
    assert {"[", "=", "]"} <= set(symbols)
    assert {"ok", "is", "so"} <= set(words)


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
