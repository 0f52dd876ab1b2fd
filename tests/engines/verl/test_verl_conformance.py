"""The seven groups of `tests/conformance` through verl's reward manager and a step of its own trainer, on Ray."""

import importlib.util
from importlib.metadata import version
from typing import Any

import pytest
import torch

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed: these tests run in an environment of its own", allow_module_level=True)

import numpy as np
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from gar.core import group_advantages
from gar.integrations.verl.reward import GarRewardManager
from gar.models.embedded import embedded_path
from tests.conformance.expectation import check_engine
from tests.conformance.groups import GROUP_SIZE, make_rollouts
from tests.engines.verl.steps import Rollouts, make_trainer, read_field, reward_and_advantage, trajectory
from tests.engines.verl.workers import compose_config

pytestmark = pytest.mark.filterwarnings("ignore:::(?!gar).*")  # of verl and what it stands on

PARTITION = "conformance"


def verified(manager: GarRewardManager) -> Rollouts:
    """The seven groups with the scores and verdicts of GAR's reward manager."""
    rollouts = Rollouts()
    for rollout in make_rollouts():
        prompt, ids, mask = list(rollout.sequence.context_ids), list(rollout.sequence.ids), rollout.sequence.mask
        sent = trajectory(prompt, ids, rollout.problem.answer, mask=mask)
        found = manager.loop.run_until_complete(manager.run_single(sent))
        rollouts.add(
            rollout.group, prompt, ids, anchors=[anchor.text for anchor in rollout.problem.anchors],
            score=found["reward_score"], verdict=found["reward_extra_info"], mask=mask,
        )  # fmt: skip
    return rollouts


@pytest.fixture(scope="module")
def rollouts(cluster: None) -> Rollouts:
    """After the step: rewards and advantages lie in the TransferQueue."""
    config = compose_config(
        embedded_path(), "gar.verify.format=think-answer", f"actor_rollout_ref.rollout.n={GROUP_SIZE}"
    )
    trainer = make_trainer(config)
    found = verified(GarRewardManager(config, trainer.tokenizer, compute_score=None))
    found.put(PARTITION)
    batch = reward_and_advantage(trainer, found, PARTITION, {})
    assert len(batch.keys) > len(found.keys)  # verl has filled its mini-batches up
    return found


def test_verl_gives_the_expected_rewards_and_advantages(rollouts):
    check_engine(
        "verl",
        version=version("verl"),
        rewards=[float(scores.sum()) for scores in read_field("rm_scores", rollouts.keys, PARTITION)],
        advantages=[float(values[0]) for values in read_field("advantages", rollouts.keys, PARTITION)],
    )


def test_verl_gives_a_response_that_is_alone_its_own_reward_where_gar_gives_0():
    """The one rule of verl's GRPO besides ddof and eps: mean 0 and standard deviation 1 for a group of one."""
    rewards, groups = torch.tensor([1.25, 0.0, 1.0]), [7, 8, 8]
    found, _ = compute_grpo_outcome_advantage(rewards[:, None], torch.ones(3, 1), np.array(groups))
    expected: Any = group_advantages(rewards, torch.tensor(groups), scale="std", ddof=1, eps=1e-6)
    assert float(found[0]) == pytest.approx(1.25, abs=1e-5)
    assert float(expected[0]) == 0.0
    torch.testing.assert_close(found[1:, 0], expected[1:], rtol=0, atol=1e-6)
