"""A method's own fields of TRL's configuration, from the command line and from Python: one rule."""

from pathlib import Path
from typing import Any

import pytest
from trl import GRPOConfig

from gar.config import make_config
from gar.errors import ConfigError
from gar.integrations.trl.arguments import DEFAULTS, grpo_arguments, with_method
from gar.integrations.trl.flags import TRL, trl_flags
from gar.methods import METHODS
from gar.step import plan_shaping
from tests.support.errors import raises

CPU = {"use_cpu": True, "bf16": False}
UPDATES = {"maspo": {"num_iterations": 2}}
WITH_FIELDS = [name for name, method in METHODS.items() if method.trl]
OTHERWISE = [
    ("dr-grpo", "loss_type", "grpo"),
    ("dr-grpo", "scale_rewards", "batch"),
    ("dapo", "epsilon_high", 0.3),
    ("maspo", "loss_type", "cispo"),
    ("maspo", "epsilon", 0.1),
]


def from_command_line(folder: Path, method: str, **trl: Any) -> GRPOConfig:
    return grpo_arguments(make_config({"method": method, "trl": {**CPU, **UPDATES.get(method, {}), **trl}}), folder)


def from_python(folder: Path, method: str, **trl: Any) -> GRPOConfig:
    args = GRPOConfig(output_dir=str(folder), **CPU, **UPDATES.get(method, {}), **trl)
    args = with_method(args, METHODS[method])
    plan_shaping(TRL, method, flags=trl_flags(args))  # as GARTrainer does
    return args


WAYS = pytest.mark.parametrize("make", [from_command_line, from_python])


@WAYS
@pytest.mark.parametrize("method", WITH_FIELDS)
def test_fields_of_a_method_hold(tmp_path: Path, make, method: str):
    fields = METHODS[method].trl
    for args in (make(tmp_path, method, max_steps=2), make(tmp_path, method, max_steps=2, **fields)):
        assert {name: getattr(args, name) for name in fields} == dict(fields)
    assert make(tmp_path, "dr-grpo", scale_rewards=False).scale_rewards == "none"  # the other spelling


@WAYS
@pytest.mark.parametrize(("method", "name", "value"), OTHERWISE)
def test_a_field_that_the_user_sets_otherwise_is_an_error(tmp_path: Path, make, method: str, name: str, value: Any):
    with raises(ConfigError, f"trl.{name}"):
        make(tmp_path, method, **{name: value})


def test_on_the_command_line_trls_own_default_is_a_choice_too(tmp_path: Path):
    with raises(ConfigError, "trl.loss_type"):
        from_command_line(tmp_path, "dr-grpo", loss_type="dapo")
    assert from_python(tmp_path, "dr-grpo", loss_type="dapo").loss_type == "dr_grpo"


def test_the_embedded_models_have_room_for_prompt_and_response(tmp_path: Path):
    for changes, expected in (
        ({}, 64),
        ({"trl": {**CPU, "max_completion_length": 48}}, 48),
        ({"model": {"path": "Qwen/Qwen3-0.6B"}}, GRPOConfig.max_completion_length),
    ):
        assert grpo_arguments(make_config({"trl": CPU} | changes), tmp_path).max_completion_length == expected


def test_fp16_needs_an_accelerator(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    with raises(ConfigError, "trl.fp16"):
        from_command_line(tmp_path, "grpo", fp16=True)


def test_methods_without_fields_keep_the_losses_default_of_their_way(tmp_path: Path):
    assert from_command_line(tmp_path, "gar-grpo").loss_type == DEFAULTS["loss_type"] == "grpo"
    assert from_python(tmp_path, "gar-grpo").loss_type == GRPOConfig(output_dir=str(tmp_path), **CPU).loss_type
    assert from_command_line(tmp_path, "gar-grpo", loss_type="bnpo").loss_type == "bnpo"


def test_the_users_object_stays_as_it_is(tmp_path: Path):
    args = GRPOConfig(output_dir=str(tmp_path), **CPU)
    before = dict(vars(args))
    assert with_method(args, METHODS["maspo"]) is not args
    assert vars(args) == before
    assert with_method(args, METHODS["gar-grpo"]) is args
