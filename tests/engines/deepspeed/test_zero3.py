"""Real DeepSpeed: a model that `zero.Init` spreads over two gloo ranks, in GARTrainer and in a run."""

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from gar.config import RunConfig, make_config, merge, read_preset
from gar.integrations.trl.arguments import grpo_arguments
from gar.models.embedded import load_embedded
from gar.records import RunFolder
from gar.train.inputs import RunInputs
from gar.train.run import train
from tests.integrations.replay import replay
from tests.support.ranks import run_ranks

pytest.importorskip("deepspeed", reason="DeepSpeed is not installed: make test-engines installs it and runs this")
pytestmark = pytest.mark.dist

CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}
SAVES = {"zero_optimization": CONFIG["zero_optimization"] | {"stage3_gather_16bit_weights_on_model_save": True}}
SIZED = {**CONFIG, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
"""DeepSpeed without a trainer needs numbers."""


def start_deepspeed() -> Any:
    """Start it on the CPU and on gloo, without operators that it would compile. Returns what must stay alive."""
    os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    import deepspeed
    from accelerate import PartialState
    from transformers.integrations import HfDeepSpeedConfig

    # `deepspeed.comm.torch` as an attribute is torch itself.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    # accelerate has neither a backend nor a device for DeepSpeed on a CPU.
    PartialState._prepare_backend = lambda *_, **__: ("gloo", None)
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
    return HfDeepSpeedConfig(SIZED)


def trained(folder: Path) -> dict[str, Any]:
    spread = start_deepspeed()
    assert spread.is_zero3()
    model, _ = load_embedded()
    assert not any(parameter.numel() for parameter in model.parameters())
    return replay(folder, {"deepspeed": CONFIG, "use_cpu": False}, {})


def small_config(folder: Path, **trl: Any) -> RunConfig:
    """A run with evaluations before and after training."""
    values = {
        "trl": {"max_steps": 2, "per_device_train_batch_size": 16, "learning_rate": 2e-3, "use_cpu": True} | trl,
        "preflight": {"mode": "off"},
        "evaluate": {"sources": ["test"], "num_samples": 4, "pass_at_k": [1], "max_problems": 3},
        "records": {"output_dir": str(folder), "name": "run"},
    }
    return make_config(merge(read_preset("demo"), values))


def trained_and_measured(folder: Path) -> None:
    spread = start_deepspeed()
    assert spread.is_zero3()
    train(small_config(folder, deepspeed=CONFIG | SAVES, use_cpu=False), say=str)


def measured(folder: RunFolder, moment: str) -> dict[str, Any]:
    """The numbers and samples of an evaluation."""
    path = folder.path / "evaluation" / moment / "test"
    numbers = json.loads((path / "metrics.json").read_text())["sets"]["test"]
    return {"numbers": numbers, "samples": pq.read_table(path / "samples.parquet").to_pylist()}


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


def test_run_on_zero_3_measures_as_one_process_with_the_same_weights(tmp_path):
    run_ranks(trained_and_measured, 2, tmp_path / "ranks", tmp_path)
    run = RunFolder.open(tmp_path / "run")
    one = RunFolder.create(tmp_path, "one")
    for moment, model in (("before", {}), ("after", {"model": {"path": str(run.path / "model")}})):
        config = make_config(merge(small_config(tmp_path).model_dump(), model))
        inputs = RunInputs(config, *grpo_arguments(config), str)
        with inputs.verifier:
            inputs.evaluate(one, moment, step=0)
        assert measured(run, moment) == measured(one, moment)
    assert measured(one, "before")["samples"] != measured(one, "after")["samples"]
