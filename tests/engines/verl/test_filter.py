"""verl's group filter on what GAR's reward manager sends it, in verl's own replay buffer."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer
from verl.trainer.ppo.v1 import replay_buffer

from gar.integrations.verl.reward import GarRewardManager
from gar.integrations.verl.settings import FILTER_METRIC
from tests.engines.verl.workers import compose_config, trajectory

pytestmark = pytest.mark.filterwarnings("ignore:::(?!gar).*")  # of verl and what it stands on

RIGHT, ALSO, WRONG = "<answer> 7 </answer>", "7 <answer> 7 </answer>", "<answer> 8 </answer>"
GROUPS = {"mixed": [RIGHT, WRONG], "right": [RIGHT, ALSO], "same": [RIGHT, RIGHT], "wrong": [WRONG, WRONG + " 1"]}
ANCHORS = ["7 <answer> 7 </answer>"]


def evicted(config: Any, metric: str, anchors: list[str], folder: Any, monkeypatch: Any) -> set[str]:
    """The groups that verl drops."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    manager = GarRewardManager(config, tokenizer, compute_score=None)
    sent = {}
    for name, texts in GROUPS.items():
        for i, text in enumerate(texts):
            data = trajectory(tokenizer.encode("3+4="), tokenizer.encode(f"{text}<eos>"), "7")
            data.non_tensor_batch["extra_info"] = np.array([{"anchors": np.array(anchors, dtype=object)}], dtype=object)
            found = manager.loop.run_until_complete(manager.run_single(data))
            sent[f"{name}_{i}"] = {"reward_extra_info": found["reward_extra_info"]}
    buffer = replay_buffer.ReplayBuffer(
        trainer_mode="sync", trainer_config=None, max_off_policy_threshold=None, max_off_policy_strategy="drop",
        sampler_kwargs=None, refill_fn=print, filter_groups_metric=metric, train_batch_size=2,
    )  # fmt: skip
    buffer.partitions["train"] = {key: {} for key in sent}
    buffer.finished_keys["train"] = set(GROUPS)

    def stored(keys, **_):
        return {"extra_fields": [sent[key] for key in keys]}

    monkeypatch.setattr(replay_buffer, "tq", SimpleNamespace(kv_batch_get=stored))
    return buffer._dapo_filtered_keys("train")[0]


def test_verls_filter_drops_groups_without_a_signal(tied, monkeypatch):
    flags = ("gar.verify.format=none", "algorithm.filter_groups.enable=true")
    config = compose_config(tied, *flags, f"algorithm.filter_groups.metric={FILTER_METRIC}")
    assert evicted(config, FILTER_METRIC, ANCHORS, tied, monkeypatch) == {"same", "wrong"}
    assert evicted(config, FILTER_METRIC, [], tied, monkeypatch) == {"right", "same", "wrong"}
    assert evicted(config, "acc", ANCHORS, tied, monkeypatch) == {"right", "same", "wrong"}
