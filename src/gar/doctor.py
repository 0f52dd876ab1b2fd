"""Checks of this machine and this installation, for `gar doctor`.

This module imports only the standard library and `packaging`, so it works where other libraries are broken.
"""

import importlib.metadata
import importlib.util
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement

from gar import __version__
from gar.errors import install_command

CheckStatus = Literal["ok", "missing", "wrong"]
Section = Literal["versions", "devices", "engines", "extras", "setup"]

_ABSENT = "not installed"
_ENGINES = {
    "trl": ("gar train", install_command("trl>=1.16,<1.17")),
    "vllm": ("fast generation: --trl.use_vllm true", install_command("trl[vllm]")),
    "slime": (
        "Megatron on a cluster",
        "install v0.3.0 or later from its repository; on PyPI, slime is another package",
    ),
    "megatron-core": ("split models, under slime", install_command("megatron-core")),
    "verl": (
        "FSDP2 or Megatron on a cluster",
        "pip install verl==0.9.1, in an environment of its own: it needs another transformers",
    ),
}
_EXTRAS = {
    "peft": "LoRA adapters",
    "cluster": "comparisons as Slurm jobs",
    "docs": "building the documentation",
    "dev": "the tests: make test",
}
_PROBE_SECONDS = 120.0
_PROBE = "import json, sys; sys.path[:] = {path!r}; from gar.doctor import {name}; print(json.dumps({name}()))"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One item of the report.

    Attributes:
        section: Section of the output.
        name: What was checked.
        status: "missing" means optional and not installed; "wrong" means any other fault.
        required: Whether gar does not work without it.
        state: A version, what a device has, or what is wrong. `gar doctor --json` calls it "found".
        purpose: What it is needed for.
        advice: What to do; "" for nothing.
    """

    section: Section
    name: str
    status: CheckStatus
    required: bool = False
    state: str
    purpose: str = ""
    advice: str = ""


def examine(folder: Path) -> list[Check]:
    """Run all checks, in the order of their sections. Nothing is left on the disk.

    Args:
        folder: Where runs would go.
    """
    return [*_versions(), *_devices(), *_engines(), *_extras(), *_setup(folder)]


def _versions() -> Iterator[Check]:
    """Python and every dependency in the installed metadata, each against its version range."""
    version = _installed("gar-rl")
    if version is None:
        yield _version(Requirement("gar-rl"), None, "pip install -e . in a clone; the supported versions come with it")
        return
    python = Requirement(f"python{importlib.metadata.metadata('gar-rl')['Requires-Python']}")
    yield _version(python, platform.python_version(), "make an environment with another Python")
    yield _version(Requirement(f"gar=={version}"), __version__, "its metadata has another version: install it again")
    for requirement in _requirements():
        yield _version(requirement, _installed(requirement.name), f"pip install '{requirement}'")


def _version(requirement: Requirement, version: str | None, advice: str) -> Check:
    fits = _fits(requirement, version)
    return Check(
        section="versions",
        name=requirement.name,
        status="ok" if fits else "wrong",
        required=True,
        state=(version or _ABSENT)
        + (f", expected {requirement.specifier}" if requirement.specifier and not fits else ""),
        advice="" if fits else advice,
    )


def _fits(requirement: Requirement, version: str | None) -> bool:
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def _devices() -> Iterator[Check]:
    facts = _probed("probe_torch")
    if "fault" in facts:
        advice = "pip install --force-reinstall torch, in the build for this machine"
        yield Check(section="devices", name="torch", status="wrong", required=True, state=facts["fault"], advice=advice)
        return
    advice = "OMP_NUM_THREADS=1 is faster for tiny models" if facts["threads"] > 1 else ""
    yield Check(section="devices", name="CPU", status="ok", state=f"threads: {facts['threads']}", advice=advice)
    for index, gpu in enumerate(facts["gpus"]):
        advice = "no native bfloat16: --trl.bf16 false" if gpu["capability"] < 8 else ""
        if gpu["fault"]:
            advice = "is its memory in use, or is this build of torch not made for it? CUDA_VISIBLE_DEVICES hides it"
        status, state = ("wrong", gpu["fault"]) if gpu["fault"] else ("ok", gpu["memory"])
        yield Check(
            section="devices", name=f"GPU {index}", status=status, state=f"{gpu['name']}, {state}", advice=advice
        )
    if not facts["gpus"]:
        driver = _has_nvidia_driver()
        state = f"an NVIDIA driver, but torch {facts['build']} finds no device" if driver else "no NVIDIA driver"
        advice = "install the CUDA build of torch for this driver: pytorch.org" if driver else ""
        if facts["mps"]:
            state, advice = "MPS lacks float64, which gar's sums need", "train with --trl.use_cpu true --trl.bf16 false"
        yield Check(section="devices", name="CUDA", status="wrong" if driver else "missing", state=state,
                    purpose="models of real size", advice=advice)  # fmt: skip


def _has_nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None


def _engines() -> Iterator[Check]:
    for name, (purpose, advice) in _ENGINES.items():
        version = _installed(name)
        if name == "slime" and version and not _is_the_engine_slime():
            version = None
        yield _optional("engines", name, version or _ABSENT, purpose, "" if version else advice)


def _is_the_engine_slime() -> bool:
    """Whether the installed slime is the engine, and not another package of that name on PyPI."""
    spec = importlib.util.find_spec("slime")
    folders = spec.submodule_search_locations or () if spec else ()
    return any((Path(folder) / "ray" / "rollout.py").is_file() for folder in folders)


def _extras() -> Iterator[Check]:
    for extra, purpose in _EXTRAS.items():
        wanted = _requirements(extra)
        unmet = [f"{item.name}{item.specifier}" for item in wanted if not _fits(item, _installed(item.name))]
        state = f"missing, or in another version: {', '.join(unmet)}" if unmet else "complete"
        yield _optional("extras", extra, state, purpose, install_command(*unmet) if unmet else "")


def _optional(section: Section, name: str, state: str, purpose: str, advice: str) -> Check:
    status = "missing" if advice else "ok"
    return Check(section=section, name=name, status=status, state=state, purpose=purpose, advice=advice)


def _setup(folder: Path) -> Iterator[Check]:
    for name, probe in (("training", "probe_training"), ("verification", "probe_verification")):
        facts = _probed(probe)
        works = "fault" not in facts
        advice = "" if works else "fix the faults above; if there are none, reinstall the package that the error names"
        yield Check(section="setup", name=name, status="ok" if works else "wrong", required=True,
                    state=facts["state" if works else "fault"], advice=advice)  # fmt: skip
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            state, status, advice = f"can be written, {shutil.disk_usage(existing).free / 2**30:.0f} GiB free", "ok", ""
    except OSError as error:
        state, status, advice = f"cannot be written: {error.strerror}", "wrong", "--records.folder FOLDER"
    yield Check(section="setup", name=f"{folder}/", status=status, required=True, state=state, advice=advice)


def _requirements(extra: str = "") -> list[Requirement]:
    """Requirements of gar on this machine, or those that an extra adds."""
    texts = importlib.metadata.requires("gar-rl") if _installed("gar-rl") else None
    parsed = [Requirement(text) for text in texts or ()]
    always, chosen = (
        [item for item in parsed if item.marker is None or item.marker.evaluate({"extra": name})]
        for name in ("", extra)
    )
    return [item for item in chosen if item not in always] if extra else always


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _probed(name: str) -> dict[str, Any]:
    """Run a probe in a separate process, where a broken library may crash or hang. A failure is `{"fault": text}`."""
    code = _PROBE.format(path=sys.path, name=name)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_PROBE_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"fault": f"no answer within {_PROBE_SECONDS:g} s"}
    if ended.returncode == 0:
        return json.loads(ended.stdout.splitlines()[-1])
    reports = ended.stderr.split("Traceback (most recent call last):\n")[1:]
    errors = [next((line for line in report.splitlines() if line and not line[0].isspace()), "") for report in reports]
    ending = f"ended with status {ended.returncode}"
    return {"fault": " after ".join(dict.fromkeys((errors[-1], errors[0]))) if errors else ending}


def probe_torch() -> dict[str, Any]:
    """Threads, build and devices as torch sees them. Every GPU computes a small product."""
    import torch

    gpus = []
    for index in range(torch.cuda.device_count()):
        properties, fault, memory = torch.cuda.get_device_properties(index), "", ""
        try:
            free, total = torch.cuda.mem_get_info(index)
            memory = f"{free / 2**30:.0f} of {total / 2**30:.0f} GiB free"
            ones = torch.ones(16, 16, device=f"cuda:{index}")
            if (ones @ ones).sum().item() != 16**3:
                fault = "a product came out wrong"
        except RuntimeError as error:  # CUDA's errors and those of memory are subclasses
            fault = str(error).partition("\n")[0]
        gpus.append({"name": properties.name, "capability": properties.major, "memory": memory, "fault": fault})
    mps = torch.backends.mps.is_available()
    return {"threads": torch.get_num_threads(), "build": torch.__version__, "mps": mps, "gpus": gpus}


def probe_training() -> dict[str, str]:
    """Import what `gar train` needs, then run the embedded model once."""
    import torch

    import gar.integrations.trl.trainer  # noqa: F401  the import is the probe
    from gar.models.embedded import load_embedded

    model, tokenizer = load_embedded()
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer.encode("3 + 4 * 7 - 2 =")])).logits
    if not logits.isfinite().all():
        return {"fault": "the embedded model gives logits that are not finite"}
    return {"state": f"embedded model runs: {model.num_parameters():,} parameters"}


def probe_verification() -> dict[str, str]:
    """Grade one answer that needs a parser, so that worker processes start."""
    from gar.verify import Verifier

    with Verifier(num_workers=1) as verifier:
        (verdict,) = verifier.verify([r"<think> 1 - 1/2 </think> <answer> \frac{1}{2} </answer>"], ["0.5"])
    if not verdict.verified:
        return {"fault": f"a right answer was graded '{verdict.status}' {verdict.detail}".strip()}
    return {"state": "one answer graded"}
