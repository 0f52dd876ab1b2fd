"""The middle of a step of verl's own trainer on given rollouts: from what its agent loop leaves to advantages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from gar.integrations.verl.exchange import OWN_MASK, REQUEST
from tests.engines.verl.workers import CpuActor


@dataclass
class Rollouts:
    """What verl's agent loop and GAR's reward manager leave in the TransferQueue."""

    keys: list[str] = field(default_factory=list)
    fields: list[dict[str, Any]] = field(default_factory=list)
    tags: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        group: str,
        prompt: list[int],
        ids: list[int],
        *,
        anchors: list[str],
        score: float,
        verdict: dict,
        mask: Sequence[int] | None = None,
    ) -> None:
        number = sum(other["uid"] == group for other in self.fields)
        own, scores = torch.tensor(mask or [1] * len(ids)), torch.zeros(len(ids))
        scores[-1] = score
        whole = torch.tensor([*prompt, *ids])
        self.keys.append(f"{group}_{number}_0")
        self.fields.append(
            {
                "uid": group, "prompts": whole[: len(prompt)], "responses": whole[len(prompt) :],
                "response_mask": own, "loss_mask": own, "input_ids": whole, "position_ids": torch.arange(len(whole)),
                "rm_scores": scores, "extra_info": {"anchors": anchors},
                "extra_fields": {"reward_extra_info": verdict}, "num_turns": 2, "session_id": number,
                "multi_modal_inputs": {},
            }
        )  # fmt: skip
        lengths = {"prompt_len": len(prompt), "response_len": len(ids), "seq_len": len(whole)}
        self.tags.append({"status": "success", "min_global_steps": 0, "max_global_steps": 0, **lengths})

    def put(self, partition: str) -> None:
        fields = list_of_dict_to_tensordict(self.fields)
        tq.kv_batch_put(keys=self.keys, partition_id=partition, fields=fields, tags=self.tags)


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


def reward_and_advantage(trainer: Any, rollouts: Rollouts, partition: str, metrics: dict[str, Any]) -> Any:
    """verl's batch after balancing, log-probabilities and advantages, as `_step_once` orders them."""
    batch = KVBatchMeta(
        partition_id=partition, keys=list(rollouts.keys), tags=list(rollouts.tags), extra_info={"temperature": 1.0}
    )
    batch = trainer._balance_batch(batch, metrics=metrics)
    batch = trainer._compute_old_log_prob(batch, metrics)
    assert REQUEST not in batch.extra_info  # a reference pass would hear it
    return trainer._compute_advantage(batch, metrics)


def read_field(name: str, keys: list[str], partition: str) -> list[Tensor]:
    """What lies in the TransferQueue under a name, a tensor per response."""
    return list(tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=[name])[name].unbind(0))


def trajectory(prompt: list[int], ids: list[int], gold: str, *, mask: Sequence[int] | None = None) -> DataProto:
    """What verl's agent loop sends to a reward worker, with ours."""
    return DataProto(
        batch=TensorDict({"prompts": torch.tensor([prompt]), "responses": torch.tensor([ids])}, batch_size=1),
        non_tensor_batch={
            "prompt_len": np.array([len(prompt)]),
            "response_len": np.array([len(ids)]),
            "reward_model": np.array([{"ground_truth": gold}], dtype=object),
            "tool_extra_fields": np.array([{OWN_MASK: mask or [1] * len(ids)}], dtype=object),
        },
    )
