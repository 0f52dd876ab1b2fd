"""The seven groups of `tests/conformance` through verl's reward manager and a step of its own trainer, on Ray."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import torch
import transfer_queue as tq
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.trainer.ppo.core_algos import compute_reinforce_plus_plus_outcome_advantage
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from gar.core import reinforce_plus_plus_advantages
from gar.integrations.verl.exchange import MEANS, REQUEST
from gar.integrations.verl.reward import GarRewardManager
from gar.integrations.verl.settings import AGENT_LOOP_MANAGER
from gar.integrations.verl.transfer import OUTCOME_SCORES
from gar.models.embedded import embedded_path
from tests.conformance.expectation import check_engine
from tests.conformance.groups import GROUP_SIZE, make_rollouts
from tests.engines.verl.workers import CpuActor, compose_config, trajectory

pytestmark = pytest.mark.filterwarnings("ignore:::(?!gar).*")  # of verl and what it stands on

PARTITION = "conformance"


@dataclass(frozen=True)
class Done:
    """Results of a step."""

    trainer: Any
    keys: list[str]
    padding: list[str]
    metrics: dict[str, Any]
    partition: str

    def read(self, name: str, keys: list[str] | None = None) -> list[Tensor]:
        """A field of the TransferQueue, a tensor per response."""
        fields = tq.kv_batch_get(keys=keys or self.keys, partition_id=self.partition, select_fields=[name])
        return list(fields[name].unbind(0))


def put_rollouts(
    manager: GarRewardManager, rollouts: Sequence[Any], partition: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """Put the outputs of verl's agent loop and GAR's reward manager into the queue. Returns keys and tags."""
    keys, fields, tags = [], [], []
    for i, rollout in enumerate(rollouts):
        prompt, ids, mask = list(rollout.sequence.context_ids), list(rollout.sequence.ids), rollout.sequence.mask
        sent = trajectory(prompt, ids, rollout.problem.answer, mask=mask)
        found = manager.loop.run_until_complete(manager.run_single(sent))
        own, scores, whole = torch.tensor(mask or [1] * len(ids)), torch.zeros(len(ids)), torch.tensor([*prompt, *ids])
        scores[-1] = found["reward_score"]
        keys.append(f"{rollout.group}_{i}_0")
        fields.append(
            {
                "uid": rollout.group, "prompts": whole[: len(prompt)], "responses": whole[len(prompt) :],
                "response_mask": own, "loss_mask": own, "input_ids": whole, "position_ids": torch.arange(len(whole)),
                "rm_scores": scores, "extra_info": {"anchors": [anchor.text for anchor in rollout.problem.anchors]},
                "extra_fields": {"reward_extra_info": found["reward_extra_info"]}, "num_turns": 2,
                "session_id": i, "multi_modal_inputs": {},
            }
        )  # fmt: skip
        lengths = {"prompt_len": len(prompt), "response_len": len(ids), "seq_len": len(whole)}
        tags.append({"status": "success", "min_global_steps": 0, "max_global_steps": 0, **lengths})
    tq.kv_batch_put(keys=keys, partition_id=partition, fields=list_of_dict_to_tensordict(fields), tags=tags)
    return keys, tags


def make_trainer(config: Any) -> Any:
    """`trainer_mode=gar_sync` with one worker on the CPU. Ray must run."""
    config.transfer_queue.enable = True
    tq.init(config.transfer_queue)
    trainer = get_trainer_cls("gar_sync")(config)
    trainer.actor_rollout_wg = RayWorkerGroup(
        resource_pool=RayResourcePool([1], use_gpu=False, max_colocate_count=1),
        ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(CpuActor), config=config.actor_rollout_ref, role="actor"),
        device_name="cpu",
    )
    trainer.actor_rollout_wg.init_model()
    trainer._init_tokenizer()
    trainer.global_steps = 1
    return trainer


@pytest.fixture(scope="module")
def step(cluster: None) -> Done:
    """Steps 3 to 9 of verl's `_step_once` on given rollouts."""
    config = compose_config(
        embedded_path(), "gar.verify.format=think-answer", f"actor_rollout_ref.rollout.n={GROUP_SIZE}"
    )
    trainer = make_trainer(config)
    return take_step(trainer, make_rollouts(), PARTITION)


def take_step(trainer: Any, rollouts: Sequence[Any], partition: str) -> Done:
    metrics: dict[str, Any] = {}
    manager = GarRewardManager(trainer.config, trainer.tokenizer, compute_score=None)
    keys, tags = put_rollouts(manager, rollouts, partition)
    batch = KVBatchMeta(partition_id=partition, keys=list(keys), tags=tags, extra_info={"temperature": 1.0})
    batch = trainer._balance_batch(batch, metrics=metrics)
    batch = trainer._compute_old_log_prob(batch, metrics)
    assert REQUEST not in batch.extra_info  # a reference pass would see it
    batch = trainer._compute_advantage(batch, metrics)
    padding = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")]
    return Done(trainer, keys, padding, metrics, partition)


def test_verl_gives_the_expected_rewards_and_advantages(step):
    check_engine(
        "verl",
        version=version("verl"),
        rewards=[float(scores.sum()) for scores in step.read("rm_scores")],
        advantages=[float(values[0]) for values in step.read("advantages")],
    )


def test_step_writes_rewards_outcomes_and_metrics(step):
    """The reward on the last token, the outcome, zeros in padding rows, and metrics."""
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


@pytest.mark.parametrize("size", [6, 16, 64])
def test_groups_of_equal_rewards_have_no_advantage(step, size):
    """verl's float32 mean of -0.6 is not -0.6 for these sizes. The rewards stay."""
    bad = next(r for r in make_rollouts() if not r.well_formatted)
    done = take_step(step.trainer, [bad] * size, f"equal-{size}")
    assert {round(float(row.sum()), 6) for row in done.read("rm_scores")} == {-0.6}
    for name in ("advantages", "returns"):
        assert not any(bool(row.any()) for row in done.read(name))


def test_verls_whitening_is_the_cores():
    rewards, groups, counts = torch.tensor([1.25, 0.0, 1.0]), torch.tensor([7, 8, 8]), torch.tensor([2, 5, 3])
    mask = (torch.arange(5) < counts[:, None]).float()
    scores = torch.zeros(3, 5).scatter(1, counts[:, None] - 1, rewards[:, None])
    whitened, _ = compute_reinforce_plus_plus_outcome_advantage(scores, mask, config=SimpleNamespace(gamma=1.0))
    expected = reinforce_plus_plus_advantages(rewards, counts, groups, baseline=False, ddof=1, eps=1e-8)
    torch.testing.assert_close(whitened[:, 0], expected, rtol=1e-5, atol=1e-5)
