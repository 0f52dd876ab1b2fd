"""What is rejected before anything runs: another verl, and configurations that GAR cannot run with."""

import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import pytest

from gar.errors import ConfigError
from gar.integrations.verl import settings
from gar.integrations.verl.settings import check_version, read_settings, read_shaping


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
        {"gar__method": "grpo"},
        {"gar__method": "gar-reinforce-plus-plus", "algorithm__adv_estimator": "reinforce_plus_plus"},
        {"gar__method": "reinforce-plus-plus-baseline", "algorithm__adv_estimator": "reinforce_plus_plus_baseline"},
    ):
        check(verl_config(**flags))


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"gar": None}, r"expected a section 'gar' in verl's configuration, for example \+gar\.method=gar-grpo"),
        ({"gar__reward": {"bonus_wait": 1}}, "gar: unknown key 'reward.bonus_wait'. Did you mean 'bonus_weight'"),
        ({"gar__trl": {}}, "'gar.trl' has no effect under verl"),
        ({"gar__advantage": {"ddof": 0}}, "'gar.advantage' has no effect under verl, whose own flags decide it"),
        ({"gar__method": "g2rl"}, "method is g2rl, expected one that verl runs .*: the method compares the"),
        ({"algorithm__adv_estimator": "gae"}, "adv_estimator is gae, expected grpo: GAR runs group"),
        ({"gar__method": "gar-reinforce-plus-plus"}, "is grpo, expected reinforce_plus_plus: GAR runs reinforce"),
        ({"gar__method": "maspo"}, "method is maspo, expected .*: the method weighs single tokens"),
        ({"actor_rollout_ref__actor__strategy": "veomni"}, "strategy is veomni, expected fsdp, fsdp2 or megatron"),
        ({"actor_rollout_ref__model__use_fused_kernels": True}, "they never call the LM head"),
        ({"algorithm__filter_groups__enable": True}, "GAR gives all-correct groups a signal"),
        ({"algorithm__rollout_correction__bypass_mode": True}, "leaves out the pass in which GAR reads hidden states"),
        ({"reward__reward_manager__name": "naive"}, "reward_manager.name is naive, expected gar"),
        ({"reward__custom_reward_function__path": "mine.py"}, "Name your grader in gar.verify.verifier"),
        ({"reward__reward_model__enable": True}, "come from a verifier"),
        ({"actor_rollout_ref__model__mtp__enable": True}, "it calls the LM head more than once in a pass"),
        ({"actor_rollout_ref__actor__qat__enable": True}, "quantized weights are not those of the closed form"),
        (
            {"actor_rollout_ref__actor__megatron__dynamic_context_parallel": True},
            "dynamic_context_parallel is True, expected False: it shares out sequences anew",
        ),
        ({"actor_rollout_ref__rollout__n": 1}, "rollout.n is 1, expected >= 2"),
    ],
    ids=str,
)  # fmt: skip
def test_read_shaping_raises(flags, text):
    config = verl_config(**flags) if flags != {"gar": None} else verl_config() | flags
    with pytest.raises(ConfigError, match=text):
        check(config)


def test_read_settings_takes_the_methods_own_signal():
    assert read_shaping(read_settings(verl_config(gar__method="hidden-cosine"))).signal.kind == "hidden"
    assert read_settings(verl_config(gar__signal={"max_tokens": 5})).signal.max_tokens == 5


def test_settings_that_nothing_reads_are_named():
    config = read_settings(verl_config(gar__method="grpo", gar__reward={"clip": False}, gar__signal={"max_tokens": 99}))
    with pytest.warns(UserWarning, match=r"grpo under verl: signal.max_tokens, reward.clip\."):
        read_shaping(config)
    read_shaping(config, quiet=True)  # any warning is an error here


@pytest.mark.parametrize("installed", [None, "0.9.0", "0.9.2", "0.9.1.dev0"])
def test_check_version_takes_one_alone(monkeypatch, installed):
    monkeypatch.setattr(settings, "version", lambda name: "0.9.1")
    check_version()

    def look_up(name: str) -> str:
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(settings, "version", look_up)
    with pytest.raises(ConfigError, match=r"pip install verl==0\.9\.1"):
        check_version()


def test_importing_the_package_needs_no_verl_and_registers_nothing():
    """In a process of its own, where verl cannot be imported whether or not it is installed."""
    code = (
        "import sys; sys.modules['verl'] = None\n"
        "import gar.integrations.verl.data, gar.integrations.verl.settings, gar.integrations.verl.exchange\n"
        "assert not [name for name in sys.modules if name.startswith(('ray', 'tensordict', 'transfer_queue'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
