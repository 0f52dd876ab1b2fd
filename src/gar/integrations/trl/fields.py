"""The names of the fields of `trl.GRPOConfig`, read from its source text: importing TRL takes seconds."""

import ast
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from gar import rules
from gar.config import RunConfig
from gar.errors import ConfigError, did_you_mean

_CLASSES = (
    ("transformers", "training_args.py", "TrainingArguments"),
    ("trl", "trainer/base_config.py", "_BaseConfig"),
    ("trl", "trainer/grpo_config.py", "GRPOConfig"),
)


TRACKERS = (
    "azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte", "kubeflow", "mlflow", "neptune",
    "swanlab", "tensorboard", "trackio", "wandb",
)  # fmt: skip
"""Words of `trl.report_to`, each the name of a module that it needs, but for these:"""
_MODULES = {"azure_ml": ("azureml",), "flyte": ("flytekit",), "tensorboard": ("tensorboard", "tensorboardX")}


def check_fields(values: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> None:
    """Reject fields that no `trl.GRPOConfig` has, and values that break a rule. `more` adds facts.

    `gar.integrations.trl.arguments` checks their types, when TRL is imported.
    """
    names, wrong = field_names(), list[tuple[str, str]]()
    for name in values:
        if name not in names and name != "reward_funcs":  # which a rule explains
            hint = did_you_mean(name, names, "trl.")
            wrong.append((f"trl.{name}", f"unknown key 'trl.{name}': trl.GRPOConfig has no such field.{hint}"))
    facts = {f"trl.{name}": value for name, value in values.items()} | dict(more or {})
    rules.raise_all([*wrong, *rules.faults("gar train", facts)])


def missing_packages() -> dict[str, Any]:
    """For the rules of `gar train`: which packages are not installed."""
    modules = [module for module, _ in rules.PACKAGES.values()] + ["torchao"]
    return {f"no {module}": True for module in modules if importlib.util.find_spec(module) is None}


def check_trackers(config: RunConfig) -> None:
    """Raise a `ConfigError` for a tracker that is not installed, or almost the name of one.

    Transformers would do so with the trainer, after the preflight.
    """
    chosen = config.trl.get("report_to")
    for name in map(str, chosen if isinstance(chosen, list) else [chosen]):
        modules = _MODULES.get(name, (name,))
        if name in TRACKERS and not any(importlib.util.find_spec(module) for module in modules):
            text = f"and it is not installed: pip install {modules[0]}"
        elif name not in TRACKERS and (hint := did_you_mean(str(name), TRACKERS)):
            text = f"expected none or some of {', '.join(TRACKERS)}.{hint}"
        else:
            continue
        raise ConfigError(f"trl.report_to is {name}, {text}", code="trl.report_to")


@cache
def field_names() -> tuple[str, ...]:
    """The fields that the constructor of `trl.GRPOConfig` takes."""
    found = [_names_in(*place) for place in _CLASSES]
    if all(found):
        return tuple(dict.fromkeys(name for names in found for name in names))
    from trl import GRPOConfig  # whose source is arranged otherwise

    return tuple(field.name for field in fields(GRPOConfig) if field.init)


def _names_in(package: str, file: str, name: str) -> Sequence[str]:
    """The fields of a dataclass in a source file of a package. Empty if it is not there."""
    spec = importlib.util.find_spec(package)
    path = Path(*(spec.submodule_search_locations if spec else None) or ("",)) / file
    nodes = ast.parse(path.read_bytes()).body if path.is_file() else []
    return [
        ast.unparse(item.target)
        for node in nodes
        if isinstance(node, ast.ClassDef) and node.name == name
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and "ClassVar" not in ast.unparse(item.annotation)
        and not (item.value and "init=False" in ast.unparse(item.value))
    ]
