"""`gar doctor`: one table of versions, devices and engines, with a command for each missing package.

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
_OPTIONAL = {
    "peft>=0.18": f"LoRA adapters: {install_command('peft')}",
    "torchao": f"8-bit AdamW with stochastic rounding: {install_command('lowbit')}",
    "vllm": f"fast generation, --trl.use_vllm true: {install_command('vllm')}",
    "verl==0.9.1": "FSDP2 or Megatron on a cluster, in a separate environment: docs/integrations/verl.md",
    "slime>=0.3.0": "Megatron on a cluster, in its container: docs/integrations/slime.md",
    "submitit": f"comparisons as Slurm jobs: {install_command('cluster')}",
}


Row = tuple[Literal["ok", "missing", "wrong"], str, str, str]
"""Status, name, what was found and what to do. Without the right version a required item is "wrong", an optional one
"missing"."""


def main(arguments: list[str]) -> int:
    """Run `gar doctor`. The exit status is 1 if a required package is wrong, else 0."""
    argparse.ArgumentParser(
        prog="gar doctor",
        description="Show versions, devices and engines, and the command that adds what is missing. Exit status 1 "
        "if something required is wrong, else 0.",
    ).parse_args(arguments)
    optional = (_version(Requirement(name), advice, otherwise="missing") for name, advice in _OPTIONAL.items())
    training = list(_training())
    rows = [*_required(), *training, *_devices(), *optional]
    table = Table("", "", "found", "what to do", title=f"gar {__version__}", title_justify="left", box=None)
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
        yield "wrong", "gar", _ABSENT, f"{install_command('train')} in a clone"
        return
    python = Requirement(f"python{importlib.metadata.metadata('gar-rl')['Requires-Python']}")
    yield _version(python, "create an environment with a different Python")
    for requirement in map(Requirement, importlib.metadata.requires("gar-rl") or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _version(requirement, f"pip install '{requirement}'")


def _training() -> Iterator[Row]:
    """What `.[train]` adds. In an environment of verl or without TRL it is optional."""
    if _installed("gar-rl") is None:
        return
    optional = _installed("verl") is not None or _installed("trl") is None
    for requirement in map(Requirement, extra_requirements("train")):
        yield _version(requirement, install_command("train"), otherwise="missing" if optional else "wrong")


def _version(requirement: Requirement, advice: str, *, otherwise: Literal["missing", "wrong"] = "wrong") -> Row:
    version = _installed(requirement.name)
    if version is not None and requirement.specifier.contains(version, prereleases=True):
        return "ok", requirement.name, version, ""
    expected = f", expected {requirement.specifier}" if requirement.specifier else ""
    return otherwise, requirement.name, f"{version or _ABSENT}{expected}", advice


def _devices() -> Iterator[Row]:
    try:
        import torch
    except (ImportError, OSError) as error:
        advice = "pip install --force-reinstall torch, in the build for this machine"
        yield "wrong", "import torch", first_line(error), advice
        return
    yield "ok", "CPU", f"threads: {torch.get_num_threads()}", ""
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield "ok", f"GPU {index}", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB", ""
    if torch.backends.mps.is_available():
        advice = "train with --trl.use_cpu true --trl.bf16 false"
        yield "missing", "MPS", "lacks float64, which gar needs", advice
    elif not torch.cuda.device_count():
        found = f"torch {torch.__version__} finds no device"
        yield "missing", "CUDA", found, "with a GPU: install the build of torch for its driver, from pytorch.org"


def _installed(name: str) -> str | None:
    return platform.python_version() if name == "python" else installed_version(name)
