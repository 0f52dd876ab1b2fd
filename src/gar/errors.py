"""The errors that `gar` raises on purpose.

Each text names the fault, what was found, what was expected and the likely cause. Each class is also the standard
error that a caller would expect, so that `except ValueError` works. The code of an error is the class's, or a narrower
one, or the name of a setting.
"""

import difflib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class GarError(Exception):
    """Base of every error that `gar` raises on purpose. The command line prints its text without a traceback.

    Args:
        message: What is wrong, what was found, what was expected and what to do.
        code: For programs: words in kebab-case that name the cause, or the name of the setting that is wrong. None
            keeps the code of the class.
    """

    code: str = "error"

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles keep text and attributes. A class with other arguments extends this."""
        number = {"errno": self.errno} if isinstance(self, OSError) else {}  # it is not among the attributes
        return type(self), self.args, vars(self) | number


class UsageError(GarError, ValueError):
    """The command line cannot be parsed. The command ends with status 2."""

    code = "usage"


class DataError(GarError, ValueError):
    """A data file, a row or a column is not what it should be. Names the file and the line."""

    code = "data"


class ConfigError(GarError, ValueError):
    """A setting is unknown, out of range, or contradicts another one."""

    code = "config"


class ModelError(GarError, ValueError):
    """A model, tokenizer or checkpoint cannot be used, for example a head that the closed form does not cover."""

    code = "model"


class RecordError(GarError, OSError):
    """A run folder cannot be written or read. What was written before stays intact."""

    code = "record"


class MissingPackageError(GarError, ImportError):
    """A package of an extra is not installed. Names the command that adds it."""

    code = "missing-package"


class LockedError(RecordError):
    """Another process is writing there. Names it, and since when."""

    code = "locked"


class LostRankError(GarError, RuntimeError):
    """Another rank of the job is gone. The run is interrupted, and can be resumed."""

    code = "lost-rank"


class CollapseError(GarError, RuntimeError):
    """For many steps in a row every response was empty, cut off or wrong. Names the cause and what to do."""

    code = "collapse"


class PreflightError(GarError, RuntimeError):
    """The first rollouts carry no training signal. Names what to change."""

    code = "preflight"


def expect(value: object, kinds: Any, name: str, expected: str, *, error: type[GarError] = ConfigError) -> None:
    """Raise an error unless an argument from Python is of one of these kinds. `expected` names them in words."""
    if not isinstance(value, kinds):
        raise error(f"{name} is {value!r:.60} ({type(value).__name__}), expected {expected}.", code="wrong-type")


def expect_members(values: Any, kinds: Any, name: str, expected: str, *, error: type[GarError] = ConfigError) -> None:
    """`expect` for each member of a list: a text would be read as letters, and a generator can be read once."""
    if isinstance(values, str | Mapping | Iterator) or not isinstance(values, Iterable):
        expect(values, (), name, f"a list, each item {expected}", error=error)
    for index, value in enumerate(values):
        expect(value, kinds, f"{name}[{index}]", expected, error=error)


def did_you_mean(name: str, known: Iterable[str], prefix: str = "", *, cutoff: float = 0.6) -> str:
    """` Did you mean 'NAME'?` with the closest known name. "" if none is close."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f" Did you mean '{prefix}{near[0]}'?" if near else ""


def first_line(error: object) -> str:
    """The first line of another library's error, or of its text."""
    return str(error).strip().partition("\n")[0]


def printable(text: object) -> str:
    r"""A text in which control characters are shown as escapes, so that no terminal obeys it.

    Example:
        >>> printable("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    shown = (c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else repr(c)[1:-1] for c in str(text))
    return "".join(shown)
