"""Grad2Reward under TRL: advantages of tokens by a second route, further rewards, and a judge that stays as it is."""

import math

import pytest
import torch

from gar.data import load_arithmetic
from gar.models import load_embedded
from paper.methods.frozen import frozen_copy
from paper.methods.grad2reward_trainer import Grad2RewardTrainer
from paper.methods.judge import Judge
from paper.methods.judge_settings import JudgeSettings
from tests.integrations.conftest import TrainerFactory

pytestmark = pytest.mark.paper
JUDGE = JudgeSettings(template="arithmetic")


def test_grad2reward_advantages_are_returns_of_the_judges_shares_normalized_over_the_groups_tokens(make_trainer):
    """In plain Python from the judge's token scores on: standardize, softmax, returns, z-score over the group."""
    model, tokenizer = load_embedded()
    problems = load_arithmetic("train")[:64]
    trainer, records = make_trainer(kind=Grad2RewardTrainer, judge=JUDGE, problems=problems)
    kept = []
    original = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda rows: kept.append(original(rows)) or kept[-1]
    trainer.train()
    (output,) = kept
    assert output["advantages"].shape == output["completion_ids"].shape

    judge = Judge(frozen_copy(model), tokenizer, JUDGE)
    returns = {}
    for i, record in enumerate(records):
        n = record.num_tokens
        ids = output["completion_ids"][i, :n].tolist()
        rewards = [0.0] * n
        rewards[-1] = float(record.eligible) + record.penalty
        if record.eligible:
            scores = judge.token_scores([record.prompt], [ids]).scores[0].tolist()
            mean = sum(scores) / len(scores)  # the end token is not shown to the judge, and has no share
            deviation = math.sqrt(sum((b - mean) ** 2 for b in scores) / len(scores))
            weights = [math.exp((b - mean) / deviation) for b in scores]
            for t, weight in enumerate(weights):
                rewards[t] += weight / sum(weights)
        returns[i] = [sum(rewards[t:]) for t in range(n)]
    assert any(record.eligible for record in records)
    for group in {record.group_index for record in records}:
        members = [i for i, record in enumerate(records) if record.group_index == group]
        values = [value for i in members for value in returns[i]]
        mean = sum(values) / len(values)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
        for i in members:
            expected = [(value - mean) / (deviation + 1e-4) if deviation else 0.0 for value in returns[i]]
            found = output["advantages"][i, : len(expected)].tolist()
            assert found == pytest.approx(expected, abs=2e-4)
            assert records[i].advantage == pytest.approx(sum(expected) / len(expected), abs=2e-4)
    assert logged_once(trainer, "gar/judge_effective_tokens") > 1
    assert 0 <= logged_once(trainer, "gar/judge_agreement") <= 1


def logged_once(trainer, name: str) -> float:
    (value,) = [row[name] for row in trainer.state.log_history if name in row]
    return value


def test_grad2reward_trains_and_leaves_its_judge_alone(make_trainer: TrainerFactory):
    trainer, _ = make_trainer(kind=Grad2RewardTrainer, judge=JUDGE, args={"num_iterations": 2, "max_steps": 2})
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    trainer.train()
    assert any(not torch.equal(before[name], tensor) for name, tensor in trainer.model.state_dict().items())
    judge = trainer._judge._model
    assert all(torch.equal(before[name], tensor) for name, tensor in judge.state_dict().items())
