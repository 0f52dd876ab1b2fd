"""The fields of `trl.GRPOConfig`, read from its source text: importing TRL takes seconds."""

import ast
import importlib.util
import os
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from gar import rules
from gar.config import RunConfig
from gar.errors import ConfigError, DataError, did_you_mean
from gar.types import Problem

DEFAULTS: dict[str, Any] = {
    # slime's defaults, the paper's stack: per-sequence mean, no KL, group-normalized (docs/how-it-works.md).
    "loss_type": "grpo",
    "scale_rewards": "group",
    "beta": 0.0,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": 100,
    "save_total_limit": 2,
    "report_to": "none",
    "project": "gar",
}
"""Defaults of `gar train` that differ from TRL's. `GARTrainer` does not touch them."""

_TRACKERS = {"azure_ml": ("azureml",), "flyte": ("flytekit",), "tensorboard": ("tensorboard", "tensorboardX")}
"""Modules of the trackers, one of which is needed, if they have other names."""

_PLAIN = {"int": (int, "a whole number"), "float": ((int, float), "a number"), "bool": (bool, "true or false")}


def check_fields(values: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> None:
    """Reject fields that no `trl.GRPOConfig` can hold, and values that break a rule. `more` adds facts."""
    types = field_types()
    wrong = [(f"trl.{name}", text) for name, value in values.items() if (text := _type_fault(name, value, types))]
    facts = {f"trl.{name}": value for name, value in values.items()} | dict(more or {})
    facts["the optimizers of transformers"] = _optimizers()
    rules.raise_all([*wrong, *rules.faults("gar train", facts)])


def missing_packages() -> dict[str, Any]:
    """For the rules of `gar train`: which packages are not installed."""
    return {f"no {module}": True for module, _ in rules.PACKAGES.values() if importlib.util.find_spec(module) is None}


def batch_of(values: Mapping[str, Any]) -> tuple[int, int]:
    """Responses of one generation, in all processes of the launcher, and of one group. Bad values count as defaults."""

    def number(name: str, otherwise: int | None = None) -> int:
        value = values.get(name)
        return value if isinstance(value, int) and value > 0 else otherwise or int(default_of(name))

    passes = number("steps_per_generation", number("gradient_accumulation_steps"))
    size = number("per_device_train_batch_size") * passes * int(os.environ.get("WORLD_SIZE", 1))
    return number("generation_batch_size", size), number("num_generations")


def check_enough(size: int, group: int, num_problems: int) -> None:
    """Raise a `DataError` if there are fewer problems than a batch has groups."""
    if num_problems < size // group:
        raise DataError(
            f"a batch of {size:,} responses in groups of {group} asks for {size // group:,} problems, got "
            f"{num_problems:,} in all: TRL would train for no step. Lower trl.per_device_train_batch_size, "
            "steps_per_generation or gradient_accumulation_steps.",
            code="few-problems",
        )


def check_experts(method: str, problems: Sequence[Problem]) -> None:
    """Raise a `DataError` if no problem has an expert solution."""
    from gar.data.table import anchored  # with pyarrow, which the help does without

    if not anchored(problems).any():
        raise DataError(
            f"{method} needs expert solutions, and none of the {len(problems):,} problems has one. Name their "
            "column with expert_fields (--data.expert_fields), or train with grpo.",
            code="no-anchors",
        )


def unread_fields(values: Mapping[str, Any], read: Collection[str]) -> list[str]:
    """Fields, as "trl.name", that a method with its own trainer does not read: not in `read`, nor transformers'."""
    shared = _source_fields("transformers", "training_args.py", "TrainingArguments")
    return [f"trl.{name}" for name in values if shared and name not in shared and f"trl.{name}" not in read]


def field_types() -> dict[str, str]:
    """Type of every field of `trl.GRPOConfig` as its source writes it. Empty if TRL is arranged otherwise."""
    return {name: kind for name, (kind, _) in _fields().items()}


def default_of(name: str) -> str:
    """The default of a field in `gar train`, as text."""
    return str(DEFAULTS[name]) if name in DEFAULTS else _fields().get(name, ("", ""))[1]


@cache
def _fields() -> dict[str, tuple[str, str]]:
    """Type and default of every field, as the source writes them."""
    fields: dict[str, tuple[str, str]] = {}
    for package, file, name in (
        ("transformers", "training_args.py", "TrainingArguments"),
        ("trl", "trainer/base_config.py", "_BaseConfig"),
        ("trl", "trainer/grpo_config.py", "GRPOConfig"),
    ):
        found = _source_fields(package, file, name)
        if not found:
            return {}
        fields |= found
    return fields


def check_trackers(config: RunConfig) -> None:
    """Raise a `ConfigError` for a tracker of `trl.report_to` that transformers does not know or that is not installed.

    Their own checks come after the imports, and the last one with the trainer.
    """
    chosen = config.trl.get("report_to")
    for name in chosen if isinstance(chosen, list) else [chosen]:
        if name in (None, "none", "all"):
            continue
        known = _known_trackers()
        if known and name not in known:
            text = f"expected none or some of {', '.join(known)}.{did_you_mean(str(name), known)}"
        else:
            modules = _TRACKERS.get(name, (name,))
            text = f"and it is not installed: pip install {modules[0]}"
            if any(importlib.util.find_spec(module) for module in modules):
                continue
        raise ConfigError(f"trl.report_to is {name}, {text}", code="trl.report_to")


def _known_trackers() -> list[str]:
    for node in _nodes("transformers", "integrations/integration_utils.py"):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "INTEGRATION_TO_CALLBACK":
            return [ast.literal_eval(key) for key in cast(ast.Dict, node.value).keys if key]
    return []


def _optimizers() -> tuple[str | None, ...]:
    """The names of transformers' optimizers, and None."""
    items = _class("transformers", "training_args.py", "OptimizerNames")
    values = [item.value for item in items if isinstance(item, ast.Assign)]
    return (None, *(str(value.value) for value in values if isinstance(value, ast.Constant)))


@cache
def _source_fields(package: str, file: str, name: str) -> dict[str, tuple[str, str]]:
    """Type and default of the fields of a dataclass that its constructor takes."""
    fields: dict[str, tuple[str, str]] = {}
    for item in _class(package, file, name):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            kind, value = ast.unparse(item.annotation), item.value
            options = value.keywords if isinstance(value, ast.Call) else []
            words = {word.arg: ast.unparse(word.value) for word in options}
            if words.get("init") != "False" and not kind.startswith("ClassVar"):
                default = words.get("default", "") if options else ast.unparse(value) if value else ""
                fields[item.target.id] = (kind, default.strip("'\""))
    return fields


def _class(package: str, file: str, name: str) -> Sequence[ast.stmt]:
    """The body of a class. Empty if the package is arranged otherwise."""
    classes = (node for node in _nodes(package, file) if isinstance(node, ast.ClassDef))
    return next((node.body for node in classes if node.name == name), [])


@cache
def _nodes(package: str, file: str) -> Sequence[ast.stmt]:
    """The statements of a source file of a package. Empty if there is no such file."""
    spec = importlib.util.find_spec(package)
    path = Path(*(spec.submodule_search_locations if spec else None) or ("",)) / file
    return ast.parse(path.read_bytes()).body if path.is_file() else []


def _type_fault(name: str, value: Any, types: Mapping[str, str]) -> str:
    """What is wrong with a field's name or type. Types that are not made of numbers and truth values are TRL's."""
    if types and name not in types and name != "reward_funcs":
        return f"unknown key 'trl.{name}': trl.GRPOConfig has no such field.{did_you_mean(name, types, 'trl.')}"
    kinds = [kind.strip() for kind in types.get(name, "").split("|")]
    if not set(kinds) <= _PLAIN.keys() | {"None"} or (value is None and "None" in kinds):
        return ""
    for kind in kinds:
        allowed, _ = _PLAIN.get(kind, ((), ""))
        if isinstance(value, allowed) and (kind == "bool" or not isinstance(value, bool)):
            return ""
    return f"trl.{name} is {value!r}, expected {' or '.join(_PLAIN[kind][1] for kind in kinds if kind in _PLAIN)}"
