"""A run whose model is in shards during training measures the saved one afterwards.

accelerate shards nothing on a CPU. So here DDP trains, and the trained weights are spoiled once they are saved.
`tests/engines/deepspeed` has ZeRO-3, with real DeepSpeed.
"""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
import torch

from gar.config import RunConfig, make_config, merge, read_preset
from gar.integrations.trl.arguments import grpo_arguments
from gar.records import RunFolder
from gar.train import run
from gar.train.inputs import RunInputs
from tests.support.ranks import run_ranks

pytestmark = pytest.mark.dist


def small_config(folder: Path, **values: Any) -> RunConfig:
    given = {
        "trl": {"max_steps": 1, "per_device_train_batch_size": 16, "learning_rate": 2e-3},
        "preflight": {"mode": "off"},
        "evaluate": {"sources": ["test"], "num_samples": 4, "pass_at_k": [1], "max_problems": 3},
        "records": {"output_dir": str(folder), "name": "run"},
    }
    return make_config(merge(read_preset("demo"), merge(given, values)))


def trained(folder: Path) -> None:
    save = run._Run._save_model

    def save_and_spoil(self: Any, folder: RunFolder, trainer: Any) -> None:
        save(self, folder, trainer)
        with torch.no_grad():
            for parameter in self.inputs.model.parameters():
                parameter.zero_()

    with (
        mock.patch.object(run, "shards_by", return_value="FSDP"),
        mock.patch.object(run._Run, "_save_model", save_and_spoil),
    ):
        run.train(small_config(folder), say=str)


def measured(folder: RunFolder) -> dict[str, Any]:
    """The numbers and samples of the evaluation after training."""
    path = folder.path / "evaluation" / "after" / "test"
    numbers = json.loads((path / "metrics.json").read_text())["sets"]["test"]
    return {"numbers": numbers, "samples": pq.read_table(path / "samples.parquet").to_pylist()}


@pytest.mark.slow
def test_the_saved_model_is_measured_after_training_on_shards(tmp_path: Path):
    run_ranks(trained, 2, tmp_path / "ranks", tmp_path)
    sharded, one = RunFolder.open(tmp_path / "run"), RunFolder.create(tmp_path, "one")
    config = small_config(tmp_path, model={"path": str(sharded.path / "model")})
    inputs = RunInputs(config, *grpo_arguments(config), str)
    with inputs.verifier:
        inputs.evaluate(one, "after", step=0)
    assert measured(sharded) == measured(one)
