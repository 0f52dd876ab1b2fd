"""Configure, check, load, save and merge PEFT adapters. PEFT is an optional dependency."""

import copy
import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gar.errors import ConfigError, ModelError, did_you_mean, first_line
from gar.extras import install_command
from gar.models.families import find_parts
from gar.settings import AdapterSettings

_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"


def import_peft() -> Any:
    """Import `peft`, or raise a `ConfigError` with the command that installs it."""
    try:
        import peft
    except ImportError as error:
        raise ConfigError(
            f"adapters need peft: {error}. Install it with: {install_command('peft')}", code="no-peft"
        ) from error
    return peft


def is_adapted(model: Any) -> bool:
    """Whether the model is a `peft.PeftModel`."""
    return hasattr(model, "get_base_model")


def num_embeddings(model: Any) -> int:
    """Number of rows of the input embeddings, even if an adapter trains some of them."""
    embeddings = model.get_input_embeddings()
    adapter = getattr(embeddings, "token_adapter", None)
    return (embeddings if adapter is None else adapter.get_base_layer()).num_embeddings


def lora_config(model: Any, settings: AdapterSettings, revision: str | None = None) -> Any:
    """Make the `peft.LoraConfig` of a new adapter. None without a rank.

    It stores the base model's `revision`. Fused experts are parameters, not modules, so their names become
    `target_parameters`.
    """
    if settings.rank is None:
        return None
    names, modules, fused = settings.target_modules, _modules(model), _fused_experts(model)
    experts = [name for name in names if not _is_end(name, modules) and _is_end(name, fused)]
    return import_peft().LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules="all-linear" if names == ("all-linear",) else [name for name in names if name not in experts],
        target_parameters=experts or None,
        revision=revision,
    )


def check_adapter(model: Any, settings: AdapterSettings, revision: str | None = None) -> Any:
    """Check that an adapter can be trained and merged. A new one is added to the model and removed again.

    Returns:
        Its `lora_config`.
    """
    config = lora_config(model, settings, revision)
    if config is None:
        if is_adapted(model):
            _check_parts(model)
        return None
    if is_adapted(model):
        raise ConfigError(
            "adapter.rank asks for a new adapter, but model.path is an adapter already. To continue its training, "
            "leave out adapter.rank. To add a new one, use the merged model in RUN/model.",
            code="adapter-on-adapter",
        )
    # A trial finds what PEFT rejects before the preflight takes its time.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the trainer shows them when it adds the adapter
            _check_names(model, config)
            adapted = import_peft().get_peft_model(model, copy.deepcopy(config))
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"PEFT rejects the adapter section: {reason}", code="adapter.target_modules") from error
    try:
        _check_parts(adapted)
    finally:
        adapted.unload()
    return config


def _check_parts(model: Any) -> None:
    find_parts(model)
    check_embeddings(model)


def check_embeddings(model: Any) -> None:
    """Raise a `ModelError` if an adapter changes embeddings that are tied to the LM head."""
    if not is_adapted(model):
        return
    causal = model.get_base_model()
    embeddings = causal.get_input_embeddings()
    if type(embeddings).__module__.startswith("peft.") and causal.config.get_text_config().tie_word_embeddings:
        raise ModelError(
            f"the input embeddings of {type(causal).__name__} have an adapter, and its LM head is tied to them. A "
            "merge would change the head as well. Remove the embeddings from the adapter's target_modules and "
            "modules_to_save.",
            code="adapted-head",
        )


def _check_names(model: Any, config: Any) -> None:
    """Check that every target name matches. PEFT checks only that one does.

    First map the former module names of fused experts (gate_proj, up_proj) to parameters, as PEFT does.
    """
    from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers

    if config.target_modules == "all-linear":
        return
    mapped, known = copy.deepcopy(config), _modules(model)
    convert_peft_config_for_transformers(mapped, model, conversions=None)
    for name in sorted(mapped.target_modules):
        if not _is_end(name, known):
            near = _nearest(name, [*known, *_fused_experts(model)])
            raise ConfigError(
                f"adapter.target_modules: {type(model).__name__} has no module '{name}'.{near}",
                code="adapter.target_modules",
            )


def _modules(model: Any) -> list[str]:
    return [name for name, _ in model.named_modules()]


def _fused_experts(model: Any) -> list[str]:
    """Names of parameters that hold the weights of all experts of a layer: [experts, rows, columns]."""
    return [name for name, parameter in model.named_parameters() if parameter.dim() == 3]


def _is_end(name: str, paths: Iterable[str]) -> bool:
    """Whether a dotted path ends with this name."""
    return any(f".{path}".endswith(f".{name}") for path in paths)


def _nearest(name: str, paths: Iterable[str]) -> str:
    depth = name.count(".") + 1
    ends = dict.fromkeys(".".join(path.split(".")[-depth:]) for path in paths if path)
    return did_you_mean(name, ends) or f" It has {', '.join(list(ends)[:20])}."


class AdapterFiles(NamedTuple):
    """An adapter on disk."""

    folder: Path
    base: str
    """Folder or Hub id of its base model."""
    base_revision: str | None
    has_tokenizer: bool


def find_adapter(path: str, revision: str | None) -> AdapterFiles | None:
    """Find the adapter in a folder or on the Hub. None if there is none."""
    config_file = _optional_file(path, _CONFIG, revision)
    if config_file is None:
        return None
    try:
        config = json.loads(Path(config_file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{config_file}: cannot be read as JSON: {error}", code="adapter-files") from error
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if not base:
        raise ModelError(
            f"{config_file}: base_model_name_or_path must name the model that the adapter is for", code="adapter-files"
        )
    if _optional_file(path, _WEIGHTS, revision) is None:
        raise ModelError(
            f"'{path}' is a PEFT adapter without {_WEIGHTS}. Only safetensors are read: other formats can carry code.",
            code="adapter-files",
        )
    return AdapterFiles(
        folder=Path(config_file).parent,
        base=str(base),
        base_revision=config.get("revision"),
        has_tokenizer=_optional_file(path, "tokenizer_config.json", revision) is not None,
    )


def _optional_file(path: str, name: str, revision: str | None) -> str | None:
    from transformers.utils.hub import cached_file

    try:
        return cached_file(
            path,
            name,
            revision=revision,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    except OSError:  # no such folder or Hub id: loading the model raises an error
        return None


def load_adapter(base: Any, files: AdapterFiles) -> Any:
    """Load the adapter onto its base model. Returns a `peft.PeftModel` that can be trained."""
    peft = import_peft()
    with _misfits(files):
        config = peft.PeftConfig.from_pretrained(str(files.folder))
    if config.is_prompt_learning:
        raise ModelError(
            f"the adapter in '{files.folder}' is {config.peft_type.value}, which puts virtual tokens before the "
            "prompt. Expected an adapter of the model's layers, such as LoRA.",
            code="prompt-adapter",
        )
    with _misfits(files):
        config.inference_mode = False
        config.base_model_name_or_path = None  # get_peft_model sets it to the folder of the base
        model = peft.get_peft_model(base, config)
        report = model.load_adapter(str(files.folder), "default", is_trainable=True)
        for verb, keys in (("lacks", report.missing_keys), ("has in excess", report.unexpected_keys)):
            if keys:
                raise ValueError(f"it {verb} {len(keys)} weights, among them {', '.join(sorted(keys)[:3])}")
    return model


def sort_targets(model: Any) -> None:
    """Sort the target names, because the order of PEFT's sets differs between processes."""
    for config in getattr(model, "peft_config", {}).values():
        for name, value in vars(config).items():
            if isinstance(value, set):
                setattr(config, name, sorted(value))


def save_adapter(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write the trained adapter and the tokenizer, for `load_policy` and PEFT."""
    model.save_pretrained(folder, selected_adapters=model.active_adapters)
    tokenizer.save_pretrained(folder)


def save_merged(model: Any, tokenizer: Any, folder: Path) -> None:
    """Merge the adapter into the weights, in the base model's dtype, and write an ordinary model."""
    try:
        merged = model.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise ModelError(
            f"the adapter cannot be merged: {first_line(error)}. Did training diverge?", code="not-finite"
        ) from error
    merged.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@contextmanager
def _misfits(files: AdapterFiles) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        raise ModelError(
            f"the adapter in '{files.folder}' does not fit its base model '{files.base}': {first_line(error)}. Was it "
            "trained on a different model?",
            code="adapter-misfit",
        ) from error
