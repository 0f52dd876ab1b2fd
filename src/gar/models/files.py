"""What the files of a model's folder say, without torch: its modules, its tokenizer."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gar.errors import ConfigError, ModelError, did_you_mean
from gar.models.embedded import model_path

_TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "merges.txt", "tekken.json")


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
    """The modules with weights in a folder's safetensors files. Empty if one cannot be read."""
    from safetensors import SafetensorError, safe_open

    names: set[str] = set()
    try:
        for file in folder.glob("*.safetensors"):
            with safe_open(file, framework="np") as weights:
                names |= {name.rpartition(".")[0] for name in weights.keys()}  # noqa: SIM118 (no dict)
    except (OSError, SafetensorError):  # loading explains it
        return set()
    return names
