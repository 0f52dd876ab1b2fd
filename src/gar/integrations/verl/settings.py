"""The section `gar` of verl's configuration, verl's own flags, and the rules that they must keep.

Configurations are plain nested dicts (`OmegaConf.to_container`), so this module does not import verl.
"""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gar.config import RunConfig
from gar.errors import ConfigError
from gar.methods import Engine
from gar.methods.rules import ALL_CORRECT, ESTIMATOR_FLAG, Flags
from gar.records.dotted import leaves
from gar.rules import OFF, Rule, bounds, setting
from gar.step import Shaping, plan_shaping

SUPPORTED = "0.9.1"
"""The only supported version of verl."""

TRAINER = "gar_sync"
"""Value of verl's `trainer.v1.trainer_mode`."""

REWARD_MANAGER = "gar"
"""Value of verl's `reward.reward_manager.name`."""

AGENT_LOOP_MANAGER = "gar.integrations.verl.agents.GarAgentLoopManager"
"""verl's agent-loop manager, which the trainer `gar_sync` sets itself."""

FILTER_METRIC = "gar_signal"
"""What verl's group filter compares, from GAR's reward manager."""

_MEGATRON = (setting("actor_rollout_ref.actor.strategy", "megatron"),)
_FILTERS = (setting("algorithm.filter_groups.enable", True),)
_QUANTIZED = "the closed form needs the weights before quantization"
_SAYS_TOOLS = "it marks the tokens of tools, so that they are not graded"

_RULES = (
    Rule("algorithm.adv_estimator", ESTIMATOR_FLAG, "GAR runs {estimator}"),
    Rule("actor_rollout_ref.actor.strategy", ("fsdp", "fsdp2", "megatron"), "GAR reads hidden states in these engines"),
    Rule("actor_rollout_ref.model.use_remove_padding", (None, True), "GAR reads packed sequences there", _MEGATRON),
    Rule("actor_rollout_ref.actor.megatron.dynamic_context_parallel", OFF, "it splits sequences anew in each pass"),
    Rule("actor_rollout_ref.model.use_fused_kernels", OFF, "they never call the LM head, where GAR reads its input"),
    Rule("actor_rollout_ref.model.mtp.enable", OFF, "it calls the LM head more than once in a pass"),
    Rule("actor_rollout_ref.actor.qat.enable actor_rollout_ref.actor.megatron.qat.enable", OFF, _QUANTIZED),
    Rule("algorithm.filter_groups.metric", (FILTER_METRIC,), ALL_CORRECT, _FILTERS),
    Rule("algorithm.rollout_correction.bypass_mode", OFF, "it leaves out the pass in which GAR reads hidden states"),
    Rule("reward.reward_manager.name", (REWARD_MANAGER,), "it marks which responses are verified and well formatted"),
    Rule("actor_rollout_ref.rollout.agent.agent_loop_manager_class", (None, AGENT_LOOP_MANAGER), _SAYS_TOOLS),
    Rule("reward.custom_reward_function.path", (None,), "nothing would call it. Use gar.verify.verifier"),
    Rule("reward.reward_model.enable", OFF, "GAR's rewards come from a verifier"),
    Rule("actor_rollout_ref.rollout.n", bounds(">= 2"), "a response is compared with the others of its group"),
)

VERL = Engine(
    name="verl",
    can=frozenset({"anchor", "shuffled-anchor"}),
    estimators={
        "group": ("grpo",),
        "reinforce-plus-plus": ("reinforce_plus_plus",),
        "reinforce-plus-plus-baseline": ("reinforce_plus_plus_baseline",),
    },
    sections=("verify", "signal", "reward", "watchdog"),
    rules=_RULES,
)
"""verl provides vectors of responses and expert solutions alone, and computes advantages itself."""


def read_settings(verl: Mapping[str, Any]) -> RunConfig:
    """The settings in the section `gar` of verl's whole configuration."""
    values = verl.get("gar")
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"expected a section 'gar' in verl's configuration, for example +gar.method=gar-grpo, got {values!r}",
            code="no-section",
        )
    return VERL.read(values, "gar")


def read_shaping(config: RunConfig, verl: Mapping[str, Any] | None = None, *, quiet: bool = False) -> Shaping:
    """The method with the settings in force (`read_settings`), after all rules. Advantages are verl's own.

    `verl` is verl's whole configuration, None in a reward worker. `quiet` suppresses warnings of unused settings.
    """
    sections = {name: getattr(config, name) for name in VERL.sections}
    flags = None if verl is None else Flags(values=dict(leaves(verl)))
    return plan_shaping(VERL, config.method, sections, flags=flags, quiet=quiet)


def template_arguments(verl: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the chat template, by which verl renders its prompts. Shuffled expert solutions follow one."""
    return verl["data"].get("apply_chat_template_kwargs") or {}


def check_version() -> None:
    """Raise an error before importing a different version of verl, in which the overridden methods may differ."""
    try:
        installed = version("verl")
    except PackageNotFoundError:
        installed = "none"
    if installed != SUPPORTED:
        raise ConfigError(
            f"gar.integrations.verl is written for verl=={SUPPORTED} and found {installed}. Run pip install "
            f"verl=={SUPPORTED} in a separate environment (it needs an older transformers than gar train).",
            code="verl-version",
        )
