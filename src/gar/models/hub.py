"""Check that a model exists before anything is loaded: transformers would retry for minutes."""

import json
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gar.errors import ModelError, did_you_mean, first_line
from gar.models.embedded import model_path
from gar.reader import stretched_context

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+|[\w.-]+")
_FILES = ("config.json", "adapter_config.json", "tokenizer_config.json")
_SECONDS = 5.0
"""Timeout of the request to the Hub."""


@cache
def check_model_name(name: str, revision: str | None = None) -> None:
    """Reject a name (`ModelSettings.path`) that is no packaged model, folder with a model, or model on the Hub."""
    folder = Path(model_path(name))
    if folder.is_dir():
        if not any((folder / file).is_file() for file in _FILES):
            inner = folder / "model"
            hint = f" Its model is in {inner}." if (inner / "config.json").is_file() else ""
            raise _no_model(f"'{name}' is a folder without {_FILES[0]}, so it holds no model.{hint}")
        _check_config(folder / _FILES[0])
    elif folder.is_file():
        raise _no_model(f"'{name}' is a file, expected a folder or a Hub id.")
    elif not _HUB_ID.fullmatch(name):
        raise _no_model(f"there is no folder '{name}', and this is not the form of a Hub id.{_nearest(name)}")
    else:
        _check_hub(name, revision)


def _check_config(file: Path) -> None:
    """Reject a config.json that transformers cannot read. An adapter has none."""
    if not file.is_file():
        return
    expected = "Expected the JSON of a model of transformers. Was the model saved whole?"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _no_model(f"{file}: not valid JSON: {error}. {expected}") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise _no_model(f"{file}: no model_type in it, which names the architecture. {expected}")


def _no_model(text: str) -> ModelError:
    return ModelError(text, code="no-model")


def _check_hub(name: str, revision: str | None) -> None:
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    with suppress(HFValidationError):  # the Hub rejects such a name too
        if any(isinstance(try_to_load_from_cache(name, file, revision=revision), str) for file in _FILES):
            return
    error = hub_error("model", name, revision)
    if error is None:
        return
    why = f"no model '{name}' on this machine"
    if constants.HF_HUB_OFFLINE:
        why += ": there is no folder of that name, it is not in the cache of the Hub, and HF_HUB_OFFLINE is set."
    elif isinstance(error, (RepositoryNotFoundError, HFValidationError)):
        why = f"no model '{name}': there is no folder of that name, and the Hub has none, or none that you may see."
    else:
        why += f", and the Hub gives none{f' at revision {revision}' if revision else ''} ({first_line(error)})."
    raise _no_model(why + _nearest(name)) from error


def hub_error(kind: Literal["model", "dataset"], name: str, revision: str | None) -> Exception | None:
    """The error with which the Hub answers when asked for a model or a data set. None if it is there, gated or not."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError

    try:
        getattr(HfApi(), f"{kind}_info")(name, revision=revision, timeout=_SECONDS)
    except GatedRepoError:
        return None  # loading it explains how to ask for access
    except hub_failures() as error:
        return error
    return None


def hub_failures() -> tuple[type[Exception], ...]:
    """The exceptions of a request to the Hub: the base of the HTTP library's errors, OSError, a bad name."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    return (*HfHubHTTPError.__bases__, HFValidationError)  # pyright: ignore[reportReturnType]


def is_adapter(name: str, revision: str | None = None) -> bool:
    """Whether a model is a PEFT adapter, by its files on this machine, else on the Hub."""
    if _file_here(name, "adapter_config.json", revision):
        return True
    if Path(model_path(name)).is_dir() or _file_here(name, "config.json", revision):
        return False
    from huggingface_hub import file_exists

    with suppress(*hub_failures()):
        return file_exists(name, "adapter_config.json", revision=revision)
    return False


def context_before_loading(name: str, revision: str | None = None) -> int | None:
    """Context length of a model in tokens, from its config.json on this machine. None if the file has none."""
    file = _file_here(name, "config.json", revision)
    if file is None:
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return None  # transformers explains it
    config = config.get("text_config", config)
    length, rope = config.get("max_position_embeddings"), config.get("rope_parameters") or config.get("rope_scaling")
    return stretched_context(length, rope) if isinstance(length, int) else None


def _file_here(name: str, file: str, revision: str | None) -> Path | None:
    """A file of a model on this machine. None if it is not there."""
    folder = Path(model_path(name))
    found: Any = folder / file
    if not folder.is_dir():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        with suppress(HFValidationError):
            found = try_to_load_from_cache(name, file, revision=revision)
    return Path(found) if isinstance(found, (str, Path)) and Path(found).is_file() else None


def _nearest(name: str) -> str:
    """A sentence with the closest name of a model on this machine. "" if none is close."""
    from huggingface_hub import constants

    parent, cached = Path(name).parent, Path(constants.HF_HUB_CACHE)
    beside = [str(path) for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
    known = [path.name.removeprefix("models--").replace("--", "/") for path in cached.glob("models--*")]
    return did_you_mean(name, ["embedded", *beside, *known])
