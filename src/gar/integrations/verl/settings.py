"""The section `gar` of verl's configuration and verl's own flags, as facts for `gar.rules`.

Configurations are plain nested dicts (`OmegaConf.to_container`), so this module does not import verl.
"""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gar.config import RunConfig
from gar.errors import ConfigError
from gar.methods import Engine
from gar.records.dotted import leaves
from gar.step import Shaping, plan_shaping

SUPPORTED = "0.9.1"
"""The only supported version of verl."""

TRAINER = "gar_sync"
"""Value of verl's `trainer.v1.trainer_mode`."""

REWARD_MANAGER = "gar"
"""Value of verl's `reward.reward_manager.name`."""

VERL = Engine(
    name="verl",
    can=frozenset({"anchor", "shuffled-anchor"}),
    estimators={
        "group": ("grpo",),
        "reinforce-plus-plus": ("reinforce_plus_plus",),
        "reinforce-plus-plus-baseline": ("reinforce_plus_plus_baseline",),
    },
    sections=("verify", "signal", "reward", "watchdog"),
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
    flags = None if verl is None else dict(leaves(verl))
    return plan_shaping(VERL, config.method, sections, flags=flags, quiet=quiet)


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
