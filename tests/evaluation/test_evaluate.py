"""`sample` and `grade`, on policies whose success rate is known, with the real verifier."""

import json
from dataclasses import asdict

import pytest

from gar.errors import DataError
from gar.evaluation.engines import TransformersEngine, sample
from gar.evaluation.grade import grade, num_correct, pass_rates
from gar.models.generate import Sampling
from gar.records import canonical_hash
from gar.types import Problem
from tests.support.errors import raises

RIGHT = {"<answer>": {"7": 1.0}}
SOMETIMES = {"<answer>": {"7": 0.3, "3": 0.7}}


@pytest.fixture
def evaluate(make_policy, tokenizer, problems, verifier):
    """The result of a policy: `evaluate(SOMETIMES, num_samples=50)`."""

    def result(changes, asked=problems, *, ks=(1, 4), num_samples=8, seed=3, max_new_tokens=10, template=None):
        engine = TransformersEngine(make_policy(changes), tokenizer, verifier.tags)
        sampling = Sampling(
            num_samples=num_samples, max_new_tokens=max_new_tokens, seed=seed, chat_template_kwargs=template
        )
        return grade(asked, sample(engine, asked, sampling), verifier, ks)

    return result


def test_grade_finds_the_success_rate_that_the_policy_has(evaluate):
    result = evaluate(SOMETIMES, num_samples=50, ks=(1, 4, 50))
    # 2,000 draws: the standard deviation of the share is 0.0102, and that of pass@4 under 0.02.
    rates = result.numbers.known_rates
    assert rates[1] == pytest.approx(0.3, abs=0.04)
    assert rates[4] == pytest.approx(1 - 0.7**4, abs=0.06)
    assert rates[50] == 1.0
    assert pass_rates(result.groups, (1, 4, 50)) == rates
    correct = [sum(" 7 " in response.text for response in group) for group in result.groups]
    assert [num_correct(group) for group in result.groups] == correct
    total = sum(correct)
    counts = {status: count for status, count in result.numbers.status_counts.items() if count}
    assert counts == {"ok": total, "wrong": 2000 - total}


def test_grade_does_not_count_bad_format_or_truncated_responses(evaluate):
    # Half of the responses answer without having thought.
    result = evaluate({"=": {"<think>": 0.5, "<answer>": 0.5}, **RIGHT})
    numbers = result.numbers
    assert 0.4 < numbers.well_formatted_fraction < 0.6
    assert numbers.known_rates[1] == pytest.approx(numbers.well_formatted_fraction)
    assert numbers.verified_fraction == 1.0
    assert [num_correct(g) for g in result.groups] == [sum(r.verdict.well_formatted for r in g) for g in result.groups]
    numbers = evaluate({"work": {"work": 1.0}}).numbers
    assert (numbers.truncated_fraction, numbers.mean_response_tokens) == (1.0, 10.0)
    assert (numbers.status_counts["unparsed"], numbers.known_rates) == (40 * 8, {1: 0.0, 4: 0.0})


def test_sample_tells_the_verifier_that_the_prompt_opens_the_thinking_part(evaluate, problems, tokenizer):
    opened = [Problem(id=p.id, prompt=f"{p.prompt} <think>", answer="7") for p in problems[:4]]
    result = evaluate(RIGHT, [*problems[4:8], *opened])
    assert result.groups[-1][0].text == "work </think> <answer> 7 </answer>"
    assert result.numbers.known_rates[1] == 1.0
    tokenizer.chat_template = "{{ messages[0].content }}{% if think %} <think>{% endif %}"
    chat = [Problem(id=p.id, prompt=[{"role": "user", "content": str(p.prompt)}], answer="7") for p in problems[:2]]
    for think in (True, False):
        assert evaluate(RIGHT, chat, template={"think": think}).numbers.known_rates[1] == 1.0


def test_sample_repeats_itself_for_a_seed(evaluate, problems):
    first = evaluate(SOMETIMES, problems[:5])
    assert evaluate(SOMETIMES, problems[:5]).groups == first.groups
    assert evaluate(SOMETIMES, problems[:5], seed=4).groups != first.groups


def test_grade_makes_numbers_that_json_can_write_and_sample_needs_problems(evaluate, problems):
    values = json.loads(json.dumps(asdict(evaluate(RIGHT, problems[:3]).numbers), allow_nan=False))
    assert values == {
        "problems_hash": canonical_hash([[problem.id, problem.prompt, problem.answer] for problem in problems[:3]]),
        "num_samples": 8,
        "format": "think-answer",
        "pass_at": {"1": 1.0, "4": 1.0},
        "majority_at": {"1": 1.0, "4": 1.0},
        "interval_95": {"1": None, "4": None},
        "well_formatted_fraction": 1.0,
        "verified_fraction": 1.0,
        "truncated_fraction": 0.0,
        "mean_response_tokens": 7.0,  # <think> work </think> <answer> 7 </answer> <eos>
        "status_counts": {"ok": 24, "wrong": 0, "unparsed": 0, "timeout": 0, "error": 0},
        "problems": [{"id": f"p{i}", "num_correct": 8, "wrong_votes": []} for i in range(3)],
    }
    with raises(DataError):
        evaluate({}, [])
