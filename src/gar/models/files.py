"""Read the files of a model's folder without torch: its weights, its modules, its tokenizer."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, ModelError, did_you_mean
from gar.models.embedded import model_path

_TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "merges.txt", "tekken.json")
_HEADER_BYTES = 100_000_000  # the format's own limit
_INDEX = "model.safetensors.index.json"


def check_weight_files(name: str) -> None:
    """Raise a `ModelError` if the folder of a whole model lacks a file of weights, or one is cut off."""
    folder = Path(model_path(name))
    if not (folder / "config.json").is_file():
        return
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise _no_weights(f"{name}: no weights (*.safetensors) beside config.json.")
    for file in files:
        try:
            end = max((values["data_offsets"][1] for values in _tensors(file).values()), default=0)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise _no_weights(f"{file}: not a file of safetensors.") from error
        if file.stat().st_size < _data_start(file) + end:
            raise _no_weights(f"{file}: cut off, {file.stat().st_size:,} of {_data_start(file) + end:,} bytes.")
    for shard in _shards(folder):
        if not (folder / shard).is_file():
            raise _no_weights(f"{name}: {_INDEX} lists {shard}, which is missing.")


def _no_weights(text: str) -> ModelError:
    return ModelError(f"{text} Was the model saved or downloaded whole?", code="missing-weights")


def check_tokenizer_files(name: str) -> None:
    """Raise a `ModelError` if the folder of a whole model has no file of a tokenizer."""
    folder = Path(model_path(name))
    if (folder / "config.json").is_file() and not any(next(folder.glob(each), None) for each in _TOKENIZERS):
        raise ModelError(
            f"{name}: the folder has a model and no tokenizer (tokenizer.json). Save both: "
            f"tokenizer.save_pretrained('{name}').",
            code="no-tokenizer",
        )


def check_targets(name: str, targets: Sequence[str]) -> None:
    """Raise a `ConfigError` if no module in a model's files has the name of an adapter's target.

    Models with experts are judged when they are loaded: transformers renames what it fuses.
    """
    modules = _module_names(Path(model_path(name)))
    if not modules or targets == ("all-linear",) or any("experts" in module for module in modules):
        return
    for target in targets:
        if target == "lm_head":
            raise ConfigError(
                "adapter.target_modules has lm_head, and GAR's vectors are computed from the head without an adapter. "
                "Remove it.",
                code="adapted-head",
            )
        if not is_end(target, modules):
            raise no_module(name, target, sorted(modules))


def is_end(name: str, paths: Iterable[str]) -> bool:
    """Whether a dotted path ends with this name."""
    return any(f".{path}".endswith(f".{name}") for path in paths)


def no_module(model: str, target: str, modules: Iterable[str]) -> ConfigError:
    """The error about a target that is the name of no module, with the nearest names, or some of them."""
    depth = target.count(".") + 1
    ends = dict.fromkeys(".".join(module.split(".")[-depth:]) for module in modules if module)
    near = did_you_mean(target, ends) or f" It has {', '.join(list(ends)[:20])}."
    code = "adapter.target_modules"
    return ConfigError(f"{code}: {model} has no module '{target}'.{near}", code=code)


def num_tokens(name: str, text: str) -> int | None:
    """Number of tokens of a text, from the folder's tokenizer.json. None without one."""
    file = Path(model_path(name)) / "tokenizer.json"
    if not file.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        return len(Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False).ids)
    except Exception:  # tokenizers raises no narrower one. transformers explains it when it loads the file
        return None


def _module_names(folder: Path) -> set[str]:
    """The modules with weights in a folder's safetensors files. Empty if none can be read."""
    names: set[str] = set()
    for file in folder.glob("*.safetensors"):
        try:
            names |= _tensors(file).keys()
        except (OSError, ValueError):
            return set()
    return {name.rpartition(".")[0] for name in names}


def _tensors(file: Path) -> dict[str, Any]:
    """The header of a safetensors file: type, shape and place of each tensor by name. A `ValueError` if it has none."""
    length = _data_start(file) - 8
    if length > _HEADER_BYTES:
        raise ValueError(f"a header of {length} bytes")
    with file.open("rb") as opened:
        header = json.loads(opened.read(8 + length)[8:])
    return {name: values for name, values in header.items() if name != "__metadata__"}


def _data_start(file: Path) -> int:
    """Where the tensors of a safetensors file begin, in bytes: after the length of the header, and the header."""
    with file.open("rb") as opened:
        return 8 + int.from_bytes(opened.read(8), "little")


def _shards(folder: Path) -> set[str]:
    """The files that the index of a model in several files lists."""
    try:
        return set(json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return set()
