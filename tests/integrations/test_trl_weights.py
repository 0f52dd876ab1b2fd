"""Whether weights move: the metric and the warning of `GARTrainer`, on the embedded model at the paper's rate."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator, PartialState
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from gar.integrations.trl.ranks import TrlRanks
from gar.integrations.trl.weights import WeightChange
from gar.metrics import CHANGED_WEIGHTS as METRIC
from gar.models.embedded import load_embedded
from gar.step import StepRanks
from tests.integrations.conftest import TrainerFactory
from tests.support.ranks import run_ranks


def shares(trainer: Any) -> list[float]:
    return [row[METRIC] for row in trainer.state.log_history if METRIC in row]


def in_bfloat16() -> Any:
    model: Any = load_embedded()[0]
    return model.to(torch.bfloat16)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_bfloat16_weights_that_do_not_move_are_warned_about_once(make_trainer: TrainerFactory, accumulation: int):
    small = {"learning_rate": 1e-6, "max_steps": 2, "gradient_accumulation_steps": accumulation}
    trainer, _ = make_trainer(model=in_bfloat16(), args=small)
    with pytest.warns(UserWarning, match=r"Optimizer step 1 changed 0\.\d+% .* learning rate 1e-06.*bfloat16") as seen:
        trainer.train()
    assert len([each for each in seen if "Optimizer step" in str(each.message)]) == 1
    assert len(shares(trainer)) == 2
    assert 0 < max(shares(trainer)) < 0.02


def test_float32_weights_move_and_no_warning_is_given(make_trainer: TrainerFactory):
    trainer, _ = make_trainer(args={"learning_rate": 1e-6, "max_steps": 2})
    trainer.train()  # in tests a warning is an error
    assert len(shares(trainer)) == 2
    assert min(shares(trainer)) > 0.98


def test_steps_at_rate_0_do_not_count(make_trainer: TrainerFactory):
    """A warm-up begins at rate 0."""
    warming = {"learning_rate": 1e-6, "max_steps": 3, "warmup_steps": 2}
    trainer, _ = make_trainer(model=in_bfloat16(), args=warming)
    with pytest.warns(UserWarning, match=r"Optimizer step 2 changed .* learning rate 5e-07"):
        trainer.train()
    assert len(shares(trainer)) == 2


class Rounding(torch.optim.SGD):
    """Stands for torchao's optimizer with stochastic rounding: no weight moves in these steps."""

    bf16_stochastic_round = True


def watched(optimizer: Any, metrics: dict[str, list[float]], *, skipped: bool = False) -> list[str]:
    """A step of the optimizer, as the Trainer makes it. Returns the warnings."""
    told: list[str] = []
    callback = WeightChange(metrics, StepRanks(), told.append)
    wrapped = SimpleNamespace(optimizer=optimizer, param_groups=optimizer.param_groups, step_was_skipped=skipped)
    callback.on_pre_optimizer_step(None, None, None, optimizer=wrapped)
    optimizer.step()
    callback.on_optimizer_step(None, SimpleNamespace(global_step=0), None, optimizer=wrapped)
    return told


def with_gradient(values: list[float], gradient: list[float], dtype: torch.dtype = torch.bfloat16) -> nn.Parameter:
    parameter = nn.Parameter(torch.tensor(values, dtype=dtype))
    parameter.grad = torch.tensor(gradient, dtype=dtype)
    return parameter


def test_only_weights_with_a_gradient_count():
    """1 - 2**-7 is a bfloat16, 1 - 2**-10 rounds to 1, and the last weight has no gradient."""
    parameter, metrics = with_gradient([1, 1, 1, 1], [2**-7, 2**-10, 2**-10, 0]), {METRIC: []}
    (told,) = watched(torch.optim.SGD([parameter], lr=1.0), metrics)
    assert metrics[METRIC] == [pytest.approx(1 / 3)]
    assert "changed 33.33% of the weights" in told


@pytest.mark.parametrize(
    ("parameter", "kind", "skipped", "share"),
    [
        (with_gradient([1, 1], [2**-10, 2**-10]), Rounding, False, [0.0]),
        (with_gradient([1, 1], [2**-30, 2**-30], torch.float32), torch.optim.SGD, False, [0.0]),
        (with_gradient([1, 1], [2**-10, 2**-10]), torch.optim.SGD, True, []),
        (with_gradient([1, 1], [0, 0]), torch.optim.SGD, False, []),
        (nn.Parameter(torch.ones(2, dtype=torch.bfloat16)), torch.optim.SGD, False, []),
        (with_gradient([], []), torch.optim.SGD, False, []),
    ],
    ids=["rounds at random", "float32", "skipped by a gradient scaler", "zero gradient", "no gradient", "empty shard"],
)
def test_what_is_not_warned_about(parameter, kind, skipped, share):
    metrics: dict[str, list[float]] = {METRIC: []}
    assert not watched(kind([parameter], lr=1.0), metrics, skipped=skipped)
    assert metrics[METRIC] == share


def on_shards() -> tuple[list[float], list[str]]:
    """A step on a parameter whose three rows two ranks share: the second holds one."""
    PartialState(cpu=True)
    module = nn.Linear(1, 3, bias=False)
    nn.init.ones_(module.weight)
    module.to(torch.bfloat16)
    fully_shard(module, mesh=init_device_mesh("cpu", (2,)))
    (module(torch.ones(1, 1, dtype=torch.bfloat16)) @ torch.tensor([[2**-7], [2**-10], [2**-10]]).bfloat16()).backward()
    metrics: dict[str, list[float]] = {METRIC: []}
    told: list[str] = []
    callback = WeightChange(metrics, TrlRanks(Accelerator(cpu=True)), told.append)
    optimizer = torch.optim.SGD(module.parameters(), lr=2.0)  # gradients are means over ranks
    callback.on_pre_optimizer_step(None, None, None, optimizer=optimizer)
    optimizer.step()
    callback.on_optimizer_step(None, SimpleNamespace(global_step=0), None, optimizer=optimizer)
    return metrics[METRIC], told


@pytest.mark.dist
def test_ranks_with_shards_decide_together(tmp_path: Path):
    first, second = run_ranks(on_shards, 2, tmp_path)
    assert first == second
    assert first[0] == [pytest.approx(1 / 3)]
    assert len(first[1]) == 1
