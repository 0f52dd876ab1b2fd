"""Checks of a run before anything is loaded. This module imports neither torch nor transformers nor TRL."""

import importlib.util
import os
import tempfile
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

from gar.config import RunConfig, with_template
from gar.data.problems import Reading, evaluation_data, no_experts
from gar.data.prompts import Renderer, edited
from gar.data.rows import check_source, source_name, unreachable
from gar.errors import ConfigError, DataError, GarError, RecordError
from gar.integrations.trl.fields import (
    check_batch_size,
    check_enough_problems,
    check_optimizer,
    check_trackers,
    generation_batch,
    trl_number,
    wrong_fields,
)
from gar.models.files import check_model, check_targets, has_chat_template, num_tokens
from gar.models.hub import check_response_length, is_adapter
from gar.records.lock import has_locks
from gar.rules import faults, raise_all
from gar.settings import EMBEDDED_TASKS, REGISTERED, OutcomeMethod
from gar.train.rules import PACKAGES, RULES, TrainFacts
from gar.verify.formats import FORMATS
from gar.verify.verifier import custom_grader


def check_before_loading(config: RunConfig) -> None:
    """Make every check in `_CHECKS`.

    Raises:
        GarError: Lists every mistake, one per line.
    """
    errors: list[GarError] = []
    for check in _CHECKS:
        try:
            check(config)
        except GarError as error:
            errors.append(error)
    texts = [text for error in errors for text in str(error).removeprefix("\n- ").split("\n- ")]
    if errors:
        text = texts[0] if len(texts) == 1 else "\n- ".join(["", *texts])
        raise type(errors[0])(text, code=errors[0].code)


def _check_rules(config: RunConfig) -> None:
    """The fields of TRL, and the rules of `gar train`."""
    raise_all([*wrong_fields(config.trl), *faults(RULES, train_facts(config))])
    if config.trl.get("hub_token") is not None:  # no row of the rules: it would print the token
        raise ConfigError(
            "trl.hub_token is set, and a run records its settings. Run: hf auth login, or set the variable HF_TOKEN.",
            code="trl.hub_token",
        )


def train_facts(config: RunConfig) -> TrainFacts:
    """The facts about a run that `gar.train.rules` reads."""
    modules = {module for module, _ in PACKAGES.values()}
    settings = {
        "adapter.rank": config.adapter.rank,
        "data.template": config.data.template,
        "evaluate.pass_at_k": config.evaluate.pass_at_k,
        "evaluate.num_samples": config.evaluate.num_samples,
        "evaluate.temperature": config.evaluate.temperature,
        "model.dtype": config.model.dtype,
        "verify.format": config.verify.format,
    }
    return TrainFacts(
        settings=settings | {f"trl.{name}": value for name, value in config.trl.items()},
        evaluates=bool(config.evaluate.sources),
        loses_updates=_loses_updates(config),
        is_launched=int(os.environ.get("WORLD_SIZE", 1)) > 1,
        missing=frozenset(module for module in modules if importlib.util.find_spec(module) is None),
    )


def _loses_updates(config: RunConfig) -> bool:
    """Whether 16-bit weights are trained without float32 copies and without rounding at random."""
    model, fields = config.model, config.trl
    if model.dtype in ("auto", "float32") or config.adapter.rank is not None:
        return False
    # DeepSpeed keeps copies, and accelerate shards float32 weights by FSDP.
    launched = [os.environ.get(f"ACCELERATE_USE_{name}", "").lower() == "true" for name in ("DEEPSPEED", "FSDP")]
    if any(launched) or fields.get("deepspeed") or fields.get("fsdp"):
        return False
    options = str(fields.get("optim_args")).replace(" ", "").lower().split(",")
    rounds = any(f"bf16_stochastic_round={yes}" in options for yes in ("y", "yes", "t", "true", "on", "1"))
    return not (fields.get("optim") in _LOWBIT and rounds) and not is_adapter(model.path, model.revision)


def _check_sources(config: RunConfig) -> None:
    """Check that the problems are there, and that the first of each file can be used. `RunInputs` reads all, once."""
    names = [source_name(source) for source in config.evaluate.sources]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ConfigError(
            f"evaluate.sources has two sets named {repeated[0]!r}. Name each once.", code="evaluate.sources"
        )
    batch, group, _ = generation_batch(config)
    if group and config.data.max_problems is not None:
        check_enough_problems(batch, group, config.data.max_problems)
    evaluated = [evaluation_data(config.data, source) for source in config.evaluate.sources]
    for settings in (config.data, *evaluated):
        source = settings.source
        try:
            if source not in EMBEDDED_TASKS:
                check_source(source)
                _check_cached(source)
        except DataError as error:
            raise DataError(_with_hint(error, source)) from None
        if Path(source).is_file() and settings is config.data:
            _check_training_file(config, batch, group)
        elif Path(source).is_file() or source in EMBEDDED_TASKS:
            next(iter(Reading(source, settings)))


def _check_cached(source: str) -> None:
    """Raise a `DataError` for a data set of the Hub that is not on this machine, if the Hub may not be asked."""
    from huggingface_hub import constants

    if Path(source).exists() or not constants.HF_HUB_OFFLINE:
        return
    loaded = Path(os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME, "datasets"))
    if Path(constants.HF_HUB_CACHE, f"datasets--{source.replace('/', '--')}").exists():
        return
    if not any(loaded.glob(f"{source.partition('/')[0]}___*")):  # its names of data sets differ from the Hub's
        raise unreachable(source, "HF_HUB_OFFLINE is set")


def _check_training_file(config: RunConfig, batch: int, group: int) -> None:
    """Read the problems of one generation batch, and on to the first with an expert solution if the method needs it."""
    data = config.data
    problems = iter(Reading(data.source, data, data.max_problems))
    first = list(islice(problems, batch // group if group else 1))
    if group:
        check_enough_problems(batch, group, len(first))
    template = with_template(config).data.template
    if template != "plain":
        edited(first[0].prompt, str)  # raises if no message is the user's
    chat = has_chat_template(config.model.path)
    if chat is not None and template != "auto":
        messages = None if isinstance(first[0].prompt, str) else first[0].id
        Renderer.of(template, SimpleNamespace(chat_template=chat), None, with_messages=messages)
    if config.method in get_args(OutcomeMethod) or config.method in REGISTERED:
        return
    number = 0
    for problem in chain(first, problems):
        if problem.anchors:
            return
        number += 1
    raise no_experts(config.method, number)


def _check_verifier(config: RunConfig) -> None:
    if config.verify.verifier is not None:
        custom_grader(config.verify.verifier)


def _check_output(config: RunConfig) -> None:
    """Whether a run folder can be made, and its files locked. Tries it in the nearest parent that exists."""
    path = Path(config.records.output_dir).absolute()
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    try:
        tempfile.TemporaryDirectory(dir=there, prefix=".gar-").cleanup()
        has_locks(path)
    except RecordError:
        raise
    except OSError as error:
        raise RecordError(
            f"{path}: no run folder can be made here ({error.strerror}). Choose another --records.output_dir."
        ) from error


def _check_model(config: RunConfig) -> None:
    model, length = config.model, trl_number(config, "max_completion_length")
    check_model(model)
    if config.adapter.rank is not None:
        check_targets(model.path, config.adapter.target_modules)
    _check_instruction(config)
    is_default = "max_completion_length" not in config.trl
    if not (is_default and model.path == "embedded"):
        setting = "the default of trl.max_completion_length" if is_default else "trl.max_completion_length"
        check_response_length(model.path, length, setting)


def _check_instruction(config: RunConfig) -> None:
    """Whether a prompt of no more than its instruction fits into `data.max_prompt_tokens`."""
    data = with_template(config).data
    if data.max_prompt_tokens is None or data.template in ("plain", "chat", "auto"):
        return
    needed = num_tokens(config.model.path, FORMATS[data.template].instruction(config.verify.tags))
    if needed is not None and needed > data.max_prompt_tokens:
        raise ConfigError(
            f"data.max_prompt_tokens is {data.max_prompt_tokens}, and the instruction of data.template {data.template} "
            f"has {needed} tokens: no prompt fits.",
            code="data.max_prompt_tokens",
        )


_LOWBIT = ("adamw_torch_8bit", "adamw_torch_4bit")
"""Words of `trl.optim` for torchao's optimizers, which can round at random."""

_MADE_WITH = {
    "numina-10k.jsonl": "gar data prepare AI-MO/NuminaMath-CoT {} --num-problems 10000 --seed 0",
}
"""Files that the packaged settings read, and the commands that make them, as in their comments."""

_CHECKS = (
    _check_rules,
    check_trackers,
    check_optimizer,
    check_batch_size,
    _check_sources,
    _check_model,
    _check_verifier,
    _check_output,
)


def _with_hint(error: GarError, name: str) -> str:
    """Add to the error for a missing file of packaged settings the command that makes it."""
    command = _MADE_WITH.get(Path(name).name)
    return f"{error} Make it with: {command.format(name)}" if command and not Path(name).exists() else str(error)
