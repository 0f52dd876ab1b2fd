"""Real DeepSpeed: a model that `zero.Init` has spread over two gloo ranks, in GARTrainer and by itself."""

import importlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gar.models.embedded import load_embedded
from gar.models.families import find_parts
from gar.scoring import signal_means
from gar.settings import SignalSettings
from tests.integrations.replay import replay
from tests.models.autograd import random_sequences
from tests.ranks import run_ranks

pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: make test-engines installs it and runs this")
pytestmark = pytest.mark.dist

CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
SIZED = {**CONFIG, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
"""The trainer fills these in; by itself DeepSpeed wants numbers."""

SEQUENCES = random_sequences(36, [(5, 12, range(12)), (9, 17, range(3, 15)), (2, 6, [0, 3, 5])])


def start_deepspeed() -> Any:
    """On the CPU and on gloo, without its own operators, which it would compile. Returns what must stay alive."""
    os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    import deepspeed
    from accelerate import PartialState
    from transformers.integrations import HfDeepSpeedConfig

    # Not `deepspeed.comm.torch`, which is torch itself.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    # accelerate knows neither a backend nor a device for DeepSpeed on a CPU.
    PartialState._prepare_backend = lambda *_, **__: ("gloo", None)
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
    return HfDeepSpeedConfig(SIZED)


def vectors() -> Tensor:
    """Means of `SEQUENCES`, by a model that was empty on each rank when it was looked at first."""
    spread = start_deepspeed()
    import deepspeed

    assert spread.is_zero3()
    model, _ = load_embedded()
    assert not any(parameter.numel() for parameter in model.parameters())
    assert find_parts(model).width == 128
    deepspeed.initialize(model=model, config=SIZED)
    means = signal_means(find_parts(model).gathered(), SEQUENCES, SignalSettings(max_batch_tokens=20))
    assert not any(parameter.numel() for parameter in model.parameters())
    return means


def trained(folder: Path) -> dict[str, Any]:
    spread = start_deepspeed()
    assert spread.is_zero3()
    return replay(folder, {"deepspeed": CONFIG, "use_cpu": False}, {})


def test_vectors_of_a_model_spread_by_zero_init_are_those_of_the_whole_one(tmp_path):
    expected = signal_means(find_parts(load_embedded()[0]), SEQUENCES, SignalSettings())
    for means in run_ranks(vectors, 2, tmp_path):
        torch.testing.assert_close(means, expected, rtol=0, atol=1e-6)


def test_trainer_on_zero_3_gives_the_rewards_of_one_process(tmp_path):
    one = replay(tmp_path, {}, {})
    ranks = run_ranks(trained, 2, tmp_path / "ranks", tmp_path)
    assert [rank["wrapper"] for rank in ranks] == ["DeepSpeedEngine"] * 2
    for rank in ranks:
        torch.testing.assert_close(rank["vectors"][0], one["vectors"][0], rtol=0, atol=1e-6)
    rewards, expected = (
        torch.tensor([record.reward for record in run["records"]], dtype=torch.float64) for run in (ranks[0], one)
    )
    step = len(expected) // 2  # before the first update, whose rounding differs
    torch.testing.assert_close(rewards[:step], expected[:step], rtol=0, atol=1e-6)
    assert len(set(expected.tolist())) > 10
