"""`gar doctor`: one table of versions, devices and engines.

Imports the standard library, `packaging` and `rich` alone, so it works if other libraries are broken.
"""

import argparse
import importlib.metadata
import platform
from collections.abc import Iterator
from typing import Literal

from packaging.requirements import Requirement
from rich.table import Table
from rich.text import Text

from gar import __version__
from gar.cli.console import show
from gar.errors import first_line
from gar.extras import extra_requirements, install_command, installed_version

_STYLES = {"ok": "green", "missing": "yellow", "wrong": "bold red"}
_ABSENT = "not installed"
_OPTIONAL = ("peft>=0.18", "torchao", "vllm", "verl==0.9.1", "slime>=0.3.0")

Row = tuple[Literal["ok", "missing", "wrong"], str, str]
"""Status, name and what was found. Without the right version a required item is "wrong", an optional one "missing"."""


def main(arguments: list[str]) -> int:
    """Run `gar doctor`. The exit status is 1 if a required package is wrong, else 0."""
    argparse.ArgumentParser(
        prog="gar doctor",
        description="Show versions, devices and engines. Exit status 1 if something required is wrong, else 0.",
    ).parse_args(arguments)
    optional = (_version(Requirement(name), otherwise="missing") for name in _OPTIONAL)
    training = list(_training())
    rows = [*_required(), *training, *_devices(), *optional]
    table = Table("", "", "found", title=f"gar {__version__}", title_justify="left", box=None)
    for status, *cells in rows:
        table.add_row(Text(status, style=_STYLES[status]), *map(Text, cells))
    show(table)
    wrong = [name for status, name, *_ in rows if status == "wrong"]
    if wrong:
        show(f"Not ready. Wrong: {', '.join(wrong)}.", style="bold red")
        return 1
    if any(status == "missing" for status, *_ in training):
        place = " in a separate environment" if _installed("verl") else ""
        show(
            f"Ready for verl and slime. The other commands need{place}: {install_command('train')}", style="bold green"
        )
        return 0
    show("Ready. Start with: gar train --preset demo", style="bold green")
    return 0


def _required() -> Iterator[Row]:
    """Python and the dependencies of every extra in the installed metadata, each against its version range."""
    if _installed("gar-rl") is None:
        yield "wrong", "gar", _ABSENT
        return
    yield _version(Requirement(f"python{importlib.metadata.metadata('gar-rl')['Requires-Python']}"))
    for requirement in map(Requirement, importlib.metadata.requires("gar-rl") or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _version(requirement)


def _training() -> Iterator[Row]:
    """What `.[train]` adds. In an environment of verl or without TRL it is optional."""
    if _installed("gar-rl") is None:
        return
    optional = _installed("verl") is not None or _installed("trl") is None
    for requirement in map(Requirement, extra_requirements("train")):
        yield _version(requirement, otherwise="missing" if optional else "wrong")


def _version(requirement: Requirement, *, otherwise: Literal["missing", "wrong"] = "wrong") -> Row:
    version = _installed(requirement.name)
    if version is not None and requirement.specifier.contains(version, prereleases=True):
        return "ok", requirement.name, version
    expected = f", expected {requirement.specifier}" if requirement.specifier else ""
    return otherwise, requirement.name, f"{version or _ABSENT}{expected}"


def _devices() -> Iterator[Row]:
    try:
        import torch
    except (ImportError, OSError) as error:
        yield "wrong", "import torch", first_line(error)
        return
    yield "ok", "CPU", f"threads: {torch.get_num_threads()}"
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield "ok", f"GPU {index}", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        yield "missing", "MPS", "lacks float64, which gar needs"
    elif not torch.cuda.device_count():
        yield "missing", "CUDA", f"torch {torch.__version__} finds no device"


def _installed(name: str) -> str | None:
    return platform.python_version() if name == "python" else installed_version(name)
