"""One step of verl's own trainer: Ray, TransferQueue, a worker with verl's engine, advantages and an update."""

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed: these tests run in an environment of its own", allow_module_level=True)

import ray
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
from verl.protocol import DataProto
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from gar.core import group_advantages, reinforce_plus_plus_advantages
from gar.errors import ConfigError, DataError
from gar.integrations.verl.exchange import MEANS, REQUEST
from gar.integrations.verl.reward import GarRewardManager
from gar.integrations.verl.settings import read_settings
from gar.integrations.verl.table import ResponseRow, RewardTable, SequenceReader
from gar.integrations.verl.transfer import OUTCOME_SCORES, read_rows
from gar.spans import TokenSequence
from tests.engines.verl.workers import CpuActor, autograd_mean, compose_config

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
    rows: list[ResponseRow]
    keys: list[str]
    padding: list[str]
    metrics: dict[str, Any]

    def read(self, name: str, keys: list[str] | None = None) -> list[Tensor]:
        data = tq.kv_batch_get(keys=keys or self.keys, partition_id="train", select_fields=[name])
        return list(data[name].unbind(0))

    @property
    def rewards(self) -> Tensor:
        return torch.stack([scores.sum() for scores in self.read("rm_scores")]).double()

    @property
    def groups(self) -> Tensor:
        names = list(GROUPS)
        return torch.tensor([names.index(row.group) for row in self.rows])


def rollout_fields(tokenizer: Any) -> tuple[list[str], list[dict[str, Any]], list[dict[str, Any]]]:
    """Keys, fields and tags as verl's agent loop and GAR's reward manager leave them."""
    keys, fields, tags = [], [], []
    prompt = torch.tensor(tokenizer.encode("3+4*7-2="))
    for group, responses in GROUPS.items():
        for k, (text, right, form) in enumerate(responses):
            ids = torch.tensor(tokenizer.encode(text))
            scores = torch.zeros(len(ids))
            scores[-1] = float(right and form) - 0.6 * (not form)
            verdict = {"acc": 1.0, "verified": right, "well_formatted": form, "status": "ok" if right else "wrong"}
            mask = torch.ones_like(ids)
            keys.append(f"{group}_{k}_0")
            fields.append(
                {
                    "uid": group, "prompts": prompt, "responses": ids, "response_mask": mask, "loss_mask": mask,
                    "input_ids": torch.cat([prompt, ids]), "position_ids": torch.arange(len(prompt) + len(ids)),
                    "rm_scores": scores, "extra_info": {"anchors": [] if group == "none" else [ANCHOR]},
                    "extra_fields": {"reward_extra_info": verdict}, "num_turns": 2, "session_id": k,
                }
            )  # fmt: skip
            lengths = {"prompt_len": len(prompt), "response_len": len(ids), "seq_len": len(prompt) + len(ids)}
            tags.append({"status": "success", "min_global_steps": 0, "max_global_steps": 0, **lengths})
    return keys, fields, tags


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray on this machine alone, and TransferQueue with one storage unit."""
    os.environ["TRANSFER_QUEUE_ENABLE"] = "1"
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20)
    yield
    tq.close()
    ray.shutdown()


@pytest.fixture(scope="module")
def step(cluster: None, tied: Path) -> Step:
    """Steps 3 to 9 of verl's `_step_once` in its order, on rollouts that are given."""
    config = compose_config(tied)
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
    keys, fields, tags = rollout_fields(trainer.tokenizer)
    tq.kv_batch_put(keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(fields), tags=tags)
    rows = read_rows(keys, "train")
    metrics: dict[str, Any] = {}
    batch = KVBatchMeta(partition_id="train", keys=keys, tags=tags, extra_info={"temperature": 1.0})
    batch = trainer._balance_batch(batch, metrics=metrics)
    padding = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")]
    batch = trainer._compute_old_log_prob(batch, metrics)
    found = Step(trainer, batch, rows, keys, padding, metrics)
    assert REQUEST not in batch.extra_info  # a reference pass would hear it
    found.batch = trainer._compute_advantage(batch, metrics)
    return found


def test_trainer_takes_the_synchronous_replay_buffer(step):
    assert step.trainer.trainer_mode == "sync"
    assert type(step.trainer.replay_buffer) is ReplayBuffer


def test_step_gives_the_rewards_of_one_process(step, tied):
    """The same rows, with vectors from autograd on the whole model."""
    config = read_settings(OmegaConf.to_container(step.trainer.config, resolve=True))
    table = RewardTable(step.rows, SequenceReader(step.trainer.tokenizer, config), config)

    def vector(sequence: TokenSequence) -> Tensor:
        ids = torch.tensor([*sequence.context_ids, *sequence.ids])
        first, places = len(sequence.context_ids), sequence.positions
        span = (first + places[0], first + places[-1] + 1) if places else (0, 0)
        return autograd_mean(tied, (ids, first, torch.ones(len(sequence.ids), dtype=torch.long), *span))

    shaped, metrics = table.shape(
        torch.stack([vector(sequence) for sequence in table.sequences]),
        torch.stack([vector(sequence) for sequence in table.anchor_sequences]),
    )
    torch.testing.assert_close(step.rewards, shaped.rewards, **TOLERANCE)
    assert bool((shaped.bonuses > 1e-3).any())
    for name, value in metrics.items():
        assert step.metrics[name] == pytest.approx(value, abs=1e-6), name


def test_step_puts_the_reward_on_the_last_token_and_keeps_the_outcome(step):
    for scores, before in zip(step.read("rm_scores"), step.read(OUTCOME_SCORES), strict=True):
        assert not bool(scores[:-1].any())
        assert float(before[-1]) in (0.0, 1.0, pytest.approx(-0.6))


def test_step_leaves_padding_rows_out(step):
    assert len(step.padding) == 6  # 18 responses, mini-batches of 12
    assert not any(bool(scores.any()) for scores in step.read("rm_scores", step.padding))
    assert not any(bool(advantages.any()) for advantages in step.read("advantages", step.padding))
    assert not any(bool(means.any()) for means in step.read(MEANS, step.padding))


def test_step_gives_the_cores_advantages_with_verls_eps_and_ddof(step):
    found = torch.stack([advantages[-1] for advantages in step.read("advantages")]).double()
    expected = group_advantages(step.rewards, step.groups, scale="std", ddof=1, eps=1e-6)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert bool((expected[step.groups == list(GROUPS).index("all")] != 0).all())  # rescued from silence


def test_reinforce_plus_plus_is_verls_own_and_agrees_with_the_core(step):
    step.trainer.config.algorithm.adv_estimator = "reinforce_plus_plus"
    step.trainer._compute_advantage(step.batch, {})
    found = torch.stack([advantages[-1] for advantages in step.read("advantages")]).double()
    counts = torch.tensor([len(row.mask) for row in step.rows])
    expected = reinforce_plus_plus_advantages(step.rewards, counts, step.groups, baseline=False, ddof=1, eps=1e-8)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_step_updates_the_policy(step):
    step.trainer._update_actor(step.batch, step.metrics)
    assert step.metrics["actor/grad_norm"] > 0


def test_read_rows_refuses_responses_without_a_verdict(step):
    _, fields, tags = rollout_fields(step.trainer.tokenizer)
    fields[0]["extra_fields"] = {"reward_extra_info": {"acc": 1.0}}
    tq.kv_batch_put(keys=["x_0_0"], partition_id="other", fields=list_of_dict_to_tensordict(fields[:1]), tags=tags[:1])
    with pytest.raises(ConfigError, match=r"without a verdict, with \['acc'\]: is reward.reward_manager.name=gar"):
        read_rows(["x_0_0"], "other")


def test_read_rows_refuses_several_outputs_of_a_session():
    with pytest.raises(DataError, match="several outputs of one session, such as a_0_1"):
        read_rows(["a_0_0", "a_0_1"], "train")


def trajectory(tokenizer: Any, text: str, gold: str) -> DataProto:
    """What verl's agent loop sends to a reward worker."""
    prompt, ids = (torch.tensor(tokenizer.encode(part)) for part in ("3+4=", text + "<eos>"))
    return DataProto(
        batch=TensorDict({"prompts": prompt[None], "responses": ids[None]}, batch_size=1),
        non_tensor_batch={
            "prompt_len": np.array([len(prompt)]),
            "response_len": np.array([len(ids)]),
            "reward_model": np.array([{"ground_truth": gold}], dtype=object),
        },
    )


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("<think>3+4</think><answer>7</answer>", "7", (1.0, True, True, "ok")),
        ("<think>3+4</think><answer>8</answer>", "7", (0.0, False, True, "wrong")),
        ("<answer>7</answer>", "7", (-0.6, True, False, "ok")),
    ],
)
def test_reward_manager_says_what_the_trainer_reads(text, gold, expected, tied):
    config = compose_config(tied, "gar.verify.format=think-answer")
    tokenizer = AutoTokenizer.from_pretrained(tied)
    manager = GarRewardManager(config, tokenizer, compute_score=None)
    found = manager.loop.run_until_complete(manager.run_single(trajectory(tokenizer, text, gold)))
    verdict = found["reward_extra_info"]
    assert found["reward_score"] == pytest.approx(expected[0])
    assert (verdict["verified"], verdict["well_formatted"], verdict["status"]) == expected[1:]


@pytest.mark.usefixtures("cluster")
def test_verls_reward_worker_asks_a_grader_in_its_own_processes(tied):
    """In a Ray actor, whose main module is Ray's, the verifier can still start its workers."""
    config = compose_config(tied, "+gar.verify.verifier=tests.engines.verl.graders:grade_last_character")
    worker = ray.remote(RewardLoopWorker).remote(config)
    tokenizer = AutoTokenizer.from_pretrained(tied)
    for gold, status in (("9", "ok"), ("8", "wrong")):
        found = ray.get(worker.compute_score.remote(trajectory(tokenizer, "3+26=29", gold)))
        assert found["reward_extra_info"]["status"] == status
