"""Examine this machine and this installation, for `gar doctor`.

Imports only the standard library and `packaging`, so it works if other libraries are broken.
"""

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from gar.errors import install_command

Status = Literal["ok", "missing", "wrong"]

_ABSENT = "not installed"
_OPTIONAL = {
    "peft": ("LoRA adapters", install_command("peft")),
    "vllm": ("fast generation: --trl.use_vllm true", install_command("trl[vllm]")),
    "verl": (
        "FSDP2 or Megatron on a cluster",
        "pip install verl==0.9.1, in an environment of its own: it needs another transformers",
    ),
    "slime": (
        "Megatron on a cluster",
        "install v0.3.0 or later from its repository (slime on PyPI is a different package)",
    ),
    "megatron-core": ("split models, under slime", install_command("megatron-core")),
    "submitit": ("comparisons as Slurm jobs", install_command("submitit")),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A row of the table.

    Attributes:
        name: A package or a device.
        status: "missing": optional and not there. "wrong": gar does not work with it, or without it.
        found: A version, what a device has, or what is wrong.
        advice: Its purpose, and the command that adds it. Empty if nothing is to do.
    """

    name: str
    status: Status
    found: str
    advice: str = ""


def examine() -> list[Item]:
    """The rows: versions, devices, engines and other optional packages."""
    return [*_versions(), *_devices(), *_optional()]


def _versions() -> Iterator[Item]:
    """Python and every dependency in the installed metadata, each against its version range."""
    if _installed("gar-rl") is None:
        yield Item(name="gar", status="wrong", found=_ABSENT, advice="pip install . in a clone")
        return
    python = Requirement(f"python{importlib.metadata.metadata('gar-rl')['Requires-Python']}")
    yield _version(python, platform.python_version(), "make an environment with another Python")
    parsed = (Requirement(text) for text in importlib.metadata.requires("gar-rl") or ())
    for requirement in parsed:
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _version(requirement, _installed(requirement.name), f"pip install '{requirement}'")


def _version(requirement: Requirement, version: str | None, advice: str) -> Item:
    if version is not None and requirement.specifier.contains(version, prereleases=True):
        return Item(name=requirement.name, status="ok", found=version)
    expected = f", expected {requirement.specifier}" if requirement.specifier else ""
    return Item(name=requirement.name, status="wrong", found=f"{version or _ABSENT}{expected}", advice=advice)


def _devices() -> Iterator[Item]:
    try:
        import torch
    except (ImportError, OSError) as error:
        advice = "pip install --force-reinstall torch, in the build for this machine"
        yield Item(name="import torch", status="wrong", found=str(error).partition("\n")[0], advice=advice)
        return
    yield Item(name="CPU", status="ok", found=f"threads: {torch.get_num_threads()}")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        advice = "no native bfloat16: --trl.bf16 false" if properties.major < 8 else ""
        memory = f"{properties.total_memory / 2**30:.0f} GiB"
        yield Item(name=f"GPU {index}", status="ok", found=f"{properties.name}, {memory}", advice=advice)
    if not torch.cuda.device_count():
        driver = Path("/proc/driver/nvidia").exists()
        found = f"an NVIDIA driver, but torch {torch.__version__} finds no device" if driver else "no NVIDIA driver"
        advice = "install the CUDA build of torch for this driver: pytorch.org" if driver else ""
        if torch.backends.mps.is_available():
            found, advice = "MPS lacks float64, which gar needs", "train with --trl.use_cpu true --trl.bf16 false"
        yield Item(name="CUDA", status="missing", found=found, advice=advice)


def _optional() -> Iterator[Item]:
    for name, (purpose, command) in _OPTIONAL.items():
        version = _installed(name)
        if version is None or (name == "slime" and not _is_the_engine_slime()):
            yield Item(name=name, status="missing", found=_ABSENT, advice=f"{purpose}: {command}")
        else:
            yield Item(name=name, status="ok", found=version)


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
