"""Versions, engines and extras: what is installed, what it makes possible, what to install for the rest.

Ranges and extras are those of the installed metadata of `gar-rl`. No package is imported.
"""

import importlib.util
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from gar import __version__
from gar.doctor.check import Check, Section
from gar.doctor.packages import (
    DISTRIBUTION,
    Need,
    conflicts,
    extra_needs,
    in_range,
    installed_version,
    metadata_values,
    needs,
)

_ABSENT = "not installed"
_PURPOSES = {
    "vllm": "fast generation: --trl.use_vllm true",
    "peft": "LoRA adapters",
    "contamination": "near-duplicates in gar eval contamination",
    "inspect": "benchmarks as tasks of Inspect",
    "docs": "building the documentation",
    "dev": "the tests: make test",
}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def version_checks() -> list[Check]:
    """Python, gar and its dependencies, each in its range; then whether what these need in turn is there."""
    installed = installed_version(DISTRIBUTION)
    if installed is None:
        return [_version_check("gar", None, "", "pip install -e . in a clone; the supported versions come with it")]
    (python_range,) = metadata_values("Requires-Python")
    return [
        _version_check("python", platform.python_version(), python_range, "make an environment with another Python"),
        _version_check("gar", __version__, f"=={installed}", "its metadata is of another version: install it again"),
        *(
            _version_check(need.name, need.version, need.specifier, f"pip install '{need.requirement}'")
            for need in needs(DISTRIBUTION)
        ),
        _conflict_check(conflicts()),
    ]


def _version_check(name: str, version: str | None, specifier: str, advice: str) -> Check:
    fits = version is not None and in_range(version, specifier)
    expected = f", expected {specifier}" if specifier and not fits else ""
    return Check(
        section="versions",
        name=name,
        status="ok" if fits else "wrong",
        required=True,
        found=(version or _ABSENT) + expected,
        advice="" if fits else advice,
    )


def _conflict_check(unmet: Sequence[Need]) -> Check:
    texts = [f"{need.needed_by} needs {need.requirement}, got {need.version or 'none'}" for need in unmet]
    return Check(
        section="versions",
        name="conflicts",
        status="wrong" if unmet else "ok",
        required=True,
        found="; ".join(texts) or "none among the dependencies and theirs",
        advice="pip install " + " ".join(f"'{need.requirement}'" for need in unmet) if unmet else "",
    )


def engine_checks() -> list[Check]:
    """What can run a policy: TRL and vLLM here, and the engines of a cluster."""
    trl = installed_version("trl")
    trl_fits = trl is not None and all(need.met for need in needs(DISTRIBUTION) if need.name == "trl")
    return [
        Check(
            section="engines",
            name="TRL",
            status="ok" if trl_fits else "wrong",
            found=trl or _ABSENT,
            purpose="training: gar train",
            advice="" if trl_fits else "see versions",
        ),
        *(_extra_check(extra, "engines") for extra in metadata_values("Provides-Extra") if extra == "vllm"),
        _cluster_check(
            "slime",
            version=_slime_version(),
            purpose="the paper's own stack on a cluster",
            advice="install v0.3.0 or later from its repository; on PyPI, slime is another package",
        ),
        _cluster_check(
            "megatron-core",
            version=installed_version("megatron-core"),
            integration="slime",
            purpose="split models, under slime",
            advice="pip install megatron-core",
        ),
        _cluster_check(
            "verl",
            version=installed_version("verl"),
            purpose="FSDP2 on a cluster",
            advice="pip install verl, in an environment of its own: it cannot share one with this TRL",
        ),
    ]


def _cluster_check(name: str, *, version: str | None, purpose: str, advice: str, integration: str = "") -> Check:
    integrated = importlib.util.find_spec(f"gar.integrations.{integration or name}") is not None
    usable = version is not None and integrated
    return Check(
        section="engines",
        name=name,
        status="ok" if usable else "missing",
        found=version or _ABSENT,
        purpose=purpose,
        advice="" if usable else advice if integrated else f"gar {__version__} has no integration for it",
    )


def _slime_version() -> str | None:
    """Of the engine, which another package on PyPI shares its name with."""
    spec = importlib.util.find_spec("slime")
    folders = spec.submodule_search_locations or () if spec else ()
    if not any((Path(folder) / "ray" / "rollout.py").is_file() for folder in folders):
        return None
    return installed_version("slime") or "of unknown version"


def extra_checks() -> list[Check]:
    """Our extras but vllm, which is an engine, and two programs that are of use beside them."""
    has_triton = importlib.util.find_spec("triton") is not None
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    return [
        *(_extra_check(extra, "extras") for extra in metadata_values("Provides-Extra") if extra != "vllm"),
        Check(
            section="extras",
            name="triton",
            status="ok" if has_triton else "missing",
            found=installed_version("triton") or ("of unknown version" if has_triton else _ABSENT),
            purpose="torch.compile on a GPU",
            advice="" if has_triton else "comes with the CUDA builds of torch for Linux",
        ),
        Check(
            section="extras",
            name="chromium",
            status="ok" if browser else "missing",
            found=browser or "not on the PATH",
            purpose="the tests marked browser",
            advice="" if browser else "install Chromium or Chrome",
        ),
    ]


def _extra_check(extra: str, section: Section) -> Check:
    wanted = [need for need in extra_needs(extra) if not need.extras]  # those are dependencies, checked above
    absent = [need.name for need in wanted if need.version is None]
    unfit = [
        f"{need.name} {need.version}, expected {need.specifier}" for need in wanted if need.version and not need.met
    ]
    if len(absent) == len(wanted):
        found = _ABSENT
    elif absent or unfit:
        found = "; ".join([*unfit, *([f"without {', '.join(absent)}"] if absent else [])])
    else:
        found = wanted[0].version or "" if len(wanted) == 1 else f"all {len(wanted)} packages"
    return Check(
        section=section,
        name=extra,
        status="wrong" if unfit else "missing" if absent else "ok",
        found=found,
        purpose=_PURPOSES.get(extra, ""),
        advice=f"pip install '{DISTRIBUTION}[{extra}]'" if absent or unfit else "",
    )
