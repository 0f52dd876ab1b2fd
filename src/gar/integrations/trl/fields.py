"""The fields of `trl.GRPOConfig`, read from its source text: importing TRL takes seconds."""

import ast
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Union

from pydantic import TypeAdapter, ValidationError

from gar.config import RunConfig
from gar.errors import ConfigError, DataError, UsageError, did_you_mean
from gar.extras import install_command
from gar.settings import REGISTERED

TESTED = "1.16"
"""The release of TRL that `gar` is developed with. RELEASING.md shows how to follow a newer one."""
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
_OPTIMIZERS = {
    r"adamw_8bit|adamw_bnb_8bit|ademamix|rmsprop_bnb.*": "bitsandbytes",
    r"(paged_)?(adamw|ademamix|lion)_(8|32)bit": "bitsandbytes",
    r"adamw_torch_[48]bit": "torchao",
    r"galore_.*": "galore_torch",
    r"apollo_.*": "apollo_torch",
    r"lomo|adalomo": "lomo_optim",
    r"grokadamw": "grokadamw",
    r"schedule_free_.*": "schedulefree",
}
"""The package, also its module, that names of `trl.optim` need."""
RENAMED = {
    "warmup_ratio": "trl.warmup_steps, which below 1 is a share of the steps",
    "max_prompt_length": "data.max_prompt_tokens",
    "no_cuda": "trl.use_cpu",
    "group_by_length": "trl.train_sampling_strategy group_by_length",
    "use_liger_loss": "trl.use_liger_kernel",
    "vllm_guided_decoding_regex": "trl.vllm_structured_outputs_regex",
    "per_gpu_train_batch_size": "trl.per_device_train_batch_size",
}
"""Fields of earlier releases of TRL and transformers, and what replaced them."""
_TYPES = {
    "int": int, "float": float, "bool": bool, "None": None, "list[float]": list[float], "list[str]": list[str],
    "dict[str, bool]": dict[str, bool],
}  # fmt: skip
"""Types of fields, by their text. Values of other types are TRL's to check."""
_WORDS = {
    "SchedulerType": "trainer_utils.py",
    "OptimizerNames": "training_args.py",
    "IntervalStrategy": "trainer_utils.py",
    "SaveStrategy": "trainer_utils.py",
}
"""transformers' enumerations of words, and the files that define them."""
_MODULES = {"azure_ml": ("azureml",), "flyte": ("flytekit",), "tensorboard": ("tensorboard", "tensorboardX")}


def wrong_fields(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Setting and sentence of each unknown field of `trl.GRPOConfig`, and of each value of a wrong type."""
    names, wrong = known_fields(), list[tuple[str, str]]()
    for name, value in values.items():
        if name not in names and name != "reward_funcs":  # which a rule explains
            text = f"unknown key 'trl.{name}': trl.GRPOConfig has no such field.{_hint(name)}{_other_release()}"
            wrong.append((f"trl.{name}", text))
        elif name in names and (expected := _expected(name, value)):
            wrong.append((f"trl.{name}", f"trl.{name} is {value!r}, expected {expected}"))
    return wrong


def _expected(name: str, value: Any) -> str:
    """What a field takes in place of a value that it does not take. "" if it does, or only TRL can judge."""
    kinds = known_fields()[name].kind.split(" | ")
    if kinds[0] in _WORDS and isinstance(value, str):
        words = _words(kinds[0])
        return "" if value in words or not words else f"one of {', '.join(words)}.{did_you_mean(value, words)}"
    if name.endswith("_kwargs"):
        is_text = isinstance(value, str) and value.startswith("{")
        return "" if value is None or is_text or isinstance(value, Mapping) else "a mapping"
    if "str" in kinds and isinstance(value, str):
        return ""
    if not {*kinds} <= _TYPES.keys() or "str" in kinds:
        return ""
    kind: Any = Union[tuple(_TYPES[kind] for kind in kinds)]  # noqa: UP007 (of a tuple)
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError:
        return " or ".join(kinds)
    return ""


@cache
def _words(kind: str) -> tuple[str, ...]:
    """The values of one of transformers' enumerations, from its source text. () if it is not there."""
    for node in _nodes("transformers", _WORDS[kind]):
        if isinstance(node, ast.ClassDef) and node.name == kind:
            values = [item.value for item in node.body if isinstance(item, ast.Assign)]
            return tuple(str(value.value) for value in values if isinstance(value, ast.Constant))
    return ()


def check_renamed(flags: Iterable[str]) -> None:
    """Raise a `UsageError` for the first flag, with or without `--trl.`, that earlier releases of TRL had."""
    for flag in flags:
        name = flag.partition("=")[0].removeprefix("--").removeprefix("trl.").replace("-", "_")
        if flag.startswith("--") and name in RENAMED and name not in known_fields():
            raise UsageError(f"{flag.partition('=')[0]}: trl.GRPOConfig has no field {name}.{_hint(name)}")


def _hint(name: str) -> str:
    """What to use in place of a field that TRL does not have."""
    return f" Use {RENAMED[name]}." if name in RENAMED else did_you_mean(name, known_fields(), "trl.")


def _other_release() -> str:
    """A sentence, if another release of TRL than the tested one is installed."""
    installed = importlib.metadata.version("trl")
    is_tested = installed.startswith(f"{TESTED}.")
    return "" if is_tested else f" TRL {installed} is installed. gar and its presets are tested with {TESTED}."


def check_optimizer(config: RunConfig) -> None:
    """Raise a `ConfigError` if the optimizer's package is not installed. Transformers would import it last."""
    name = str(config.trl.get("optim", ""))
    for pattern, package in _OPTIMIZERS.items():
        command = install_command("lowbit") if package == "torchao" else f"pip install {package.replace('_', '-')}"
        if re.fullmatch(pattern, name) and importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"trl.optim is {name}, which needs the package {package}: {command}. "
                "Without it: trl.optim adamw_torch.",
                code="trl.optim",
            )


def check_batch_size(config: RunConfig) -> None:
    """Raise a `ConfigError` if groups do not divide a generation batch, as TRL would once it is imported."""
    batch, group, source = generation_batch(config)
    if group and batch % group:
        raise ConfigError(
            f"trl.num_generations is {group}, and a generation batch has {batch} responses, which is no multiple of "
            f"{group}: {source}.",
            code="trl.num_generations",
        )


def generation_batch(config: RunConfig) -> tuple[int, int, str]:
    """How many responses a generation batch and a group have, and the settings that give the first.

    Both numbers are 0 for a method with its own trainer. The second is 0 if TRL rejects its value.
    """
    method = REGISTERED.get(config.method)
    if method is not None and method.trainer is not None:
        return 0, 0, ""
    group = trl_number(config, "num_generations")
    if batch := trl_number(config, "generation_batch_size"):
        return batch, group, "trl.generation_batch_size"
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    per_rank = trl_number(config, "per_device_train_batch_size")
    passes = trl_number(config, "steps_per_generation") or trl_number(config, "gradient_accumulation_steps")
    source = (
        f"{per_rank} (trl.per_device_train_batch_size) x {ranks} (processes) x {passes} "
        "(trl.steps_per_generation, else trl.gradient_accumulation_steps)"
    )
    return per_rank * ranks * passes, group, source


def check_enough_problems(batch: int, group: int, num_problems: int) -> None:
    """Raise a `DataError` if there are fewer problems than a generation batch has groups."""
    if num_problems < batch // group:
        raise DataError(
            f"a batch of {batch:,} responses in groups of {group} needs {batch // group:,} problems, got "
            f"{num_problems:,} in all: TRL would train for no step. Lower trl.per_device_train_batch_size, "
            "steps_per_generation or gradient_accumulation_steps.",
            code="few-problems",
        )


def trl_number(config: RunConfig, name: str) -> int:
    """A whole number among the settings or TRL's defaults. 0 for anything else, which TRL judges.

    Raises a `ConfigError` if TRL has no such field.
    """
    field = known_fields().get(name)
    if field is None:
        raise ConfigError(f"trl.GRPOConfig has no field {name}, which gar reads.{_other_release()}", code="trl-version")
    value = config.trl.get(name, field.default)
    return int(value) if str(value).isdecimal() else 0


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


class Field(NamedTuple):
    """A field of `trl.GRPOConfig`: its type as text, and its default as text, "" for none that a text shows."""

    kind: str
    default: str

    @property
    def is_list(self) -> bool:
        """Whether several words on the command line are a list."""
        return "list[" in self.kind.lower()

    @property
    def is_only_list(self) -> bool:
        """Whether one word is a list too."""
        return self.is_list and "str |" not in self.kind


@cache
def known_fields() -> Mapping[str, Field]:
    """The fields that the constructor of `trl.GRPOConfig` takes, by name."""
    found = [_fields_in(*place) for place in _CLASSES]
    if all(found):
        return {name: field for some in found for name, field in some.items()}
    from trl import GRPOConfig  # whose source is arranged otherwise

    return {each.name: Field(str(each.type), repr(each.default)) for each in fields(GRPOConfig) if each.init}


def _fields_in(package: str, file: str, name: str) -> dict[str, Field]:
    """The fields of a dataclass in a source file of a package. Empty if it is not there."""
    return {
        ast.unparse(item.target): Field(ast.unparse(item.annotation), _default_in(item.value))
        for node in _nodes(package, file)
        if isinstance(node, ast.ClassDef) and node.name == name
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and "ClassVar" not in ast.unparse(item.annotation)
        and not (item.value and "init=False" in ast.unparse(item.value))
    }


def _nodes(package: str, file: str) -> list[ast.stmt]:
    """The statements of a source file of a package. Empty if it is not there."""
    spec = importlib.util.find_spec(package)
    path = Path(*(spec.submodule_search_locations if spec else None) or ("",)) / file
    return ast.parse(path.read_bytes()).body if path.is_file() else []


def _default_in(value: ast.expr | None) -> str:
    """The default in `field(default=...)` or in a plain assignment."""
    if isinstance(value, ast.Call):
        return next((ast.unparse(each.value) for each in value.keywords if each.arg == "default"), "")
    return ast.unparse(value) if value else ""
