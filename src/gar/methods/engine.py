"""The declaration of what an engine can do, which decides the methods that it runs and its refusals of others."""

from collections.abc import Mapping
from dataclasses import dataclass

from gar.errors import ConfigError
from gar.methods.base import Estimator, Method, Need
from gar.methods.registry import METHODS
from gar.settings import GROUP_DDOF, GROUP_EPS, SignalSettings

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
        can: Which needs of methods it meets (`Method.needs`), and of signals (`check_signal`).
        estimators: The estimators of advantages that it has, each with the engine's own names for it.
        ddof: Denominator of the group's variance where the run leaves it open.
        eps: Added to the group's standard deviation where the run leaves it open.
        ignores: Settings that it never reads, as "section.name".
    """

    name: str
    can: frozenset[Need]
    estimators: Mapping[Estimator, tuple[str, ...]]
    ddof: int = GROUP_DDOF
    eps: float = GROUP_EPS
    ignores: tuple[str, ...] = ()

    def methods(self) -> list[str]:
        """Names of the registered methods that it runs."""
        return [name for name, method in METHODS.items() if not self.fault(method, method.estimator)]

    def fault(self, method: Method, estimator: Estimator) -> str:
        """Why it does not run a method under an estimator; empty where it does."""
        lacking = [_WORDS[need] for need in method.needs if need not in self.can]
        if lacking:
            return f"the method {' and '.join(lacking)}"
        return "" if estimator in self.estimators else f"there is no estimator '{estimator}' here"

    def check(self, method: Method, estimator: Estimator) -> None:
        """Reject a method that it cannot run.

        Args:
            method: The method that is trained.
            estimator: How rewards become advantages.

        Raises:
            ConfigError: Says what it lacks, and what it does run.
        """
        fault = self.fault(method, estimator)
        if fault:
            raise ConfigError(
                f"method '{method.name}' does not run under {self.name}: {fault}. Expected one of "
                f"{', '.join(self.methods())}."
            )

    def check_signal(self, signal: SignalSettings) -> None:
        """Reject a signal that it cannot form.

        Raises:
            ConfigError: Says what the signal needs.
        """
        if signal.policy == "initial" and "initial_policy" not in self.can:
            raise ConfigError(
                f"signal.policy is 'initial', but {self.name} has only the current policy. Set it to current."
            )
