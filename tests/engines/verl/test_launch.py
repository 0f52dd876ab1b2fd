"""The launch script and what importing `register` does, against verl's own configuration and registries."""

import os
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.config import validate_config
from verl.workers.engine import EngineRegistry

from gar.errors import ModelError
from gar.integrations.verl.engine import GarEngine
from gar.integrations.verl.reward import GarRewardManager
from gar.integrations.verl.settings import VERL, read_settings, read_shaping
from gar.integrations.verl.trainer import GarTrainerSync
from gar.records.dotted import leaves
from tests.engines.verl.workers import save_model
from tests.support.errors import raises
from tests.support.processes import completed
from tests.support.rules import named_in

SCRIPT = Path(__file__).parents[3] / "scripts" / "verl_qwen3.sh"

pytestmark = pytest.mark.filterwarnings("ignore:::(?!gar).*")  # of verl and what it stands on


@pytest.mark.parametrize("size", ["4B", "8B"])
def test_launch_script_is_a_job_that_verl_and_gar_take(size):
    command = [SCRIPT, "train.parquet", "val.parquet", "+gar.verify.num_workers=4"]
    printed = completed(command, env={**os.environ, "PYTHON": "echo", "SIZE": size}, check=True)
    module, *flags = printed.stdout.split()[1:]
    assert module == "verl.trainer.main_ppo"
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=flags)
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    assert config.actor_rollout_ref.model.path == f"Qwen/Qwen3-{size}-Base"
    plain = OmegaConf.to_container(config, resolve=True)
    settings = read_settings(plain)
    read_shaping(settings, plain)
    assert (settings.signal.max_tokens, settings.verify.num_workers) == (768, 4)
    assert settings.signal.expert_keep_fraction == 0.7


def test_the_flags_of_the_rules_are_verls():
    """A rule about a flag that is not there never fires."""
    known = set()
    for overrides in ([], ["model_engine=megatron"]):
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=overrides)
        known |= {name for name, _ in leaves(OmegaConf.to_container(config, resolve=True))}
    named = {name for rule in VERL.rules for name in (*rule.names.split(), *named_in(rule))}
    assert named - known == {"actor_rollout_ref.rollout.agent.agent_loop_manager_class"}  # verl asks for it by `get`


def test_rotary_frequencies_that_change_within_the_rows_are_refused(tmp_path):
    """verl packs rows into one pass. Up to 63 tokens this model has one set of frequencies."""
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    model = save_model(tmp_path, tied=True, max_position_embeddings=64, rope_parameters=rope)
    flags = [
        f"actor_rollout_ref.model.path={model}",
        "reward.reward_manager.name=gar",
        "+gar.method=gar-grpo",
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.rollout.n=2",
        "data.max_prompt_length=32",
    ]

    def trainer(max_response_length: int) -> GarTrainerSync:
        with initialize_config_module("verl.trainer.config", version_base=None):
            return GarTrainerSync(compose("ppo_trainer", [*flags, f"data.max_response_length={max_response_length}"]))

    trainer(31)._init_tokenizer()
    with raises(ModelError, "changing-rope", "63", "64"):
        trainer(32)._init_tokenizer()


def test_register_puts_our_classes_before_verls(monkeypatch):
    for device, vendor in (("cuda", "nvidia"), ("cpu", "cpu")):  # verl's own engine keeps the others
        monkeypatch.setenv("VERL_ENGINE_DEVICE", device)
        monkeypatch.setenv("VERL_ENGINE_VENDOR", vendor)
        for backend in ("fsdp", "fsdp2"):
            assert EngineRegistry.get_engine_cls("language_model", backend) is GarEngine
    monkeypatch.setenv("VERL_ENGINE_DEVICE", "cuda")
    monkeypatch.setenv("VERL_ENGINE_VENDOR", "nvidia")
    assert not issubclass(EngineRegistry.get_engine_cls("value_model", "fsdp2"), GarEngine)
    assert get_trainer_cls("gar_sync") is GarTrainerSync
    assert get_reward_manager_cls("gar") is GarRewardManager
