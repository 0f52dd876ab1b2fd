"""Whether a verifier or one of a script's reward functions decides that a response is right."""

import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from accelerate import PartialState
from torch import Tensor, nn
from trl.trainer.utils import get_callable_name, get_config_model_id

from gar.errors import ConfigError, did_you_mean
from gar.methods import OUTCOME_SETTINGS
from gar.settings import RewardSettings
from gar.types import ResponseVerifier
from gar.verify import Verifier

Rule = Callable[[dict[str, float | None]], bool | None]

_TOLD_AT_MOST = 3


def gar(prompts: list, **_: Any) -> list[float | None]:
    """A placeholder: TRL's column for the method's rewards, which `GARTrainer` fills in."""
    return [0.0] * len(prompts)


class Decider:
    """Reads from the values of reward functions which responses are right.

    Args:
        names: The functions' names, as TRL logs them.
        decides: The index of the function that decides by a value above 0, or a function of all values.
    """

    def __init__(self, names: Sequence[str], decides: int | Rule):
        self._names, self._decides = [*names], decides
        self._highest, self._told = 0.0, 0  # value so far, and how often it was told

    @property
    def column(self) -> int | None:
        """The index of the function that decides. None if a function of all values does."""
        return self._decides if isinstance(self._decides, int) else None

    def decide(self, columns: Tensor, here: slice) -> list[bool | None]:
        """Whether the responses `here` are right. None is neither right nor wrong.

        Args:
            columns: TRL's rewards of all ranks' responses, float32 [responses, functions], NaN for None.
            here: Positions of this rank's responses.

        Raises:
            ConfigError: The user's function returned something else.
        """
        if callable(self._decides):  # on all rows, so that an error ends all ranks
            return [self._by_rule(self._decides, row) for row in columns.cpu().numpy()][here]
        values = columns[:, self._decides].tolist()
        self._tell_grades(self._names[self._decides], {value for value in values if value > 0})
        return [None if math.isnan(value) else value > 0 for value in values[here]]

    def _by_rule(self, rule: Rule, row: Any) -> bool | None:
        # The shortest decimal of a float32: what a function returned as 0.7 is 0.7 again.
        values = {name: None if math.isnan(v) else float(str(v)) for name, v in zip(self._names, row, strict=False)}
        try:
            right = rule(values)
        except TypeError as error:
            raise ConfigError(
                f"correct= failed on {values}: {error}. A function that returned None gives None.",
                code="correct",
            ) from error
        if right is not None and not isinstance(right, bool):
            raise ConfigError(
                f"correct= returned {right!r} for {values}, expected True, False or None. Compare a value, for "
                f'example values["{self._names[0]}"] > 0.',
                code="correct",
            )
        return right

    def _tell_grades(self, name: str, positive: set[float]) -> None:
        """Warn of a function that grades: even its lowest value above 0 counts as right. Again at higher values."""
        seen, highest = self._highest, max(positive, default=0.0)
        graded = self._told > 0 or len(positive) > 1 or highest < 1 or 0 < seen < highest
        self._highest = max(seen, highest)
        if highest <= seen or not graded or self._told == _TOLD_AT_MOST:
            return
        self._told += 1
        if PartialState().is_main_process:
            # The shortest decimal of a float32, as `_by_rule` compares it.
            top, *others = (str(np.float32(value)) for value in sorted(positive, reverse=True)[:4])
            beside = f", beside {', '.join(others)}" if others else ""
            warnings.warn(
                f"{name} decides what is right. Its highest value so far is {top}{beside}. Every value above 0 counts "
                "as right, also credit for a format or a part. If lower values are such credit, compare with the value "
                "of a right answer. Below it, wrong responses would be paid, and above it, none. If it is the highest "
                "so far, set "
                f'correct=lambda values: values["{name}"] >= {top}.',
                stacklevel=2,
            )


def reward_name(function: Any) -> str:
    """The name of a reward function or model, as TRL logs it."""
    if isinstance(function, nn.Module):
        function = get_config_model_id(cast(Any, function.config))
    return function.split("/")[-1] if isinstance(function, str) else get_callable_name(function)


def listed(values: Any) -> list[Any]:
    """One or several reward functions, as TRL takes them, as a list."""
    return [*values] if isinstance(values, list | tuple) else [values] if values else []


def choose_verifier(
    functions: Sequence[Any], correct: Any, verifier: ResponseVerifier | None, *, may_grow: bool
) -> ResponseVerifier | None:
    """The verifier that decides. None if one of `functions` does. With `may_grow` TRL may add another one.

    Raises:
        ConfigError: As `find_decider`, or both a verifier and `correct` are given.
    """
    if verifier is None and (functions or correct is not None):
        if not may_grow:
            find_decider(functions, correct)
        return None
    if correct is not None:
        raise ConfigError("The verifier decides what is right. Leave out correct= or verifier=.", code="correct")
    check_names([reward_name(function) for function in functions])
    return verifier or Verifier(format="none")


def append_column(trainer: Any, decides: int | None) -> int:
    """Append the column `gar`, with the weight of the function that decides, or 1. Returns the index of the column."""
    trainer.reward_funcs.append(gar)
    trainer.reward_func_names.append(gar.__name__)
    trainer.reward_processing_classes.append(None)
    weight = torch.ones(1) if decides is None else trainer.reward_weights[decides : decides + 1]
    if not weight.any():
        warnings.warn(
            f"{trainer.reward_func_names[decides]} decides what is right and has the weight 0 in reward_weights, so it "
            'is only measured. The bonus has the weight 1. To train without it: method="grpo".',
            stacklevel=4,
        )
        weight = torch.ones(1)
    trainer.reward_weights = torch.cat([trainer.reward_weights, weight])
    return len(trainer.reward_funcs) - 1


def warn_unread(reward: RewardSettings) -> None:
    """Warn of settings of the outcome, which the function that decides gives. It requires no format."""
    fields = RewardSettings.model_fields
    if unread := [f"reward.{name}" for name in OUTCOME_SETTINGS if getattr(reward, name) != fields[name].default]:
        warnings.warn(
            f"Not read, since a reward function decides: {', '.join(unread)}. A right response has the function's own "
            "value, and no format is required. For these settings give verifier=.",
            stacklevel=4,
        )


def find_decider(functions: Sequence[Any], correct: Any, names: Sequence[str] | None = None) -> Decider:
    """Find what decides.

    Args:
        functions: Reward functions, or models and their ids.
        correct: The name of one of them, a function of all values, or None.
        names: Their names. None makes them as TRL does.

    Raises:
        ConfigError: Two names are equal, several functions or a model need `correct`, or `correct` is none of these.
    """
    names = names or [reward_name(function) for function in functions]
    check_names(names)
    if correct is None:
        if len(functions) == 1 and not isinstance(functions[0], str | nn.Module):
            return Decider(names, 0)
        raise _undecided(names)
    if isinstance(correct, str) and correct in names:
        return Decider(names, names.index(correct))
    for name, function in zip(names, functions, strict=False):
        if correct is function:
            raise ConfigError(
                f'correct= is the function {name} itself. Give its name: correct="{name}".', code="correct"
            )
    if not callable(correct):
        near = did_you_mean(correct, names) if isinstance(correct, str) else ""
        raise ConfigError(
            f"correct={correct} names no function of reward_funcs ({', '.join(names) or 'none given'}).{near} "
            "Give the name of one, or a function that takes a dict: the values of one response by name.",
            code="correct",
        )
    if not names:
        raise ConfigError("correct= reads the values of reward_funcs, and none are given.", code="correct")
    return Decider(names, cast(Rule, correct))


def check_names(names: Sequence[str]) -> None:
    """Raise a `ConfigError` if two reward columns have one name, ours included."""
    taken = [gar.__name__, *names]
    if repeated := [name for name in names if taken.count(name) > 1]:
        raise ConfigError(
            f"two reward columns have the name {repeated[0]!r} (got {', '.join(taken)}, the first from GARTrainer). "
            "TRL logs by name, and correct= reads by name. Set __name__ of one of the functions.",
            code="reward-names",
        )


def _undecided(names: Sequence[str]) -> ConfigError:
    """The error where `correct` is missing, with the line to add."""
    likely = next((name for name in names if re.search("correct|accura|answer", name, re.IGNORECASE)), names[-1])
    what = f"{len(names)} functions" if len(names) > 1 else "a reward model"
    return ConfigError(
        f"reward_funcs has {what}: {', '.join(names)}. Which responses are right? Add a line to GARTrainer(...):\n"
        f'    correct="{likely}",\n'
        f'A value above 0 is then right. Or give a function of all values: lambda values: values["{likely}"] >= 1',
        code="correct",
    )
