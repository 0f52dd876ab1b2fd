"""Read the files of a model's folder without torch: its architecture, embeddings, modules and tokenizer."""

import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from gar.errors import ConfigError, ModelError, did_you_mean
from gar.models.embedded import model_path
from gar.models.hub import check_model_name, read_config
from gar.settings import ModelSettings

_TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "merges.txt", "tekken.json")
_EMBEDDINGS = "model.embed_tokens.weight"


def check_model(settings: ModelSettings) -> None:
    """Check what can be known about a model before torch is loaded: its name, and the files of its folder.

    Raises:
        ConfigError: transformers has no attention of that name.
        ModelError: There is no such model, or its files do not make one that transformers loads.
    """
    check_model_name(settings.path)
    if "transformers" not in sys.modules:  # a plugin that loads it may register more
        _check_architecture(settings.path)
        _check_attention(settings.attention)
    _check_embeddings(settings.path)
    _check_tokenizer_files(settings.path)


def _check_architecture(name: str) -> None:
    kind, known = read_config(Path(model_path(name))).get("model_type"), causal_model_types()
    if kind is not None and known and kind not in known:
        raise ModelError(
            f"{name}: config.json says model_type {kind!r}, and transformers {version('transformers')} has no causal "
            f"language model of that type.{did_you_mean(str(kind), known)} Is a newer version needed?",
            code="cannot-load",
        )


def _check_attention(name: str | None) -> None:
    known = attention_names()
    if name is not None and known and "/" not in name and name not in known:  # a slash: a kernel of the Hub
        raise ConfigError(
            f"model.attention: transformers has no attention '{name}'. Expected one of {', '.join(known)}.",
            code="model.attention",
        )


def causal_model_types() -> list[str]:
    """The model types that transformers has a causal language model for, read from its text. Empty if not found."""
    return _listed("models/auto/modeling_auto.py", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = ", r'\("([^"]+)",')


def attention_names() -> list[str]:
    """The names that transformers has an attention for, read from its text. Empty if not found."""
    names = _listed("modeling_utils.py", "class AttentionInterface(", r'"([^"]+)": \w+_forward,')
    return names and ["eager", *names]


def _listed(file: str, start: str, entry: str) -> list[str]:
    """What the entries of one object in a file of transformers name, without importing it."""
    found = importlib.util.find_spec("transformers")
    path = found and found.origin and Path(found.origin).parent / file
    if not path or not path.is_file():
        return []
    _, _, rest = path.read_text(encoding="utf-8").partition(f"\n{start}")
    return re.findall(entry, re.split(r"\n(?=[^\s#)])", rest)[0])


def _check_embeddings(name: str) -> None:
    """Raise a `ModelError` if a folder's embeddings have another shape than its config.json says."""
    folder = Path(model_path(name))
    config = read_config(folder)
    expected = [config.get("vocab_size"), config.get("hidden_size")]
    stored = _weight_shapes(folder).get(_EMBEDDINGS)
    if all(expected) and stored is not None and stored != expected:
        raise mismatched(name, _EMBEDDINGS, stored, expected)


def mismatched(name: str, weight: str, stored: Sequence[int], expected: Sequence[int | None]) -> ModelError:
    """The error for a weight that has another shape than the configuration."""
    return ModelError(
        f"the checkpoint of '{name}' does not fit its config.json: {weight} is {list(stored)}, expected "
        f"{list(expected)}. Is config.json that of a different model?",
        code="mismatched-weights",
    )


def _check_tokenizer_files(name: str) -> None:
    """Raise a `ModelError` if the folder of a whole model has no file of a tokenizer."""
    folder = Path(model_path(name))
    if (folder / "config.json").is_file() and not any(next(folder.glob(each), None) for each in _TOKENIZERS):
        raise ModelError(
            f"{name}: the folder has a model and no tokenizer (tokenizer.json). Save both: "
            f"tokenizer.save_pretrained('{name}').",
            code="no-tokenizer",
        )


def has_chat_template(name: str) -> bool | None:
    """Whether the tokenizer in a model's folder has a chat template. None if the folder does not say."""
    folder = Path(model_path(name))
    file = folder / "tokenizer_config.json"
    if any((folder / template).exists() for template in ("chat_template.jinja", "additional_chat_templates")):
        return True
    try:
        return "chat_template" in json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none, or loading explains it
        return None


def check_targets(name: str, targets: Sequence[str]) -> None:
    """Raise a `ConfigError` if no module in a model's files has the name of an adapter's target.

    Models with experts are judged when they are loaded: transformers renames what it fuses.
    """
    modules = {weight.rpartition(".")[0] for weight in _weight_shapes(Path(model_path(name)))}
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


def _weight_shapes(folder: Path) -> dict[str, list[int]]:
    """The shape of each weight in a folder's safetensors files. Empty if one cannot be read."""
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, list[int]] = {}
    try:
        for file in folder.glob("*.safetensors"):
            with safe_open(file, framework="np") as weights:
                shapes |= {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118 (no dict)
    except (OSError, SafetensorError):  # loading explains it
        return {}
    return shapes
