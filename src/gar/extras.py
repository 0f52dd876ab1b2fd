"""Which packages of an extra are missing, and the command that installs it."""

import importlib.metadata
import re
from collections.abc import Iterator

from gar.errors import MissingPackageError

_DISTRIBUTION = "gar-rl"
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?[^;]*")


def install_command(extra: str) -> str:
    """The command that adds an extra, in a clone of `gar`, which is on no package index."""
    return f"pip install '.[{extra}]'"


def extra_requirements(extra: str) -> Iterator[str]:
    """The requirements of an extra, as "trl<2,>=1.15", the extras that it names included."""
    for line in importlib.metadata.requires(_DISTRIBUTION) or ():
        if re.search(rf"""extra == ["']{extra}["']""", line) and (found := _REQUIREMENT.match(line)):
            if found[1] != _DISTRIBUTION:
                yield found[0].strip()
            for inner in found[2].split(",") if found[1] == _DISTRIBUTION else ():
                yield from extra_requirements(inner)


def require_extra(extra: str, user: str) -> None:
    """Raise a `MissingPackageError` if a package of an extra is not installed. Imports none of them.

    `user` is what needs the extra, for example "gar.GARTrainer".
    """
    if installed_version(_DISTRIBUTION) is None:  # the source on a path, without metadata
        return
    names = [re.split(r"[^\w.-]", requirement)[0] for requirement in extra_requirements(extra)]
    if missing := [name for name in names if installed_version(name) is None]:
        place = "a clone of gar" if installed_version("verl") is None else "an environment without verl"
        raise MissingPackageError(
            f"{user} needs {', '.join(missing)}, not installed. In {place}, run: {install_command(extra)}"
        ) from None


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
