"""The declaration of what an engine can do, which decides the methods that it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gar.config import RunConfig, make_config
from gar.errors import ConfigError
from gar.methods.base import Estimator, Method, Need
from gar.methods.registry import METHODS
from gar.settings import GROUP_DDOF, GROUP_EPS

_WORDS: dict[Need, str] = {
    "anchor": "compares responses with their problem's anchors",
    "shuffled-anchor": "compares responses with the anchors of another problem of the data set",
    "random-anchor": "gives each problem of the data set a random vector",
    "text": "compares texts with those of anchors",
    "length": "compares lengths with those of anchors",
    "compares_responses": "compares the vectors of responses with each other",
    "gate": "weighs single tokens in the policy loss",
    "loss": "sets fields of TRL's policy loss",
    "trainer": "brings a trainer of its own",
    "initial_policy": "takes vectors of the policy before training",
}


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine's declaration.

    Attributes:
        name: For messages.
        can: Which needs of methods it meets (`Method.needs`), and whether it has the policy before training.
        estimators: The estimators of advantages that it has, each with the engine's own names for it.
        ddof: Denominator of the group's variance where the run leaves it open.
        eps: Added to the group's standard deviation where the run leaves it open.
        sections: The sections of a run's configuration that apply, for an engine that `read`s them.
    """

    name: str
    can: frozenset[Need]
    estimators: Mapping[Estimator, tuple[str, ...]]
    ddof: int = GROUP_DDOF
    eps: float = GROUP_EPS
    sections: tuple[str, ...] = ()

    def methods(self) -> list[str]:
        """Names of the registered methods that it runs."""
        return [name for name, method in METHODS.items() if not self.lacks(method, method.estimator)]

    def lacks(self, method: Method, estimator: Estimator) -> str:
        """Why it does not run a method under an estimator; empty where it does."""
        lacking = [_WORDS[need] for need in method.needs if need not in self.can]
        if lacking:
            return f"the method {' and '.join(lacking)}"
        return "" if estimator in self.estimators else f"there is no estimator {estimator} here"

    def facts(self, method: Method, estimator: Estimator) -> dict[str, Any]:
        """What `gar.rules` asks of an engine."""
        return {
            "engine": self.name,
            "engine.methods": ", ".join(self.methods()),
            "engine.initial_policy": "initial_policy" in self.can,
            "method.lacks": self.lacks(method, estimator),
            "estimator": estimator,
            "the flag of the run's estimator": self.estimators.get(estimator, ()),
        }

    def read(self, values: Mapping[str, Any], source: str) -> RunConfig:
        """A run's configuration from the section `gar` of the engine's own, in which only `sections` count.

        Raises:
            ConfigError: A key or a value is wrong.
        """
        known = ("method", "variant", "plugins", *self.sections)
        for key in values:
            if key in RunConfig.model_fields and key not in known:
                raise ConfigError(
                    f"{source}: 'gar.{key}' has no effect under {self.name}, whose own flags decide it. Known here: "
                    f"{', '.join(known)}."
                )
        return make_config(values, source=source)
