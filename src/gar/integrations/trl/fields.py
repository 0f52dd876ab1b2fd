"""The fields of `trl.GRPOConfig` and what they may hold, read from its source text.

Importing TRL takes seconds, and TRL itself looks at most values only when the model is loaded. tests/contracts compares
these tables with the installed TRL.
"""

import ast
import importlib.util
import operator
import os
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, DataError, did_you_mean, install_command

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
"""Where `gar train` differs from TRL's defaults. `GARTrainer` does not touch them."""

OWNED = {
    "output_dir": "records.output_dir and records.name",
    "seed": "seed",
    "data_seed": "seed",
    "resume_from_checkpoint": "gar train --resume RUN",
    "reward_funcs": "verify.verifier",
}
"""Fields that another setting decides."""

CHOICES = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "vespo", "luspo"),
    "scale_rewards": ("group", "batch", "none", True, False),
    "importance_sampling_level": ("token", "sequence"),
    "vllm_mode": ("colocate", "server"),
}
"""Words that TRL compares with only while it trains."""

REPORTERS = {
    "azure_ml": ("azureml",), "clearml": ("clearml",), "codecarbon": ("codecarbon",), "comet_ml": ("comet_ml",),
    "dagshub": ("dagshub",), "dvclive": ("dvclive",), "flyte": ("flytekit",), "kubeflow": (), "mlflow": ("mlflow",),
    "neptune": ("neptune",), "swanlab": ("swanlab",), "tensorboard": ("tensorboard", "tensorboardX"),
    "trackio": ("trackio",), "wandb": ("wandb",),
}  # fmt: skip
"""Values of `report_to`, each with the packages of which it needs one."""

_POSITIVE, _AT_LEAST_0, _AT_LEAST_1 = ((">", 0),), ((">=", 0),), ((">=", 1),)
LIMITS: Mapping[str, tuple[tuple[str, float], ...]] = {
    **dict.fromkeys(("num_train_epochs", "temperature", "repetition_penalty"), _POSITIVE),
    **dict.fromkeys(
        ("learning_rate", "weight_decay", "adam_epsilon", "max_grad_norm", "warmup_steps", "beta", "epsilon",
         "epsilon_high", "delta", "save_steps", "logging_steps", "dataloader_num_workers"), _AT_LEAST_0),
    **dict.fromkeys(
        ("per_device_train_batch_size", "gradient_accumulation_steps", "max_completion_length", "num_iterations",
         "steps_per_generation", "generation_batch_size", "save_total_limit"), _AT_LEAST_1),
    **dict.fromkeys(("adam_beta1", "adam_beta2"), ((">=", 0), ("<", 1))),
    **dict.fromkeys(("top_p", "vllm_gpu_memory_utilization"), ((">", 0), ("<=", 1))),
    **dict.fromkeys(("min_p", "top_entropy_quantile"), ((">=", 0), ("<=", 1))),
    **dict.fromkeys(("max_steps", "top_k"), ((">=", -1),)),
    "num_generations": ((">=", 2),),
}  # fmt: skip
"""Bounds of numbers that TRL or torch reject late, or not at all."""

PACKAGES = {
    "use_vllm": ("vllm", "trl[vllm]"),
    "deepspeed": ("deepspeed", "deepspeed"),
    "use_liger_kernel": ("liger_kernel", "liger-kernel"),
}
"""Fields that need a package where they are set: its module, and what to install."""

_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_PLAIN = {"int": (int, "a whole number"), "float": ((int, float), "a number"), "bool": (bool, "true or false")}


def check_fields(values: Mapping[str, Any]) -> None:
    """Reject what no `trl.GRPOConfig` can hold.

    Imports neither TRL nor torch.

    Raises:
        ConfigError: An unknown field, with the nearest one; a field that another setting decides; or a value of the
            wrong type or out of its range.
    """
    types = field_types()
    for name, value in values.items():
        if name in OWNED:
            raise ConfigError(f"trl.{name} is decided by another setting: use {OWNED[name]}")
        if types and name not in types:
            hint = did_you_mean(name, types, "trl.")
            raise ConfigError(f"unknown key 'trl.{name}': trl.GRPOConfig has no such field.{hint}")
        _check_type(name, value, types.get(name, ""))
        _check_value(name, value)
    for name in _reporters(values):
        if name not in REPORTERS:
            hint = did_you_mean(str(name), REPORTERS)
            raise ConfigError(f"trl.report_to must be none or some of {', '.join(REPORTERS)}, got {name!r}.{hint}")


def check_packages(values: Mapping[str, Any]) -> None:
    """Reject fields that need a package which is not installed.

    Args:
        values: Fields that `check_fields` accepts.

    Raises:
        ConfigError: Names the field, the package, and how to install it.
    """
    wanted = [
        (f"trl.report_to {name}", REPORTERS[name], REPORTERS[name][0]) for name in _reporters(values) if REPORTERS[name]
    ]
    wanted += [(f"trl.{name}", (module,), needed) for name, (module, needed) in PACKAGES.items() if values.get(name)]
    for setting, modules, needed in wanted:
        if all(importlib.util.find_spec(module) is None for module in modules):
            install = install_command(needed)
            raise ConfigError(f"{setting} needs the package {modules[0]}, which is not installed: {install}")


def batch_of(values: Mapping[str, Any]) -> tuple[int, int]:
    """Responses of one generation, in all processes of the launcher, and of one group."""

    def number(name: str) -> int:
        return values.get(name) or int(default_of(name))

    passes = values.get("steps_per_generation") or number("gradient_accumulation_steps")
    size = number("per_device_train_batch_size") * passes * int(os.environ.get("WORLD_SIZE", 1))
    return values.get("generation_batch_size") or size, number("num_generations")


def check_num_problems(size: int, group: int, num_problems: int) -> None:
    """Check that there are as many problems as a batch has groups.

    Args:
        size: Responses of one generation.
        group: Responses per problem.
        num_problems: Problems in all.

    Raises:
        DataError: Says how many there must be.
    """
    if num_problems < size // group:
        raise DataError(
            f"a batch of {size:,} responses in groups of {group} asks for {size // group:,} problems, got "
            f"{num_problems:,} in all: TRL would train for no step. Lower trl.per_device_train_batch_size, "
            "steps_per_generation or gradient_accumulation_steps."
        )


def unread_fields(values: Mapping[str, Any], read: Collection[str]) -> list[str]:
    """Fields that a method with a trainer of its own has no use for, as "trl.name".

    Args:
        values: The run's fields.
        read: What it reads, beside all fields of transformers' `TrainingArguments`.
    """
    shared = _source_fields("transformers", "training_args.py", "TrainingArguments")
    return [f"trl.{name}" for name in values if shared and name not in shared and f"trl.{name}" not in read]


def field_types() -> dict[str, str]:
    """Type of every field of `trl.GRPOConfig` as its source writes it; empty where TRL is arranged otherwise."""
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


@cache
def _classes(package: str, file: str) -> dict[str, ast.ClassDef]:
    """The classes of a source file of a package; none where there is no such file."""
    spec = importlib.util.find_spec(package)
    path = Path(*(spec.submodule_search_locations if spec else None) or ("",)) / file
    nodes = ast.parse(path.read_bytes()).body if path.is_file() else []
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def _choices(name: str) -> tuple[Any, ...]:
    """The words that a field may hold; empty for any."""
    optimizers = _classes("transformers", "training_args.py").get("OptimizerNames") if name == "optim" else None
    if optimizers is None:
        return CHOICES.get(name, ())
    words = [item.value for item in optimizers.body if isinstance(item, ast.Assign)]
    return tuple(word.value for word in words if isinstance(word, ast.Constant))


@cache
def _source_fields(package: str, file: str, name: str) -> dict[str, tuple[str, str]]:
    """Type and default of the fields of one dataclass; empty where the package is arranged otherwise."""
    classes = _classes(package, file)
    return {field: (kind, default) for field, kind, default in _annotations(classes[name])} if classes else {}


def _annotations(node: ast.ClassDef) -> Iterable[tuple[str, str, str]]:
    """Name, type and default of the fields of a dataclass that its constructor takes."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            kind, value = ast.unparse(item.annotation), item.value
            options = value.keywords if isinstance(value, ast.Call) else []
            words = {word.arg: ast.unparse(word.value) for word in options}
            if words.get("init") != "False" and not kind.startswith("ClassVar"):
                default = words.get("default", "") if options else ast.unparse(value) if value else ""
                yield item.target.id, kind, default.strip("'\"")


def _check_type(name: str, value: Any, annotation: str) -> None:
    """Compare a value with a type that is made of numbers, truth values and None; other types are TRL's to check."""
    kinds = [kind.strip() for kind in annotation.split("|")]
    if not set(kinds) <= _PLAIN.keys() | {"None"} or (value is None and "None" in kinds):
        return
    for kind in kinds:
        allowed, _ = _PLAIN.get(kind, ((), ""))
        if isinstance(value, allowed) and (kind == "bool" or not isinstance(value, bool)):
            return
    expected = " or ".join(_PLAIN[kind][1] for kind in kinds if kind in _PLAIN)
    raise ConfigError(f"trl.{name} must be {expected}, got {value!r}")


def _check_value(name: str, value: Any) -> None:
    choices = _choices(name)
    if choices and value not in choices:
        words = [choice for choice in choices if isinstance(choice, str)]
        hint = did_you_mean(str(value), words)
        raise ConfigError(f"trl.{name} must be one of {', '.join(words)}, got {value!r}.{hint}")
    for sign, bound in LIMITS.get(name, ()):
        if isinstance(value, (int, float)) and not _COMPARE[sign](value, bound):
            bounds = " and ".join(f"{sign} {bound}" for sign, bound in LIMITS[name])
            raise ConfigError(f"trl.{name} must be {bounds}, got {value!r}")


def _reporters(values: Mapping[str, Any]) -> list[Any]:
    value = values.get("report_to")
    return [] if value in (None, "none", "all") else value if isinstance(value, list) else [value]
