"""The settings in gar.yaml, slime's own flags, and the rules that they must keep."""

from collections.abc import Mapping
from typing import Any

from gar.config import RunConfig
from gar.errors import ConfigError
from gar.methods import Engine
from gar.methods.rules import ALL_CORRECT, ESTIMATOR_FLAG, WHITENED, Flags
from gar.rules import OFF, UNSET, Condition, Facts, Rule, setting
from gar.step import Shaping, plan_shaping

SLIME_HOOKS = {
    "custom_convert_samples_to_train_data_path": "gar.integrations.slime.convert_samples",
    "custom_megatron_init_path": "gar.integrations.slime.on_megatron_init",
    "rollout_data_postprocess_path": "gar.integrations.slime.postprocess",
}
"""slime's arguments and their required values."""

LOG_PROB_HOOK = {"custom_megatron_before_log_prob_hook_path": "gar.integrations.slime.before_log_prob"}
"""One more with `capture: logprob`."""

_LOG_PROB = (setting("gar.capture", "logprob"),)
_PARTIAL = (setting("--partial-rollout", True),)
_NO_FILTER = Condition[Facts](
    "any but check_reward_nonzero_std",
    lambda facts, name: "check_reward_nonzero_std" not in (facts.settings.get(name) or ""),
)


def slime_flag(name: str) -> str:
    """The flag of one of slime's arguments."""
    return "--" + name.replace("_", "-")


_RULES = (
    *(Rule(slime_flag(name), (hook,), "GAR needs all of its hooks") for name, hook in SLIME_HOOKS.items()),
    *(Rule(slime_flag(name), (hook,), "gar.capture needs it", _LOG_PROB) for name, hook in LOG_PROB_HOOK.items()),
    Rule("gar.capture", ("own", "logprob")),
    Rule("--advantage-estimator", ESTIMATOR_FLAG, "GAR runs {estimator}, and no critic"),
    Rule("advantage.ddof", UNSET, "slime whitens over the batch by itself", (WHITENED,)),
    Rule("--compute-advantages-and-returns", (True,), "without advantages no reward has an effect"),
    Rule("--custom-reward-post-process-path", (None,), "GAR sets the rewards, and one would overwrite the other"),
    Rule("--dynamic-sampling-filter-path", _NO_FILTER, f"{ALL_CORRECT}. Take gar.integrations.slime.keeps_signal"),
    Rule("--keep-old-actor", (False,), "the vectors would be an older policy's. Set gar.capture to own", _LOG_PROB),
    Rule("--qkv-format", (None, "thd"), "GAR packs sequences"),
    Rule("--mask-offpolicy-in-partial-rollout", OFF, "GAR takes masked text for a tool's, and grades none", _PARTIAL),
)

SLIME = Engine(
    name="slime",
    can=frozenset({"anchor", "shuffled-anchor"}),
    estimators={
        "group": ("grpo", "gspo", "cispo"),
        "reinforce-plus-plus": ("reinforce_plus_plus",),
        "reinforce-plus-plus-baseline": ("reinforce_plus_plus_baseline",),
    },
    ddof=1,
    eps=1e-6,
    sections=("verify", "signal", "reward", "advantage", "watchdog"),
    rules=_RULES,
)
"""slime sets its loss by flags and has vectors of responses and expert solutions only. ddof and eps are slime's."""


def read_settings(args: Any) -> RunConfig:
    """The settings in the section `gar` of slime's `--custom-config-path`, without `capture`, or a `ConfigError`."""
    values = getattr(args, "gar", None)
    path = getattr(args, "custom_config_path", None) or "--custom-config-path"
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{path}: expected a section 'gar' with the settings of GAR (it may be empty: 'gar: {{}}'), got "
            f"{'none' if values is None else repr(values)}. Is --custom-config-path set?",
            code="no-section",
        )
    return SLIME.read({key: value for key, value in values.items() if key != "capture"}, f"{path}: gar")


def read_shaping(args: Any, *, quiet: bool = True) -> Shaping:
    """The method with the settings in force, after all rules. `quiet` suppresses warnings of unused settings."""
    config = read_settings(args)
    flags = {slime_flag(name): value for name, value in vars(args).items()}
    flags["gar.capture"] = capture_of(args)
    divide = bool(args.rewards_normalization and args.grpo_std_normalization)
    sections = dict(config)
    return plan_shaping(SLIME, config.method, sections, flags=Flags(values=flags, divide_rewards=divide), quiet=quiet)


def capture_of(args: Any) -> str:
    """Source of the responses' hidden states: "own" for a pass of our own, "logprob" for slime's own pass."""
    return args.gar.get("capture", "own")
