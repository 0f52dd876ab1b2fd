"""The user's grader: checked before training starts. Only a valid grade becomes a number."""

import importlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gar.errors import ConfigError, did_you_mean
from gar.types import Status
from gar.verify.answers import Graded

Grader = Callable[[str, str], bool | float]


@dataclass(frozen=True, slots=True)
class CustomGrader:
    """Calls `function` with the whole text of a response and the gold answer.

    The function returns True or False, or a grade in [0, 1]. A grade of 1 has status OK, a lower one WRONG. Anything
    else (NaN, 1.5, "yes", None) has status ERROR. The worker that calls it records exceptions.
    """

    function: Grader

    def __call__(self, text: str, gold: str) -> Graded:
        """Grade one response."""
        grade: Any = self.function(text, gold)
        if getattr(grade, "ndim", None) == 0:  # a scalar of NumPy or torch
            grade = grade.item()
        if not isinstance(grade, int | float):
            detail = f"the grader returned {type(grade).__name__}, expected a bool or a number in [0, 1]"
        elif not 0 <= grade <= 1:  # NaN included
            detail = f"the grader returned {grade}, expected a bool or a number in [0, 1]"
        else:
            return Graded(status=Status.OK if grade == 1 else Status.WRONG, grade=float(grade))
        return Graded(status=Status.ERROR, detail=detail)


def custom_grader(grader: Grader | str) -> CustomGrader:
    """A grader that worker processes can call.

    `grader` is a function of (response text, gold answer), or "package.module:function".

    Raises:
        ConfigError: It cannot be imported, is not callable, or cannot be sent to worker processes.
    """
    function = _imported(grader) if isinstance(grader, str) else grader
    if not callable(function):
        raise ConfigError(f"the verifier {grader!r} is of type {type(function).__name__}, expected a function")
    try:
        # Workers import the function by name. The running script is not a module they can import.
        if b"__main__" in pickle.dumps(function):
            why = "it is defined in the running script or notebook, which worker processes do not import"
        else:
            return CustomGrader(function)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    raise ConfigError(
        f"the verifier {grader!r} cannot be sent to worker processes: {why}. "
        "Define it at the top level of a module that can be imported, not as a lambda or an inner function."
    )


def _imported(name: str) -> Grader:
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(f"the verifier {name!r} should look like 'package.module:function'")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"the verifier {name!r} cannot be imported, {type(error).__name__}: {error}. "
            "Is its folder on the Python path? The current folder is not unless PYTHONPATH=. is set"
        ) from error
    if not hasattr(module, attribute):
        hint = did_you_mean(attribute, vars(module))
        raise ConfigError(f"the module {module_name!r} has no {attribute!r}.{hint}")
    return getattr(module, attribute)
