"""The seven groups of `tests/conformance` through verl's reward manager and a step of its own trainer, on Ray."""

import importlib.util
from dataclasses import dataclass
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed: these tests run in an environment of its own", allow_module_level=True)

import numpy as np
from verl.trainer.ppo.core_algos import (
    compute_grpo_outcome_advantage,
    compute_reinforce_plus_plus_outcome_advantage,
)

from gar.core import group_advantages, reinforce_plus_plus_advantages
from gar.integrations.verl.exchange import MEANS
from gar.integrations.verl.reward import GarRewardManager
from gar.integrations.verl.transfer import OUTCOME_SCORES
from gar.models.embedded import embedded_path
from gar.rules import AGENT_LOOP_MANAGER
from tests.conformance.expectation import check_engine
from tests.conformance.groups import GROUP_SIZE, make_rollouts
from tests.engines.verl.steps import Rollouts, make_trainer, read_field, reward_and_advantage, trajectory
from tests.engines.verl.workers import compose_config

pytestmark = pytest.mark.filterwarnings("ignore:::(?!gar).*")  # of verl and what it stands on

PARTITION = "conformance"


@dataclass(frozen=True)
class Done:
    """What a step left behind."""

    trainer: Any
    keys: list[str]
    padding: list[str]
    metrics: dict[str, Any]

    def read(self, name: str, keys: list[str] | None = None) -> list[Tensor]:
        return read_field(name, keys or self.keys, PARTITION)


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
def step(cluster: None) -> Done:
    """Steps 3 to 9 of verl's `_step_once` in its order, on rollouts that are given."""
    config = compose_config(
        embedded_path(), "gar.verify.format=think-answer", f"actor_rollout_ref.rollout.n={GROUP_SIZE}"
    )
    trainer = make_trainer(config)
    found = verified(GarRewardManager(config, trainer.tokenizer, compute_score=None))
    found.put(PARTITION)
    metrics: dict[str, Any] = {}
    batch = reward_and_advantage(trainer, found, PARTITION, metrics)
    padding = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")]
    return Done(trainer, found.keys, padding, metrics)


def test_verl_gives_the_expected_rewards_and_advantages(step):
    check_engine(
        "verl",
        version=version("verl"),
        rewards=[float(scores.sum()) for scores in step.read("rm_scores")],
        advantages=[float(values[0]) for values in step.read("advantages")],
    )


def test_step_leaves_to_verl_what_it_reads(step):
    """The reward on the last token, the outcome beside it, nothing in padding rows, and metrics."""
    for scores, before in zip(step.read("rm_scores"), step.read(OUTCOME_SCORES), strict=True):
        assert not bool(scores[:-1].any())
        assert float(before[-1]) in (0.0, 1.0, pytest.approx(-0.6))
    assert step.padding  # verl has filled its mini-batches up
    for name in ("rm_scores", "advantages", MEANS):
        assert not any(bool(values.any()) for values in step.read(name, step.padding))
    rollouts = make_rollouts()
    assert step.metrics["gar/verified_fraction"] == pytest.approx(sum(r.verified for r in rollouts) / len(rollouts))
    assert step.metrics["gar/no_anchor_fraction"] == pytest.approx(1 / 7)
    assert step.metrics["gar/alignment_mean"] > 0
    assert step.trainer.config.actor_rollout_ref.rollout.agent.agent_loop_manager_class == AGENT_LOOP_MANAGER


def test_verls_own_rules_are_those_of_the_core_but_for_a_response_that_is_alone():
    """Of a group of one, verl's GRPO takes mean 0 and standard deviation 1: its own reward where gar gives 0."""
    rewards, groups = torch.tensor([1.25, 0.0, 1.0]), [7, 8, 8]
    found, _ = compute_grpo_outcome_advantage(rewards[:, None], torch.ones(3, 1), np.array(groups))
    expected: Any = group_advantages(rewards, torch.tensor(groups), scale="std", ddof=1, eps=1e-6)
    assert float(found[0]) == pytest.approx(1.25, abs=1e-5)
    assert float(expected[0]) == 0.0
    torch.testing.assert_close(found[1:, 0], expected[1:], rtol=0, atol=1e-6)
    counts = torch.tensor([2, 5, 3])
    mask = (torch.arange(5) < counts[:, None]).float()
    scores = torch.zeros(3, 5).scatter(1, counts[:, None] - 1, rewards[:, None])
    whitened, _ = compute_reinforce_plus_plus_outcome_advantage(scores, mask, config=SimpleNamespace(gamma=1.0))
    expected = reinforce_plus_plus_advantages(rewards, counts, torch.tensor(groups), baseline=False, ddof=1, eps=1e-8)
    torch.testing.assert_close(whitened[:, 0], expected, rtol=1e-5, atol=1e-5)
