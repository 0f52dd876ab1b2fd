"""The methods by name: the package's and yours."""

from typing import get_args

from gar.errors import ConfigError
from gar.methods.base import AlignmentSource, Estimator, Method
from gar.methods.g2rl import G2RL
from gar.methods.gar import ALIGNMENT_ONLY, CONTROLS, GAR_GRPO, GAR_REINFORCE_PLUS_PLUS
from gar.methods.outcome import PLAIN_METHODS
from gar.settings import REGISTERED, RewardSettings, SignalSettings

METHODS: dict[str, Method] = {
    method.name: method
    for method in (*PLAIN_METHODS, G2RL, GAR_GRPO, GAR_REINFORCE_PLUS_PLUS, *CONTROLS, ALIGNMENT_ONLY)
}


def register(method: Method) -> Method:
    """Register a method under its name, for every driver of this process.

    Returns:
        The method.

    Raises:
        ConfigError: The name is taken, or the declaration names something that does not exist.

    Example:
        >>> from gar.methods import Method, outcome_rewards, register
        >>> half = Method(name="half", summary="half the outcome", shape=outcome_rewards, signal={"knd": "hidden"})
        >>> register(half)
        Traceback (most recent call last):
        gar.errors.ConfigError: method 'half': no such signal setting: knd
    """
    if method.name in METHODS:
        raise ConfigError(
            f"a method named '{method.name}' is registered already. Give yours another name.", code="method-taken"
        )
    _check_declaration(method)
    METHODS[method.name] = method
    REGISTERED[method.name] = method
    return method


def _check_declaration(method: Method) -> None:
    """Reject a method that declares what no engine could serve."""
    for label, names, known in (
        ("signal setting", method.signal, SignalSettings.model_fields),
        ("reward setting", method.reward, RewardSettings.model_fields),
        ("alignment", filter(None, [method.alignment]), get_args(AlignmentSource)),
        ("estimator", [method.estimator], get_args(Estimator)),
    ):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ConfigError(f"method '{method.name}': no such {label}: {', '.join(unknown)}", code="bad-method")
    if method.settings is not None and method.trainer is None:
        raise ConfigError(
            f"method '{method.name}': it has settings, which only a trainer of its own reads, and no trainer. `shape` "
            "gets the fields of RewardSettings that `reward` names.",
            code="bad-method",
        )
    if method.compares_responses and method.alignment in ("random-anchor", "text", "length"):
        raise ConfigError(
            f"method '{method.name}': alignment '{method.alignment}' takes no vectors of expert solutions, and "
            "compares_responses does not go with it. Expected alignment anchor, shuffled-anchor, or none.",
            code="bad-method",
        )


def find_method(method: str | Method) -> Method:
    """Look up a method by name, or check your own method.

    Raises:
        ConfigError: The name is unknown, or your method's declaration names something that does not exist.
    """
    if isinstance(method, Method):
        _check_declaration(method)
        return method
    if method not in METHODS:
        raise ConfigError(f"unknown method '{method}', expected one of {', '.join(METHODS)}", code="method")
    return METHODS[method]
