"""Check the name of a model, and its context, before anything is loaded."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, ModelError, did_you_mean
from gar.models.embedded import model_path
from gar.models.rope import stretched_context

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+|[\w.-]+")
_FILES = ("config.json", "adapter_config.json", "tokenizer_config.json")


def check_model_name(name: str) -> None:
    """Reject a name (`ModelSettings.path`) that is no packaged model, folder with a model, or Hub id.

    Asks no network: loading reports what the Hub lacks.
    """
    from huggingface_hub import constants  # not in the base

    folder = Path(model_path(name))
    if folder.is_dir():
        if not any((folder / file).is_file() for file in _FILES):
            hint = f" Its model is in {folder / 'model'}." if (folder / "model" / "config.json").is_file() else ""
            raise _no_model(f"'{name}' is a folder without {_FILES[0]}, so it holds no model.{hint}")
        read_config(folder)
    elif folder.is_file():
        raise _no_model(f"'{name}' is a file, expected a folder or a Hub id.")
    elif not _HUB_ID.fullmatch(name):
        raise _no_model(f"there is no folder '{name}', and this is not the form of a Hub id.{_nearest(name)}")
    elif "/" not in name:
        raise _no_model(f"no folder '{name}', and a Hub id is OWNER/NAME.{_nearest(name)}")
    elif constants.HF_HUB_OFFLINE and not Path(constants.HF_HUB_CACHE, f"models--{name.replace('/', '--')}").exists():
        raise _no_model(
            f"no model '{name}' on this machine: there is no folder of that name, it is not in the cache of the Hub, "
            "and HF_HUB_OFFLINE is set."
        )


def check_response_length(name: str, length: int, setting: str) -> None:
    """Raise a `ConfigError` if the longest response fills the context of a model's folder, which holds the prompt too.

    `setting` is the name of `length`.
    """
    context = context_before_loading(name)
    if context is not None and length >= context:
        raise ConfigError(
            f"{setting} is {length}, but the context of {name} is {context} tokens, prompt included. Lower it."
        )


def context_before_loading(name: str) -> int | None:
    """Context length of a model in tokens, from the config.json in its folder. None if the file has none."""
    config = read_config(Path(model_path(name)))
    config = config.get("text_config", config)
    length, rope = config.get("max_position_embeddings"), config.get("rope_parameters") or config.get("rope_scaling")
    return stretched_context(length, rope) if isinstance(length, int) else None


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a folder, as transformers can read it. Empty without one: an adapter has none."""
    file = folder / "config.json"
    if not file.is_file():
        return {}
    expected = "Expected the JSON of a model of transformers. Was the model saved whole?"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _no_model(f"{file}: not valid JSON: {error}. {expected}") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise _no_model(f"{file}: no model_type in it, which names the architecture. {expected}")
    return config


def _no_model(text: str) -> ModelError:
    return ModelError(text, code="no-model")


def is_adapter(name: str, revision: str | None = None) -> bool:
    """Whether a model is a PEFT adapter, by its files on this machine."""
    if Path(model_path(name)).is_dir():
        return Path(model_path(name), "adapter_config.json").is_file()
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    with suppress(HFValidationError):
        return isinstance(try_to_load_from_cache(name, "adapter_config.json", revision=revision), str)
    return False


def _nearest(name: str) -> str:
    """A sentence with the closest name of a model on this machine. "" if none is close."""
    parent = Path(name).parent
    beside = [str(path) for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
    return did_you_mean(name, ["embedded", *beside])
