"""Load a policy and its tokenizer."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gar.errors import ModelError, first_line
from gar.models.adapters import AdapterFiles, find_adapter, import_peft, load_adapter, num_embeddings
from gar.models.embedded import model_path
from gar.models.files import mismatched
from gar.records.checkpoints import check_saved_model
from gar.settings import ModelSettings


def load_policy(settings: ModelSettings, *, trains_all: bool = False) -> tuple[Any, Any]:
    """Load a causal language model that can be trained, and its tokenizer with padding on the left.

    A PEFT adapter is loaded on top of the base model that its adapter_config.json names. The result is a
    `peft.PeftModel`. Only safetensors are read, and no code from the Hub is run.

    Args:
        settings: Name, dtype and attention.
        trains_all: All weights are to be trained, unless the model is an adapter. `auto` is then float32, since small
            updates of 16-bit weights round to nothing.

    Raises:
        ConfigError: The model is an adapter, and peft is not installed.
        ModelError: The folder or Hub id cannot be loaded, with the library's reason. Weights are missing from the
            checkpoint. An adapter's base cannot be loaded or does not fit, or the tokenizer is empty, has no
            end-of-sequence token, or does not fit the embeddings.
        RecordError: The model is in a run folder, and a file differs from what the run has saved.
    """
    check_saved_model(model_path(settings.path))
    adapter = find_adapter(model_path(settings.path), settings.revision)
    if adapter is not None:
        return _load_adapted(settings, adapter)
    tokenizer = load_tokenizer(settings.path, settings.revision)
    if trains_all and settings.dtype == "auto":
        settings = settings.model_copy(update={"dtype": "float32"})
    model = _load_model(settings, settings.path, settings.revision)
    _check_tokenizer(tokenizer, model, settings.path)
    return model, tokenizer


def quiet_libraries() -> None:
    """Silence output that users cannot act on: progress bars of weights, and deprecation warnings inside libraries."""
    from huggingface_hub.utils import enable_progress_bars
    from transformers.utils import logging

    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|trl|accelerate|peft)\.")
    logging.disable_progress_bar()
    if sys.stderr.isatty():
        enable_progress_bars()  # of downloads, which the line above disables too


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """Load the tokenizer of a model, with padding on the left.

    Args:
        name: As `ModelSettings.path`.
        revision: Branch, tag or commit on the Hub.

    Raises:
        ModelError: It cannot be loaded, with the library's reason.
    """
    from transformers import AutoTokenizer

    path = model_path(name)
    with _loading_faults(name, path):
        return AutoTokenizer.from_pretrained(path, revision=revision, padding_side="left", trust_remote_code=False)


def check_vocabulary(tokenizer: Any, model: Any, name: str | None = None) -> None:
    """Reject a tokenizer with more tokens than the model has embeddings."""
    rows = num_embeddings(model)
    if len(tokenizer) > rows:
        raise ModelError(
            f"the tokenizer{f' of {name!r}' if name else ''} has {len(tokenizer)} tokens but the model only "
            f"{rows} embeddings. Do they belong together?",
            code="vocabulary",
        )


def _load_adapted(settings: ModelSettings, adapter: AdapterFiles) -> tuple[Any, Any]:
    """The base model with the adapter on it. The tokenizer is the adapter's, if it has one."""
    import_peft()
    base, revision = adapter.base, adapter.base_revision
    check_saved_model(model_path(base))
    if find_adapter(base, revision):
        raise ModelError(
            f"'{settings.path}' is an adapter of '{base}', which is an adapter too. Merge that one first.",
            code="adapter-on-adapter",
        )
    try:
        own = (settings.path, settings.revision) if adapter.has_tokenizer else (base, revision)
        tokenizer = load_tokenizer(*own)
        model = _load_model(settings, base, revision)
    except ModelError as error:
        raise ModelError(
            f"'{settings.path}' is an adapter of '{base}', and one of the two cannot be loaded: {error}\nWas the base "
            f"moved? Then set base_model_name_or_path in {adapter.folder / 'adapter_config.json'} to its new place.",
            code="adapter-base",
        ) from error
    _check_tokenizer(tokenizer, model, settings.path)
    return load_adapter(model, adapter), tokenizer


def _load_model(settings: ModelSettings, name: str, revision: str | None) -> Any:
    """A model without an adapter."""
    from transformers import AutoModelForCausalLM

    path = model_path(name)
    with _loading_faults(name, path):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            revision=revision,
            dtype=settings.dtype,
            attn_implementation=settings.attention,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are an error below, with their shapes
            trust_remote_code=False,
        )
    model, report = loaded
    if report["mismatched_keys"]:
        weight, stored, expected = min(report["mismatched_keys"], key=lambda each: each[0])
        raise mismatched(name, weight, stored, expected)
    if report["missing_keys"]:  # transformers fills them with random numbers
        missing = sorted(report["missing_keys"])
        raise ModelError(
            f"the checkpoint of '{name}' lacks {len(missing)} weights that its config.json asks for, among "
            f"them {', '.join(missing[:3])}. Was it saved whole, and for a causal language model?",
            code="missing-weights",
        )
    return model


@contextmanager
def _loading_faults(name: str, path: str) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, LookupError, ImportError, RuntimeError, SafetensorError) as error:
        hint = "" if Path(path).is_dir() else "There is no folder of that name, so it was looked for on the Hub. "
        raise ModelError(
            f"cannot load '{name}': {first_line(error)}\n{hint}Expected a folder with config.json, *.safetensors and a "
            "tokenizer, or a Hub id that can be reached.",
            code="cannot-load",
        ) from error


def _check_tokenizer(tokenizer: Any, model: Any, name: str) -> None:
    if len(tokenizer) == len(tokenizer.added_tokens_decoder):  # transformers invents one if there are no files
        raise ModelError(
            f"the tokenizer of '{name}' has no vocabulary, only special tokens. Was the model saved without its "
            "tokenizer? tokenizer.save_pretrained(FOLDER) adds it.",
            code="no-tokenizer",
        )
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"the tokenizer of '{name}' has no end-of-sequence token, so no response would ever end. Set eos_token in "
            "its tokenizer_config.json.",
            code="no-end-token",
        )
    check_vocabulary(tokenizer, model, name)
