"""What is rejected before anything runs: a different verl, and configurations that GAR cannot run with."""

from collections.abc import Mapping
from importlib import metadata
from typing import Any
from unittest.mock import Mock

import pytest

from gar.config import merge
from gar.errors import ConfigError
from gar.integrations.verl import settings
from gar.integrations.verl.settings import check_version, read_settings, read_shaping, template_arguments
from tests.support.errors import raises

GOOD = {
    "gar.method": "gar-grpo",
    "algorithm.adv_estimator": "grpo",
    "algorithm.filter_groups.enable": False,
    "actor_rollout_ref.actor.strategy": "fsdp2",
    "actor_rollout_ref.actor.ppo_epochs": 1,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
    "actor_rollout_ref.actor.policy_loss.loss_mode": "vanilla",
    "actor_rollout_ref.rollout.n": 8,
    "data.train_batch_size": 128,
    "reward.reward_manager.name": "gar",
}
"""A configuration that GAR runs with."""


def verl_config(**flags: Any) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name, value in (GOOD | flags).items():
        for part in reversed(name.split(".")):
            value = {part: value}
        config = merge(config, value)
    return config


def check(config: Mapping[str, Any]) -> None:
    read_shaping(read_settings(config), config)


def test_read_shaping_takes():
    for flags in (
        {"actor_rollout_ref.actor.strategy": "megatron"},
        {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": "gar_signal"},
        {"gar.method": "gar-reinforce-plus-plus", "algorithm.adv_estimator": "reinforce_plus_plus"},
        {"gar.method": "reinforce-plus-plus-baseline", "algorithm.adv_estimator": "reinforce_plus_plus_baseline"},
    ):
        check(verl_config(**flags))
    assert read_shaping(read_settings(verl_config(**{"gar.method": "hidden-cosine"}))).signal.kind == "hidden"


def test_template_arguments_are_those_of_verls_prompts():
    assert template_arguments(verl_config()) == {}
    config = verl_config(**{"data.apply_chat_template_kwargs": {"enable_thinking": False}})
    assert template_arguments(config) == {"enable_thinking": False}


def test_read_shaping_names_the_setting_that_is_wrong():
    for flags, name in (
        ({"gar.reward": {"bonus_wait": 1}}, "unknown-key"),
        ({"gar.trl": {}}, "no-effect"),
        ({"gar.advantage": {"ddof": 0}}, "no-effect"),
        ({"gar.method": "g2rl"}, "method"),
        ({"gar.method": "gar-reinforce-plus-plus"}, "algorithm.adv_estimator"),
        ({"algorithm.filter_groups.enable": True}, "algorithm.filter_groups.metric"),
        (
            {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": "acc"},
            "algorithm.filter_groups.metric",
        ),
        ({"actor_rollout_ref.actor.qat.enable": True}, "actor_rollout_ref.actor.qat.enable"),
        ({"actor_rollout_ref.rollout.n": 1}, "actor_rollout_ref.rollout.n"),
        (
            {"actor_rollout_ref.actor.strategy": "megatron", "actor_rollout_ref.model.use_remove_padding": False},
            "actor_rollout_ref.model.use_remove_padding",
        ),
    ):
        with raises(ConfigError, name):
            check(verl_config(**flags))
    with raises(ConfigError, "no-section"):
        check(verl_config() | {"gar": None})


def test_settings_that_nothing_reads_are_named():
    changes = {"gar.method": "grpo", "gar.reward": {"clip": False}, "gar.signal": {"max_tokens": 99}}
    config = read_settings(verl_config(**changes))
    with pytest.warns(UserWarning, match=r"grpo under verl: signal.max_tokens, reward.clip\."):
        read_shaping(config)
    read_shaping(config, quiet=True)  # any warning is an error here


def test_check_version_takes_one_alone(monkeypatch):
    for outcome in ([metadata.PackageNotFoundError("verl")], ["0.9.0"], ["0.9.2"], ["0.9.1.dev0"]):
        monkeypatch.setattr(settings, "version", Mock(side_effect=outcome))
        with raises(ConfigError, "verl-version"):
            check_version()
    monkeypatch.setattr(settings, "version", lambda name: "0.9.1")
    check_version()
