"""What is rejected before anything runs: another verl, and configurations that GAR cannot run with."""

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import pytest

from gar.errors import ConfigError
from gar.integrations.verl import settings
from gar.integrations.verl.settings import check_version, read_settings, read_shaping
from tests.support.errors import raises


def verl_config(**flags: Any) -> dict[str, Any]:
    """A configuration that GAR runs with; `flags` go over it, dots written as two underscores."""
    config: dict[str, Any] = {}
    chosen = {
        "gar__method": "gar-grpo",
        "algorithm__adv_estimator": "grpo",
        "algorithm__filter_groups__enable": False,
        "actor_rollout_ref__actor__strategy": "fsdp2",
        "actor_rollout_ref__actor__ppo_epochs": 1,
        "actor_rollout_ref__actor__ppo_mini_batch_size": 64,
        "actor_rollout_ref__actor__policy_loss__loss_mode": "vanilla",
        "actor_rollout_ref__rollout__n": 8,
        "data__train_batch_size": 128,
        "reward__reward_manager__name": "gar",
    } | flags
    for name, value in chosen.items():
        *path, last = name.split("__")
        section = config
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return config


def check(config: Mapping[str, Any]) -> None:
    read_shaping(read_settings(config), config)


def test_read_shaping_takes():
    for flags in (
        {},
        {"actor_rollout_ref__actor__strategy": "fsdp"},
        {"actor_rollout_ref__actor__strategy": "megatron"},
        {"gar__method": "gar-reinforce-plus-plus", "algorithm__adv_estimator": "reinforce_plus_plus"},
        {"gar__method": "reinforce-plus-plus-baseline", "algorithm__adv_estimator": "reinforce_plus_plus_baseline"},
    ):
        check(verl_config(**flags))
    assert read_shaping(read_settings(verl_config(gar__method="hidden-cosine"))).signal.kind == "hidden"


def test_read_shaping_names_the_setting_that_is_wrong():
    for flags, name in (
        ({"gar__reward": {"bonus_wait": 1}}, "unknown-key"),
        ({"gar__trl": {}}, "no-effect"),
        ({"gar__advantage": {"ddof": 0}}, "no-effect"),
        ({"gar__method": "g2rl"}, "method"),
        ({"gar__method": "gar-reinforce-plus-plus"}, "algorithm.adv_estimator"),
        *(
            ({name.replace(".", "__"): value}, name)
            for name, value in (
                ("actor_rollout_ref.actor.strategy", "veomni"),
                ("actor_rollout_ref.model.use_fused_kernels", True),
                ("algorithm.filter_groups.enable", True),
                ("algorithm.rollout_correction.bypass_mode", True),
                ("reward.reward_manager.name", "naive"),
                ("reward.custom_reward_function.path", "mine.py"),
                ("reward.reward_model.enable", True),
                ("actor_rollout_ref.model.mtp.enable", True),
                ("actor_rollout_ref.actor.qat.enable", True),
                ("actor_rollout_ref.actor.megatron.dynamic_context_parallel", True),
                ("actor_rollout_ref.rollout.n", 1),
            )
        ),
    ):
        with raises(ConfigError, name):
            check(verl_config(**flags))
    with raises(ConfigError, "no-section"):
        check(verl_config() | {"gar": None})


def test_settings_that_nothing_reads_are_named():
    config = read_settings(verl_config(gar__method="grpo", gar__reward={"clip": False}, gar__signal={"max_tokens": 99}))
    with pytest.warns(UserWarning, match=r"grpo under verl: signal.max_tokens, reward.clip\."):
        read_shaping(config)
    read_shaping(config, quiet=True)  # any warning is an error here


def test_check_version_takes_one_alone(monkeypatch):
    installed: list[str] = []

    def look_up(name: str) -> str:
        if not installed:
            raise metadata.PackageNotFoundError(name)
        return installed[0]

    monkeypatch.setattr(settings, "version", look_up)
    for found in ([], ["0.9.0"], ["0.9.2"], ["0.9.1.dev0"]):
        installed[:] = found
        with raises(ConfigError, "verl-version"):
            check_version()
    installed[:] = ["0.9.1"]
    check_version()
