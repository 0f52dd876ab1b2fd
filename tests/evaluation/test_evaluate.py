"""evaluate_policy, on policies whose success rate is known, with the real verifier."""

import json

import pytest
import torch

from gar.data.arithmetic import load_arithmetic
from gar.errors import ConfigError, DataError
from gar.evaluation.evaluate import Sampling, evaluate_policy
from gar.evaluation.metrics import pass_at_k
from gar.models.embedded import load_embedded
from gar.records import canonical_hash
from gar.settings import EvaluateSettings
from gar.types import Problem, Status


def evaluate(policy, tokenizer, problems, verifier, *, seed=3, max_new_tokens=10, template=None, **settings):
    settings = EvaluateSettings(**{"num_samples": 8, "pass_at_k": (1, 4), **settings})
    sampling = Sampling.from_settings(settings, seed=seed, max_new_tokens=max_new_tokens, template=template)
    return evaluate_policy(policy, tokenizer, problems, verifier, settings, sampling, progress=None)


def test_evaluate_policy_finds_the_success_rate_that_the_policy_has(make_policy, tokenizer, problems, verifier):
    policy = make_policy({"<answer>": {"7": 0.3, "3": 0.7}})
    result = evaluate(policy, tokenizer, problems, verifier, num_samples=50, pass_at_k=(1, 4, 50))
    # 2,000 draws: the standard deviation of the share is 0.0102, and that of pass@4 under 0.02.
    assert result.pass_at[1] == pytest.approx(0.3, abs=0.04)
    assert result.pass_at[4] == pytest.approx(1 - 0.7**4, abs=0.06)
    assert result.pass_at[50] == 1.0
    assert result.to_json()["well_formatted_fraction"] == 1.0
    assert result.to_json()["truncated_fraction"] == 0.0
    assert result.to_json()["mean_response_tokens"] == 7.0  # <think> work </think> <answer> 7 </answer> <eos>
    num_correct = sum(group.num_correct for group in result.groups)
    assert num_correct == round(2000 * result.pass_at[1])
    assert result.status_counts == dict.fromkeys(Status, 0) | {Status.OK: num_correct, Status.WRONG: 2000 - num_correct}


def test_evaluate_policy_averages_pass_at_k_over_problems(make_policy, tokenizer, problems, verifier):
    result = evaluate(make_policy({"<answer>": {"7": 0.3, "3": 0.7}}), tokenizer, problems, verifier)
    correct = [sum(" 7 " in response.text for response in group.responses) for group in result.groups]
    assert [group.num_correct for group in result.groups] == correct
    assert len(set(correct)) > 3
    for k in (1, 4):
        assert result.pass_at[k] == pytest.approx(sum(pass_at_k(8, c, k) for c in correct) / 40, abs=1e-12)


def test_evaluate_policy_does_not_count_a_right_answer_in_bad_format(make_policy, tokenizer, problems, verifier):
    # Half of the responses answer without having thought.
    policy = make_policy({"=": {"<think>": 0.5, "<answer>": 0.5}, "<answer>": {"7": 1.0}})
    result = evaluate(policy, tokenizer, problems, verifier)
    assert 0.4 < result.to_json()["well_formatted_fraction"] < 0.6
    assert result.pass_at[1] == pytest.approx(result.to_json()["well_formatted_fraction"])
    assert all(verdict.verified for group in result.groups for verdict in group.verdicts)
    assert [g.num_correct for g in result.groups] == [sum(v.well_formatted for v in g.verdicts) for g in result.groups]


def test_evaluate_policy_reports_truncation_and_what_could_not_be_parsed(make_policy, tokenizer, problems, verifier):
    result = evaluate(make_policy({"work": {"work": 1.0}}), tokenizer, problems, verifier)
    assert result.to_json()["truncated_fraction"] == 1.0
    assert result.to_json()["mean_response_tokens"] == 10.0
    assert result.status_counts[Status.UNPARSED] == 40 * 8
    assert result.pass_at == {1: 0.0, 4: 0.0}


def test_evaluate_policy_tells_the_verifier_that_the_prompt_opens_the_thinking_part(
    make_policy, tokenizer, problems, verifier
):
    policy = make_policy({"<answer>": {"7": 1.0}})
    opened = [Problem(id=p.id, prompt=f"{p.prompt} <think>", answer="7") for p in problems[:4]]
    result = evaluate(policy, tokenizer, [*problems[4:8], *opened], verifier)
    assert [group.prefilled for group in result.groups] == [False] * 4 + [True] * 4
    assert result.groups[-1].responses[0].text == "work </think> <answer> 7 </answer>"
    assert result.pass_at[1] == 1.0


def test_evaluate_policy_samples_as_its_settings_say(make_policy, tokenizer, problems, verifier):
    # 0.3^5 / (0.3^5 + 0.7^5) = 0.0143 at temperature 1/5
    policy = make_policy({"<answer>": {"7": 0.3, "3": 0.7}})
    result = evaluate(policy, tokenizer, problems, verifier, num_samples=25, temperature=0.2)
    assert result.pass_at[1] == pytest.approx(0.0143, abs=0.012)


@pytest.mark.parametrize("think", [True, False])
def test_evaluate_policy_renders_messages_by_the_chat_template(make_policy, tokenizer, problems, verifier, think):
    tokenizer.chat_template = "{{ messages[0].content }}{% if think %} <think>{% endif %}"
    chat = [Problem(id=p.id, prompt=[{"role": "user", "content": str(p.prompt)}], answer="7") for p in problems[:2]]
    policy = make_policy({"<answer>": {"7": 1.0}})
    result = evaluate(policy, tokenizer, chat, verifier, template={"think": think}, pass_at_k=(1,))
    assert [group.prefilled for group in result.groups] == [think, think]
    assert result.pass_at == {1: 1.0}


def test_evaluate_policy_takes_the_first_problems_in_their_order(make_policy, tokenizer, problems, verifier):
    result = evaluate(make_policy({"<answer>": {"7": 1.0}}), tokenizer, problems, verifier, max_problems=5)
    assert [group.problem.id for group in result.groups] == ["p0", "p1", "p2", "p3", "p4"]


def test_evaluate_policy_repeats_itself_for_a_seed(make_policy, tokenizer, problems, verifier):
    policy = make_policy({"<answer>": {"7": 0.3, "3": 0.7}})
    first, again = (evaluate(policy, tokenizer, problems, verifier) for _ in range(2))
    assert first.groups == again.groups
    assert evaluate(policy, tokenizer, problems, verifier, seed=4).groups != first.groups


def test_set_result_to_json_holds_numbers_that_json_can_write(make_policy, tokenizer, problems, verifier):
    result = evaluate(make_policy({"<answer>": {"7": 1.0}}), tokenizer, problems[:3], verifier)
    values = json.loads(json.dumps(result.to_json(), allow_nan=False))
    seconds = values.pop("seconds")
    assert 0 < seconds < 60
    assert values == {
        "num_problems": 3,
        "problems_hash": canonical_hash([[problem.id, problem.prompt, problem.answer] for problem in problems[:3]]),
        "num_samples": 8,
        "format": "think-answer",
        "pass_at": {"1": 1.0, "4": 1.0},
        "well_formatted_fraction": 1.0,
        "verified_fraction": 1.0,
        "truncated_fraction": 0.0,
        "mean_response_tokens": 7.0,
        "status_counts": {"ok": 24, "wrong": 0, "unparsed": 0, "timeout": 0, "error": 0},
        "problems": [{"id": f"p{i}", "num_correct": 8} for i in range(3)],
    }


def test_evaluate_policy_refuses_a_k_that_the_samples_do_not_cover(make_policy, tokenizer, problems, verifier):
    policy = make_policy({})
    policy.forward = None  # rejected before anything is generated
    with pytest.raises(ConfigError, match=r"pass_at_k is \(1, 9\), expected numbers from 1 to 8"):
        evaluate(policy, tokenizer, problems, verifier, pass_at_k=(1, 9))


def test_evaluate_policy_refuses_an_empty_set(make_policy, tokenizer, verifier):
    with pytest.raises(DataError, match="no problems to sample responses to"):
        evaluate(make_policy({}), tokenizer, [], verifier)


def test_evaluate_policy_measures_the_embedded_model_on_its_task(verifier):
    model, tokenizer = load_embedded()
    result = evaluate(model, tokenizer, load_arithmetic("test")[:40], verifier, max_new_tokens=48)
    # Room to learn is what the embedded model is for; paper/tasks/embedded.md holds the exact figures.
    assert 0.05 < result.pass_at[1] < result.pass_at[4] < 1
    assert result.to_json()["well_formatted_fraction"] > 0.7
    assert result.to_json()["truncated_fraction"] < 0.1
    assert sum(result.status_counts.values()) == 320
    assert result.status_counts[Status.TIMEOUT] == result.status_counts[Status.ERROR] == 0
    assert torch.is_grad_enabled()
