"""`gar doctor`: one table of installed versions, devices, engines, and the command that adds what is missing.

Imports the standard library, `packaging` and `rich` alone, so it works if other libraries are broken.
"""

import argparse
import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from rich.table import Table
from rich.text import Text

from gar import __version__
from gar.cli.console import show
from gar.errors import install_command

_STYLES = {"ok": "green", "missing": "yellow", "wrong": "bold red"}
_ABSENT = "not installed"
_OPTIONAL = {
    "peft": ("LoRA adapters", install_command("peft")),
    "vllm": ("fast generation: --trl.use_vllm true", install_command("trl[vllm]")),
    "verl": (
        "FSDP2 or Megatron on a cluster",
        "pip install verl==0.9.1 in a separate environment: it needs a different transformers",
    ),
    "slime": (
        "Megatron on a cluster",
        "install v0.3.0 or later from its repository (slime on PyPI is a different package)",
    ),
    "megatron-core": ("split models, under slime", install_command("megatron-core")),
    "submitit": ("comparisons as Slurm jobs", install_command("submitit")),
}


class Item(NamedTuple):
    """A row: its name, its version or what is wrong, and what to do about it.

    A "missing" item is optional. A "wrong" one is required, and absent, broken or of the wrong version.
    """

    status: Literal["ok", "missing", "wrong"]
    name: str
    found: str
    advice: str = ""


def main(arguments: list[str]) -> int:
    """Run `gar doctor`. The exit status is 1 if a required package is wrong, else 0."""
    argparse.ArgumentParser(
        prog="gar doctor",
        description="Show versions, devices and engines, and the command that adds what is missing. Exit status 1 "
        "if something required is wrong, else 0.",
    ).parse_args(arguments)
    items = [*_versions(), *_devices(), *_optional()]
    table = Table("", "", "found", "what to do", title=f"gar {__version__}", title_justify="left", box=None)
    for status, *cells in items:
        table.add_row(Text(status, style=_STYLES[status]), *map(Text, cells))
    show(table)
    wrong = [item for item in items if item.status == "wrong"]
    if not wrong:
        show("Ready. Start with: gar train --preset demo", style="bold green")
        return 0
    show("Not ready:", style="bold red")
    for item in wrong:
        show(f"  {item.name}: {item.found}")
    return 1


def _versions() -> Iterator[Item]:
    """Python and every dependency in the installed metadata, each against its version range."""
    if _installed("gar-rl") is None:
        yield Item("wrong", "gar", _ABSENT, "pip install . in a clone")
        return
    python = Requirement(f"python{importlib.metadata.metadata('gar-rl')['Requires-Python']}")
    yield _version(python, platform.python_version(), "create an environment with a different Python")
    for requirement in map(Requirement, importlib.metadata.requires("gar-rl") or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _version(requirement, _installed(requirement.name), f"pip install '{requirement}'")


def _version(requirement: Requirement, version: str | None, advice: str) -> Item:
    if version is not None and requirement.specifier.contains(version, prereleases=True):
        return Item("ok", requirement.name, version)
    expected = f", expected {requirement.specifier}" if requirement.specifier else ""
    return Item("wrong", requirement.name, f"{version or _ABSENT}{expected}", advice)


def _devices() -> Iterator[Item]:
    try:
        import torch
    except (ImportError, OSError) as error:
        advice = "pip install --force-reinstall torch, in the build for this machine"
        yield Item("wrong", "import torch", str(error).partition("\n")[0], advice)
        return
    yield Item("ok", "CPU", f"threads: {torch.get_num_threads()}")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        advice = "no native bfloat16: --trl.bf16 false" if properties.major < 8 else ""
        memory = f"{properties.total_memory / 2**30:.0f} GiB"
        yield Item("ok", f"GPU {index}", f"{properties.name}, {memory}", advice)
    if not torch.cuda.device_count():
        driver = Path("/proc/driver/nvidia").exists()
        found = f"an NVIDIA driver, but torch {torch.__version__} finds no device" if driver else "no NVIDIA driver"
        advice = "install the CUDA build of torch for this driver: pytorch.org" if driver else ""
        if torch.backends.mps.is_available():
            found, advice = "MPS lacks float64, which gar needs", "train with --trl.use_cpu true --trl.bf16 false"
        yield Item("missing", "CUDA", found, advice)


def _optional() -> Iterator[Item]:
    for name, (purpose, command) in _OPTIONAL.items():
        version = _installed(name)
        if version is None or (name == "slime" and not _is_the_engine_slime()):
            yield Item("missing", name, _ABSENT, f"{purpose}: {command}")
        else:
            yield Item("ok", name, version)


def _is_the_engine_slime() -> bool:
    """Whether the installed slime is the engine, and not another package of that name on PyPI."""
    spec = importlib.util.find_spec("slime")
    folders = spec.submodule_search_locations or () if spec else ()
    return any((Path(folder) / "ray" / "rollout.py").is_file() for folder in folders)


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
