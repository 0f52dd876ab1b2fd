"""Grad2Reward under TRL: advantages of tokens by a second route, further rewards, and a judge that stays as it is."""

import math

import pytest
import torch

from gar.config import make_config
from gar.data import load_arithmetic
from gar.errors import ConfigError
from gar.integrations.trl.arguments import grpo_arguments
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
            scores = judge.token_scores([record.prompt], [ids]).scores[0][0].tolist()
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


def test_grad2reward_adds_further_rewards_on_the_last_token_with_their_weights(make_trainer: TrainerFactory):
    """Returns-to-go from the judge's shares times the method's weight, each response's further reward added to all."""

    def shortness(completion_ids, **_):
        return [None if len(ids) % 2 else -len(ids) / 48 for ids in completion_ids]  # None: TRL counts it as 0

    returns = []
    for further in (False, True):
        torch.manual_seed(0)
        trainer, records = make_trainer(
            kind=Grad2RewardTrainer, judge=JUDGE, reward_funcs=[shortness] if further else [],
            args={"reward_weights": [2.0, 0.5] if further else [1.0], "mask_truncated_completions": True},
        )  # fmt: skip
        kept = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "paper.methods.grad2reward_trainer.group_token_advantages",
                lambda values, mask, *_, _kept=kept, **__: _kept.append((values, mask)) or values,
            )
            trainer.train()
        returns.append((*kept[0], records))
    (plain, mask, before), (weighted, _, after) = returns
    assert [record.response for record in before] == [record.response for record in after]
    lengths = torch.tensor([record.num_tokens for record in before], dtype=torch.float64)
    others = torch.where(lengths % 2 == 1, 0.0, -0.5 * lengths / 48)
    expected = (2.0 * plain + others[:, None]).where(mask.bool(), 0.0)
    assert bool((others != 0).any())
    torch.testing.assert_close(weighted, expected, rtol=0, atol=1e-6)


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


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"advantage": {"estimator": "reinforce-plus-plus"}},
            "advantage.estimator cannot be set: grad2reward normalizes over",
        ),
        ({"trl": {"scale_rewards": "none"}}, "trl.scale_rewards is 'none', but grad2reward has advantages of its own"),
    ],
)
def test_grad2reward_has_advantages_of_its_own(values: dict, text: str, tmp_path):
    config = make_config({"method": "grad2reward", **values})
    with pytest.raises(ConfigError, match=text):
        grpo_arguments(config, tmp_path)
