"""Importing this registers GAR with verl.

verl imports it through two settings: `VERL_USE_EXTERNAL_MODULES=gar.integrations.verl.register` for the driver and the
reward workers, `actor_rollout_ref.model.external_lib=gar.integrations.verl.register` for the workers that train.
"""

# pyright: reportMissingImports=false
# ruff: noqa: E402 - the version is checked before anything of verl is imported
from gar.integrations.verl.settings import REWARD_MANAGER, TRAINER, check_version

check_version()

from verl.experimental.reward_loop.reward_manager import register as register_reward_manager
from verl.trainer.ppo.v1 import register_trainer
from verl.workers import engine

from gar.integrations.verl.engine import GarEngine
from gar.integrations.verl.reward import GarRewardManager
from gar.integrations.verl.trainer import GarTrainerSync

# A vendor's engine takes precedence over verl's own. The CPU, for which verl has no engine, is for tests.
for device in ({"device": "cuda", "vendor": "nvidia"}, {"device": "cpu"}):
    engine.EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], **device)(GarEngine)
if engine.MegatronEngineWithLMHead is not None:  # Megatron is installed
    from gar.integrations.verl.megatron_engine import GarMegatronEngine

    for device in ({"device": "cuda", "vendor": "nvidia"}, {"device": "cpu"}):
        engine.EngineRegistry.register(model_type="language_model", backend="megatron", **device)(GarMegatronEngine)
register_trainer(TRAINER)(GarTrainerSync)
register_reward_manager(REWARD_MANAGER)(GarRewardManager)
