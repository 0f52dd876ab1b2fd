"""The settings in gar.yaml and slime's own flags, as facts for `gar.rules`."""

from collections.abc import Mapping
from typing import Any

from gar.config import RunConfig
from gar.errors import ConfigError
from gar.methods import Engine
from gar.rules import slime_flag
from gar.step import Shaping, plan_shaping

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
    flags["rewards are divided"] = bool(args.rewards_normalization and args.grpo_std_normalization)
    return plan_shaping(SLIME, config.method, dict(config), flags=flags, quiet=quiet)


def capture_of(args: Any) -> str:
    """Source of the responses' hidden states: "own" for a pass of our own, "logprob" for slime's own pass."""
    return args.gar.get("capture", "own")
