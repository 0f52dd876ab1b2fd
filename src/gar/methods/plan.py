"""The plan with which every driver begins: a method on an engine that can run it, with the settings in force.

One settings file may serve several methods. A setting that a method does not read, such as the bonus under grpo, is
therefore no error: `unread_settings` names it.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from gar.config import RunConfig, make_config
from gar.core import group_advantages, reinforce_plus_plus_advantages
from gar.core.groups import group_deviations, in_equal_group
from gar.errors import ConfigError, expect
from gar.methods.base import Estimator, Method, Need
from gar.methods.registry import METHODS, find_method
from gar.methods.rules import METHOD_RULES, UNREAD_RULES, EngineFacts, Flags, method_facts, own_rules
from gar.rules import Rule, faults, raise_all
from gar.settings import (
    GROUP_DDOF,
    GROUP_EPS,
    MAX_TOKENS,
    REGISTERED,
    AdvantageSettings,
    RewardSettings,
    Settings,
    SignalSettings,
    section_name,
)

_WHITENING_EPS = 1e-8
"""Added to the variance over a batch, as in verl and slime."""

_WORDS: dict[Need, str] = {
    "anchor": "compares responses with their problem's expert solutions",
    "shuffled-anchor": "compares responses with the expert solutions of another problem of the data set",
    "random-anchor": "gives each problem of the data set a random vector",
    "text": "compares texts with expert solutions",
    "length": "compares lengths with the lengths of expert solutions",
    "compares_responses": "compares the vectors of responses with each other",
    "gate": "weighs single tokens in the policy loss",
    "loss": "sets fields of TRL's policy loss",
    "trainer": "brings its own trainer, which gar train makes",
    "initial_policy": "takes vectors of the policy before training",
}

_SECTIONS = {"signal": SignalSettings, "reward": RewardSettings, "advantage": AdvantageSettings}
_LISTED_SECTIONS = ("signal", "reward", "advantage", "watchdog")
"""Sections that `Method.reads` lists, besides trl and the method's own."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine's declaration.

    Attributes:
        name: For messages.
        can: Which needs of methods it meets (`Method.needs`), and whether it has the policy before training.
        estimators: The estimators of advantages that it has, each with the engine's own names for it.
        ddof: Denominator of the group's variance if the run does not set it.
        eps: Added to the group's standard deviation if the run does not set it.
        sections: The sections of a run's configuration that apply, for an engine that `read`s them.
        rules: What its own flags must be.
    """

    name: str
    can: frozenset[Need]
    estimators: Mapping[Estimator, tuple[str, ...]]
    ddof: int = GROUP_DDOF
    eps: float = GROUP_EPS
    sections: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()

    def methods(self) -> list[str]:
        """Names of the registered methods that it runs."""
        return [name for name, method in METHODS.items() if not self.lacks(method, method.estimator)]

    def lacks(self, method: Method, estimator: Estimator) -> str:
        """Why it cannot run a method under an estimator. Empty if it can."""
        lacking = [_WORDS[need] for need in method.needs if need not in self.can]
        if lacking:
            return f"the method {' and '.join(lacking)}"
        return "" if estimator in self.estimators else f"there is no estimator {estimator} here"

    def read(self, values: Mapping[str, Any], source: str) -> RunConfig:
        """A run's configuration from the section `gar` of the engine's configuration. Only `sections` apply.

        Raises:
            ConfigError: A key or a value is wrong.
        """
        known = ("method", "variant", "plugins", *self.sections)
        for key in values:
            if key in RunConfig.model_fields and key not in known:
                raise ConfigError(
                    f"{source}: 'gar.{key}' has no effect under {self.name}. Use {self.name}'s own flags. Known here: "
                    f"{', '.join(known)}.",
                    code="no-effect",
                )
        return make_config(values, source=source)


@dataclass(frozen=True, kw_only=True)
class Shaping:
    """A method on an engine, with the settings in force. `plan_shaping` makes one and rejects what does not fit."""

    method: Method
    engine: Engine
    signal: SignalSettings
    reward: RewardSettings
    advantage: AdvantageSettings

    def outcome_alone(self) -> "Shaping":
        """This shaping with the outcome as the only reward, for evaluations."""
        return replace(self, method=METHODS["grpo"])

    @property
    def reads_initial(self) -> bool:
        """Whether vectors come from the policy before training."""
        return self.method.reads_vectors and self.signal.policy == "initial"

    @property
    def shuffles_anchors(self) -> bool:
        """Whether responses are compared with the expert solutions of another problem."""
        return self.method.alignment == "shuffled-anchor"

    @property
    def estimator(self) -> Estimator:
        """Estimator of advantages: the run's choice, or else the method's."""
        return self.advantage.estimator or self.method.estimator

    @property
    def ddof(self) -> int:
        """Denominator of the variance (0 population, 1 Bessel): the run's, or else the engine's."""
        return self.engine.ddof if self.advantage.ddof is None else self.advantage.ddof

    @property
    def eps(self) -> float:
        """Added to the standard deviation: the run's, or else the engine's."""
        return self.engine.eps if self.advantage.eps is None else self.advantage.eps

    @property
    def overrides_advantages(self) -> bool:
        """Whether the run needs advantages that differ from the engine's own."""
        advantage = self.advantage
        chosen = advantage.ddof is not None or advantage.eps is not None or advantage.min_std > 0
        return chosen or self.estimator != "group"

    def normalized(self, rewards: Tensor, group_index: Tensor, *, scale: Literal["std", "none"] = "std") -> Tensor:
        """Rewards minus their group's mean and, with scale "std", divided by its spread, as float64 [responses]."""
        return group_advantages(
            rewards, group_index, scale=scale, ddof=self.ddof, eps=self.eps, min_std=self.advantage.min_std
        )

    def without_advantage(self, rewards: Tensor, group_index: Tensor) -> Tensor:
        """Which responses have advantage 0 because all rewards in their comparison are equal: bool [responses].

        Engines compute means in float32, where the mean of equal values can differ from the value. A small epsilon
        turns that difference into an advantage: -0.056 in verl for 16 rewards of -0.6.
        """
        if self.estimator == "group":
            return in_equal_group(rewards, group_index)
        baseline = self.estimator == "reinforce-plus-plus-baseline"
        values = group_deviations(rewards, group_index) if baseline else rewards
        return in_equal_group(values, torch.zeros_like(group_index))  # whitened over the batch

    def advantages(
        self,
        rewards: Tensor,
        group_index: Tensor,
        *,
        token_counts: Tensor | None = None,
        scale: Literal["std", "none"] = "std",
    ) -> Tensor:
        """Advantages of the responses of all ranks, float64 [responses], by the run's estimator.

        Args:
            rewards: Float64 [responses].
            group_index: Which problem a response answers.
            token_counts: Tokens of each response that enter the loss, for estimators that whiten over tokens.
            scale: "std" divides by the group's standard deviation. Only for the estimator "group".

        Raises:
            ValueError: `token_counts` is missing under an estimator that whitens.
        """
        if self.estimator == "group":
            return self.normalized(rewards, group_index, scale=scale)
        if token_counts is None:
            raise ValueError(
                f"token_counts is None, expected one number per response: {self.estimator} weighs responses by their "
                "tokens in the loss"
            )
        return reinforce_plus_plus_advantages(
            rewards,
            token_counts,
            group_index,
            baseline=self.estimator == "reinforce-plus-plus-baseline",
            ddof=self.ddof,
            eps=_WHITENING_EPS,
        )


def plan_shaping(
    engine: Engine,
    method: str | Method,
    sections: Mapping[str, Settings | None] | None = None,
    *,
    flags: Flags | None = None,
    quiet: bool = False,
) -> Shaping:
    """Settings in force for a method on an engine, after all rules. Every driver begins here.

    Args:
        engine: What the engine can do.
        method: Name of a registered method, or the method itself.
        sections: The sections of settings that the engine takes, by name. None selects its defaults.
        flags: The engine's flags. None: its rules are checked elsewhere.
        quiet: Do not warn of settings that this method does not read.

    Raises:
        ConfigError: The method is unknown or declares something that does not exist, or all the rules that are broken.
    """
    for name, kind in _SECTIONS.items():
        expect((sections or {}).get(name), kind | None, name, f"a gar.{kind.__name__}")
    given: dict[str, Any] = {name: part for name, part in (sections or {}).items() if isinstance(part, Settings)}
    chosen = find_method(method)
    shaping = Shaping(
        method=chosen,
        engine=engine,
        signal=resolve_signal(chosen, given.get("signal") or SignalSettings()),
        reward=given.get("reward") or RewardSettings(),
        advantage=given.get("advantage") or AdvantageSettings(),
    )
    engine_rules = () if flags is None else engine.rules
    facts = _engine_facts(shaping, given, flags or Flags())
    raise_all(faults((*METHOD_RULES, *engine_rules, *own_rules(chosen)), facts))
    if not quiet and (unread := unread_settings(chosen, given, engine=engine.name)):
        warnings.warn(f"Not read by {chosen.name} under {engine.name}: {', '.join(unread)}.", stacklevel=3)
    return shaping


def _engine_facts(shaping: Shaping, sections: Mapping[str, Any], flags: Flags) -> EngineFacts[Flags]:
    """The facts of a run on its engine, with the settings in force."""
    engine, method, estimator = shaping.engine, shaping.method, shaping.estimator
    facts = method_facts(method, sections, engine.name)
    in_force = {f"signal.{name}": getattr(shaping.signal, name) for name in SignalSettings.model_fields}
    shared: dict[str, Any] = vars(facts) | {"settings": {**facts.settings, **in_force, **flags.values}}
    return EngineFacts(
        **shared,
        flags=flags,
        engine_methods=", ".join(engine.methods()),
        has_initial_policy="initial_policy" in engine.can,
        method_lacks=engine.lacks(method, estimator),
        estimator=estimator,
        estimator_flags=engine.estimators.get(estimator, ()),
        own_advantages=shaping.overrides_advantages,
    )


def resolve_signal(method: Method, signal: SignalSettings) -> SignalSettings:
    """The signal settings in force: the method's own if the run leaves the default, with each "auto" resolved."""
    fields = SignalSettings.model_fields
    own = {name: value for name, value in method.signal.items() if getattr(signal, name) == fields[name].default}
    resolved = signal.model_copy(update=own)
    if resolved.kind == "hidden":  # a large hidden state is not a large gradient
        resolved = resolved.model_copy(update={"expert_keep_fraction": 1.0})
    return resolved if resolved.max_tokens != "auto" else resolved.model_copy(update={"max_tokens": MAX_TOKENS})


def unread_settings(method: Method, sections: Mapping[str, Any], *, engine: str = "TRL") -> list[str]:
    """Changed settings that nothing reads, as "section.name". `sections` as in `method_facts`."""
    facts = method_facts(method, sections, engine)
    unread = {name for name, _ in faults(UNREAD_RULES, facts)}
    parts = {section_name(name): other.settings for name, other in REGISTERED.items() if name != method.name}
    unread |= {f"{section}.{name}" for section, kind in parts.items() if kind for name in kind.model_fields}
    if method.reads is None or "trl" not in sections:
        unread |= {f"reward.{name}" for name in RewardSettings.model_fields if name not in method.reward}
    else:
        own = (*_LISTED_SECTIONS, section_name(method.name))
        unread |= {name for name in facts.chosen if name.partition(".")[0] in own} - set(method.reads(sections))
    return [name for name in facts.chosen if name in unread]
