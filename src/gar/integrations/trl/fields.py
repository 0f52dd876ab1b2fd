"""The fields of `trl.GRPOConfig` and what they may hold, read from its source text.

Importing TRL takes seconds, and TRL itself looks at most values only when the model is loaded. tests/contracts compares
these tables with the installed TRL.
"""

import ast
import importlib.util
import operator
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gar.errors import ConfigError, did_you_mean, install_command

DEFAULTS: dict[str, Any] = {
    # slime's defaults, the paper's stack: per-sequence mean, no KL, group-normalised (docs/differences.md).
    "loss_type": "grpo",
    "scale_rewards": "group",
    "beta": 0.0,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": 100,
    "save_total_limit": 2,
    "report_to": "none",
}
"""Where `gar train` differs from TRL's defaults. `GARTrainer` does not touch them."""

OWNED = {
    "output_dir": "records.folder and records.name",
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

TRAINERS = {
    "sdft": ("experimental/sdft/sdft_config.py", "SDFTConfig"),
    "sdpo": ("experimental/sdpo/sdpo_config.py", "SDPOConfig"),
}
"""Where TRL has the configuration of methods with a trainer of their own; the others have `GRPOConfig`."""

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
"""Bounds of numbers that TRL or torch refuse late, or not at all."""

_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_PLAIN = {"int": (int, "a whole number"), "float": ((int, float), "a number"), "bool": (bool, "true or false")}


def check_fields(values: Mapping[str, Any], method: str = "grpo") -> None:
    """Refuse what no `trl.GRPOConfig` can hold, nor the configuration of the method's own trainer.

    Imports neither TRL nor torch.

    Raises:
        ConfigError: An unknown field, with the nearest one; a field that another setting decides; or a value of the
            wrong type or out of its range.
    """
    types = field_types() | field_types(method)
    for name, value in values.items():
        if name in OWNED:
            raise ConfigError(f"trl.{name} is decided by another setting: use {OWNED[name]}")
        if types and name not in types:
            raise ConfigError(_unknown(name, method, types))
        _check_type(name, value, types.get(name, ""))
        _check_value(name, value)
    for name in _reporters(values):
        if name not in REPORTERS:
            hint = did_you_mean(str(name), REPORTERS)
            raise ConfigError(f"trl.report_to must be none or some of {', '.join(REPORTERS)}, got {name!r}.{hint}")


def check_packages(values: Mapping[str, Any]) -> None:
    """Refuse fields that need a package which is not installed.

    Args:
        values: Fields that `check_fields` accepts.

    Raises:
        ConfigError: Names the field, the package, and how to install it.
    """
    wanted = {f"trl.report_to {name}": REPORTERS[name] for name in _reporters(values) if REPORTERS[name]}
    wanted |= {"trl.use_vllm": ("vllm",)} if values.get("use_vllm") else {}
    for setting, packages in wanted.items():
        if all(importlib.util.find_spec(package) is None for package in packages):
            install = install_command("trl[vllm]" if packages[0] == "vllm" else packages[0])
            raise ConfigError(f"{setting} needs the package {packages[0]}, which is not installed: {install}")


def unread_fields(values: Mapping[str, Any], method: str) -> list[str]:
    """Fields of `trl.GRPOConfig` that the configuration of the method's own trainer lacks, as "trl.name"."""
    known = field_types(method)
    return [f"trl.{name}" for name in values if known and name not in known]


def field_types(method: str = "grpo") -> dict[str, str]:
    """Type of every field of a method's TRL configuration as its source writes it.

    Empty where TRL is arranged otherwise.
    """
    return {name: kind for name, (kind, _) in _fields(method if method in TRAINERS else "").items()}


def all_fields() -> list[str]:
    """Names of the fields that `gar train` takes with one method or another."""
    return list(dict.fromkeys(name for method in ("grpo", *TRAINERS) for name in field_types(method)))


def default_of(name: str) -> str:
    """The default of a field in `gar train`, as text."""
    return str(DEFAULTS[name]) if name in DEFAULTS else _fields().get(name, ("", ""))[1]


@cache
def _fields(method: str = "") -> dict[str, tuple[str, str]]:
    """Type and default of every field, as the source writes them; of `GRPOConfig` unless a method has a trainer."""
    fields: dict[str, tuple[str, str]] = {}
    for package, file, name in (
        ("transformers", "training_args.py", "TrainingArguments"),
        ("trl", "trainer/base_config.py", "_BaseConfig"),
        ("trl", *TRAINERS.get(method, ("trainer/grpo_config.py", "GRPOConfig"))),
    ):
        spec = importlib.util.find_spec(package)
        path = Path(*(spec.submodule_search_locations if spec else None) or ("",)) / file
        if not path.is_file():
            return {}
        classes = [node for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.ClassDef)]
        for field, kind, default in (item for node in classes if node.name == name for item in _annotations(node)):
            fields[field] = kind, default
    return fields


def _unknown(name: str, method: str, types: Mapping[str, str]) -> str:
    others = [other for other in TRAINERS if name in field_types(other)]
    if others:
        return f"trl.{name} belongs to {' and '.join(others)}, but method is {method}. Leave it out."
    kind = TRAINERS.get(method, ("", "GRPOConfig"))[1]
    hint = did_you_mean(name, types, "trl.")
    return f"unknown key 'trl.{name}': trl.{kind} has no such field.{hint}"


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
    choices = CHOICES.get(name)
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
