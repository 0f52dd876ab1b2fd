"""Reads the section `gar` of verl's configuration, and rejects settings that GAR cannot run with, with the reason.

Configurations are plain nested dicts (`OmegaConf.to_container`), so this module needs no verl, nor do its tests.
"""

from collections.abc import Mapping
from typing import Any

from gar.config import RunConfig, make_config
from gar.errors import ConfigError
from gar.methods import Engine, Method
from gar.step import Shaping, plan_shaping

TRAINER = "gar_sync"
"""Value of verl's `trainer.v1.trainer_mode`."""

REWARD_MANAGER = "gar"
"""Value of verl's `reward.reward_manager.name`."""

AGENT_LOOP_MANAGER = "gar.integrations.verl.agents.GarAgentLoopManager"
"""Value of verl's `actor_rollout_ref.rollout.agent.agent_loop_manager_class`, which `gar_sync` sets itself."""

SECTIONS = ("method", "variant", "plugins", "verify", "signal", "reward", "watchdog")
"""Settings of a run that mean something here; verl's own flags decide the rest."""

VERL = Engine(
    name="verl",
    can=frozenset({"anchor"}),
    estimators={
        "group": ("grpo",),
        "reinforce-plus-plus": ("reinforce_plus_plus",),
        "reinforce-plus-plus-baseline": ("reinforce_plus_plus_baseline",),
    },
    ignores=("signal.precision", "signal.memory_bytes", "signal.max_batch_tokens"),
)
"""verl brings vectors of responses and anchors alone, and computes advantages itself."""


def read_settings(verl: Mapping[str, Any]) -> RunConfig:
    """The settings in the section `gar`.

    Args:
        verl: verl's whole configuration.

    Returns:
        A run's configuration in which only `SECTIONS` count.

    Raises:
        ConfigError: The section is missing, or a key or a value in it is wrong.
    """
    values = verl.get("gar")
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"expected a section 'gar' in verl's configuration, for example +gar.method=gar-grpo, got {values!r}"
        )
    for key in values:
        if key in RunConfig.model_fields and key not in SECTIONS:
            raise ConfigError(
                f"'gar.{key}' means nothing under verl, whose own flags decide it. Known here: {', '.join(SECTIONS)}."
            )
    return make_config(values, source="gar")


def read_shaping(config: RunConfig, *, quiet: bool = False) -> Shaping:
    """The method with the settings in force. Advantages are verl's own.

    Raises:
        ConfigError: The method does not fit, or a setting that another one switches off.
    """
    sections = {name: getattr(config, name) for name in SECTIONS if name not in ("method", "variant", "plugins")}
    return plan_shaping(VERL, config.method, sections, quiet=quiet)


def check_supported(verl: Mapping[str, Any], shaping: Shaping) -> None:
    """Reject a job whose rewards or losses would not be what the method defines.

    Args:
        verl: verl's whole configuration.
        shaping: From `read_shaping`.

    Raises:
        ConfigError: Names the flag, its value, and why.
    """
    _check_method(verl, shaping.method)
    for flag, expected, reason in _REQUIRED:
        value = _value(verl, flag)
        if value not in expected:
            raise ConfigError(f"{flag} is {value}, expected {' or '.join(map(str, expected))}: {reason}")
    num_responses = _value(verl, "actor_rollout_ref.rollout.n")
    if num_responses < 2:
        raise ConfigError(
            f"actor_rollout_ref.rollout.n is {num_responses}, expected at least 2: a response is compared with the "
            "others of its group"
        )


_REQUIRED: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    (
        "actor_rollout_ref.actor.strategy",
        ("fsdp", "fsdp2", "megatron"),
        "GAR reads hidden states in verl's FSDP and Megatron engines",
    ),
    (
        "actor_rollout_ref.actor.megatron.dynamic_context_parallel",
        (None, False),
        "it shares out sequences anew in each pass, in a way that GAR does not follow",
    ),
    (
        "actor_rollout_ref.model.use_fused_kernels",
        (None, False),
        "fused kernels never call the LM head, where GAR reads hidden states and logits",
    ),
    (
        "algorithm.filter_groups.enable",
        (None, False),
        "it drops groups whose outcome rewards are all equal before GAR sees them, and those all-correct groups are "
        "the ones that GAR gives a signal",
    ),
    (
        "algorithm.rollout_correction.bypass_mode",
        (None, False),
        "it leaves out the pass for old log-probabilities, in which GAR reads hidden states",
    ),
    (
        "reward.reward_manager.name",
        (REWARD_MANAGER,),
        "GAR's reward manager says which responses are verified and well formatted",
    ),
    (
        "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
        (None, AGENT_LOOP_MANAGER),
        "it tells the reward manager which tokens a tool wrote, so that they are not graded. Leave it out",
    ),
    (
        "reward.custom_reward_function.path",
        (None,),
        "GAR's reward manager would not call it. Name your grader with gar.verify.verifier",
    ),
    ("reward.reward_model.enable", (None, False), "GAR's rewards come from a verifier, not from a reward model"),
    (
        "actor_rollout_ref.model.mtp.enable",
        (None, False),
        "with multi-token prediction the head is called more than once in a pass, and GAR could not tell which call is "
        "the policy's",
    ),
    ("actor_rollout_ref.actor.qat.enable", (None, False), "quantized weights are not those of the closed form"),
    ("actor_rollout_ref.actor.megatron.qat.enable", (None, False), "they are not those of the closed form"),
)
"""Flags, the values that GAR runs with, and why."""


def _check_method(verl: Mapping[str, Any], method: Method) -> None:
    (expected,) = VERL.estimators[method.estimator]
    flag = "algorithm.adv_estimator"
    value = _value(verl, flag)
    if value != expected:
        raise ConfigError(f"{flag} is {value}, but {method.name} goes with {expected}. Change the flag or gar.method.")


def _value(verl: Mapping[str, Any], flag: str) -> Any:
    """What stands under a dotted name; None where nothing does."""
    value: Any = verl
    for part in flag.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
