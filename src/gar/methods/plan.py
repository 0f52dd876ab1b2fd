"""The plan with which every driver begins: a method on an engine, with the settings in force."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor

from gar.core import group_advantages, reinforce_plus_plus_advantages
from gar.methods import METHODS, Engine, Method, find_method
from gar.methods.base import Estimator
from gar.methods.settings import own_rules, resolve_signal, run_facts, warn_of_unread
from gar.rules import check
from gar.settings import AdvantageSettings, RewardSettings, Settings, SignalSettings

_WHITENING_EPS = 1e-8
"""Added to the variance over a batch, as verl and slime do."""


@dataclass(frozen=True, kw_only=True)
class Shaping:
    """A method on an engine, with the settings in force. `plan_shaping` makes one and rejects what does not fit."""

    method: Method
    engine: Engine
    signal: SignalSettings
    reward: RewardSettings
    advantage: AdvantageSettings

    def outcome_alone(self) -> "Shaping":
        """This shaping with the outcome as the whole reward, as in evaluations."""
        return replace(self, method=METHODS["grpo"])

    @property
    def reads_initial(self) -> bool:
        """Whether vectors are those of the policy before training."""
        return self.method.reads_vectors and self.signal.policy == "initial"

    @property
    def estimator(self) -> Estimator:
        """How rewards become advantages: the run's choice, or else the method's."""
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
        """Whether the run asks for other advantages than the engine's own."""
        advantage = self.advantage
        chosen = advantage.ddof is not None or advantage.eps is not None or advantage.min_std > 0
        return chosen or self.estimator != "group"

    def normalized(self, rewards: Tensor, group_index: Tensor, *, scale: Literal["std", "none"] = "std") -> Tensor:
        """Rewards minus their group's mean and, with scale "std", divided by its spread; float64 [responses]."""
        return group_advantages(
            rewards, group_index, scale=scale, ddof=self.ddof, eps=self.eps, min_std=self.advantage.min_std
        )

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
    flags: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> Shaping:
    """Settings in force for a method on an engine, after all rules of `gar.rules`. Every driver begins with this.

    Args:
        engine: What the engine can do.
        method: Name of a registered method, or the method itself.
        sections: The sections of settings that the engine takes, by name. None stands for its defaults.
        flags: The engine's own flags by their own names. None: its rules are checked elsewhere.
        quiet: Do not warn of settings that this method does not read: the driver has done so.

    Raises:
        ConfigError: The method is unknown or declares something that does not exist, or all the rules that are broken.
    """
    given = {name: values for name, values in (sections or {}).items() if isinstance(values, Settings)}
    chosen = find_method(method)
    shaping = Shaping(
        method=chosen,
        engine=engine,
        signal=resolve_signal(chosen, _section(given, "signal", SignalSettings)),
        reward=_section(given, "reward", RewardSettings),
        advantage=_section(given, "advantage", AdvantageSettings),
    )
    facts = run_facts(chosen, given) | engine.facts(chosen, shaping.estimator)
    facts |= {f"signal.{name}": getattr(shaping.signal, name) for name in SignalSettings.model_fields}
    facts |= {"advantages are TRL's": not shaping.overrides_advantages} | dict(flags or {})
    check("" if flags is None else engine.name, facts, more=own_rules(chosen))
    if not quiet:
        warn_of_unread(chosen, given, engine=engine.name)
    return shaping


def _section(sections: Mapping[str, Any], name: str, kind: Any) -> Any:
    return sections.get(name) or kind()
