"""One step of verl's own trainer: Ray, TransferQueue, a worker with verl's engine, advantages and an update."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed: these tests run in an environment of its own", allow_module_level=True)

import ray
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.utils.import_utils import load_class_from_fqn

from gar.core import group_advantages, reinforce_plus_plus_advantages
from gar.integrations.verl.exchange import MEANS
from gar.integrations.verl.reward import GarRewardManager
from gar.integrations.verl.settings import read_settings, read_shaping
from gar.integrations.verl.transfer import OUTCOME_SCORES, read_rows
from gar.rules import AGENT_LOOP_MANAGER
from gar.sequences import TokenSequence
from gar.step import Row
from gar.step import Step as RewardStep
from tests.engines.verl.steps import Rollouts, make_trainer, read_field, reward_and_advantage, trajectory
from tests.engines.verl.workers import autograd_mean, compose_config

ANCHOR = "28+3-2=29"
GROUPS = {
    "wrong": [("28", False, True), ("1", False, True), ("3", False, True)],
    "one": [("29", True, True), ("2", False, True), ("30", False, True)],
    "all": [("28+1=29", True, True), ("29", True, True), ("3+26=29", True, True)],
    "form": [("29", True, False), ("28+1", True, True), ("30-1=29", True, True)],
    "none": [("29", True, True), ("28+1", True, True), ("7", False, True)],
    "mute": [("29", True, True), ("<eos>", True, True), ("3+26", True, True)],
}
"""Text, right, well formatted. "none" has no anchor; one response of "mute" has no token to score."""

TOLERANCE: dict[str, Any] = {"rtol": 0, "atol": 1e-6}

pytestmark = pytest.mark.filterwarnings("ignore:::(?!gar).*")  # of verl and what it stands on


@dataclass
class Step:
    """What a step left behind, rows in the order of `keys`."""

    trainer: Any
    batch: Any
    rows: list[Row]
    keys: list[str]
    padding: list[str]
    metrics: dict[str, Any]

    def read(self, name: str, keys: list[str] | None = None) -> list[Tensor]:
        return read_field(name, keys or self.keys, "train")

    @property
    def rewards(self) -> Tensor:
        return torch.stack([scores.sum() for scores in self.read("rm_scores")]).double()

    @property
    def groups(self) -> Tensor:
        return torch.tensor([row.facts.group_index for row in self.rows])  # numbered as they come, as in GROUPS


def make_rollouts(tokenizer: Any) -> Rollouts:
    rollouts = Rollouts()
    for group, responses in GROUPS.items():
        for text, right, form in responses:
            rollouts.add(
                group, tokenizer.encode("3+4*7-2="), tokenizer.encode(text),
                anchors=[] if group == "none" else [ANCHOR], score=float(right and form) - 0.6 * (not form),
                verdict={"acc": 1.0, "verified": right, "well_formatted": form, "status": "ok" if right else "wrong"},
            )  # fmt: skip
    return rollouts


@pytest.fixture(scope="module")
def step(cluster: None, tied: Path) -> Step:
    """Steps 3 to 9 of verl's `_step_once` in its order, on rollouts that are given."""
    trainer = make_trainer(compose_config(tied))
    rollouts = make_rollouts(trainer.tokenizer)
    rollouts.put("train")
    rows = read_rows(rollouts.keys, "train", trainer._reader, max_response_tokens=99)
    metrics: dict[str, Any] = {}
    batch = reward_and_advantage(trainer, rollouts, "train", metrics)
    padding = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")]
    return Step(trainer, batch, rows, rollouts.keys, padding, metrics)


def test_step_gives_the_rewards_of_one_process(step, tied):
    """The same rows, with vectors from autograd on the whole model."""
    config: Any = OmegaConf.to_container(step.trainer.config, resolve=True)
    alone = RewardStep(read_shaping(read_settings(config)), step.rows)

    def vector(sequence: TokenSequence) -> Tensor:
        ids = torch.tensor([*sequence.context_ids, *sequence.ids])
        first, places = len(sequence.context_ids), sequence.positions
        span = (first + places[0], first + places[-1] + 1) if places else (0, 0)
        return autograd_mean(tied, (ids, first, torch.ones(len(sequence.ids), dtype=torch.long), *span))

    shaped = alone.finish(torch.stack([vector(sequence) for sequence in alone.sequences]))
    torch.testing.assert_close(step.rewards, shaped.rewards, **TOLERANCE)
    assert bool((shaped.shaped.bonuses > 1e-3).any())
    for name, value in (shaped.metrics() | {"gar/truncated_fraction": 0.0}).items():
        assert step.metrics[name] == pytest.approx(value, abs=1e-6), name
    for scores, before in zip(step.read("rm_scores"), step.read(OUTCOME_SCORES), strict=True):
        assert not bool(scores[:-1].any())
        assert float(before[-1]) in (0.0, 1.0, pytest.approx(-0.6))
    assert len(step.padding) == 6  # 18 responses, mini-batches of 12
    for name in ("rm_scores", "advantages", MEANS):
        assert not any(bool(values.any()) for values in step.read(name, step.padding))


def test_step_gives_the_cores_advantages_with_verls_eps_and_ddof(step):
    found = torch.stack([advantages[-1] for advantages in step.read("advantages")]).double()
    expected = group_advantages(step.rewards, step.groups, scale="std", ddof=1, eps=1e-6)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert bool((expected[step.groups == list(GROUPS).index("all")] != 0).all())  # rescued from silence


def test_reinforce_plus_plus_is_verls_own_and_agrees_with_the_core(step):
    step.trainer.config.algorithm.adv_estimator = "reinforce_plus_plus"
    step.trainer._compute_advantage(step.batch, {})
    found = torch.stack([advantages[-1] for advantages in step.read("advantages")]).double()
    counts = torch.tensor([len(row.sequence.ids) for row in step.rows])
    expected = reinforce_plus_plus_advantages(step.rewards, counts, step.groups, baseline=False, ddof=1, eps=1e-8)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def answer(tokenizer: Any, text: str, gold: str) -> Any:
    return trajectory(tokenizer.encode("3+4="), tokenizer.encode(text + "<eos>"), gold)


def test_reward_manager_says_what_the_trainer_reads(tied):
    config = compose_config(tied, "gar.verify.format=think-answer")
    tokenizer = AutoTokenizer.from_pretrained(tied)
    manager = GarRewardManager(config, tokenizer, compute_score=None)
    for text, expected in (
        ("<think>3+4</think><answer>7</answer>", (1.0, True, True, "ok")),
        ("<think>3+4</think><answer>8</answer>", (0.0, False, True, "wrong")),
        ("<answer>7</answer>", (-0.6, True, False, "ok")),
    ):
        found = manager.loop.run_until_complete(manager.run_single(answer(tokenizer, text, "7")))
        verdict = found["reward_extra_info"]
        assert found["reward_score"] == pytest.approx(expected[0])
        assert (verdict["verified"], verdict["well_formatted"], verdict["status"]) == expected[1:]


TURNS = [("3+4=8", 1), ("<answer>7</answer>", 0)]
"""The policy answers wrong, and a tool right."""


def test_agent_loop_tells_the_reward_manager_what_the_policy_wrote(step, tied):
    assert step.trainer.config.actor_rollout_ref.rollout.agent.agent_loop_manager_class == AGENT_LOOP_MANAGER
    config, tokenizer = compose_config(tied, "gar.verify.format=none"), AutoTokenizer.from_pretrained(tied)
    manager = GarRewardManager(config, tokenizer, compute_score=None)
    agents = load_class_from_fqn(AGENT_LOOP_MANAGER)(config, None)
    worker = object.__new__(agents.agent_loop_workers_class.__ray_metadata__.modified_class)
    worker.processor, worker.mm_processor_kwargs = None, {}
    worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=manager.run_single))]
    turns = [(tokenizer.encode(text), own) for text, own in TURNS]
    output = AgentLoopOutput(
        prompt_ids=tokenizer.encode("3+4="), response_ids=[token for ids, _ in turns for token in ids],
        response_mask=[own for ids, own in turns for _ in ids], metrics={},
    )  # fmt: skip
    manager.loop.run_until_complete(worker._compute_score([output], {"reward_model": {"ground_truth": "7"}}))
    assert output.extra_fields.pop("reward_extra_info")["status"] == "wrong"
    assert output.extra_fields == {}


@pytest.mark.usefixtures("cluster")
def test_verls_reward_worker_asks_a_grader_in_its_own_processes(tied):
    """In a Ray actor, whose main module is Ray's, the verifier can still start its workers."""
    config = compose_config(tied, "+gar.verify.verifier=tests.engines.verl.graders:grade_last_character")
    worker = ray.remote(RewardLoopWorker).remote(config)
    tokenizer = AutoTokenizer.from_pretrained(tied)
    for gold, status in (("9", "ok"), ("8", "wrong")):
        found = ray.get(worker.compute_score.remote(answer(tokenizer, "3+26=29", gold)))
        assert found["reward_extra_info"]["status"] == status
