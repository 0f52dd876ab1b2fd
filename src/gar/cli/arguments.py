"""Command lines: tyro reads them all; the aliases of `gar train` are one table."""

import difflib
from collections.abc import Sequence
from typing import Any

import tyro

from gar.config import config_type
from gar.errors import UsageError
from gar.integrations.trl.fields import field_types

ALIASES = {
    "--model": "--model.path",
    "--model_name_or_path": "--model.path",
    "--attn_implementation": "--model.attention",
    "--dtype": "--model.dtype",
    "--dataset_name": "--data.source",
    "--dataset_config": "--data.subset",
    "--dataset_train_split": "--data.split",
    "--use_peft": "--adapter.rank=16",
    "--lora_r": "--adapter.rank",
    "--lora_alpha": "--adapter.alpha",
    "--lora_target_modules": "--adapter.target_modules",
    "--output_dir": "--records.output_dir",
    **{
        f"--{field}": f"--trl.{field}"
        for field in (
            "learning_rate", "max_steps", "num_train_epochs", "num_generations", "max_completion_length",
            "per_device_train_batch_size", "gradient_accumulation_steps", "use_vllm",
        )
    },
}  # fmt: skip
"""Names that users of TRL and Hugging Face type. One with a value takes none, and later flags go over it."""

_registry = tyro.constructors.ConstructorRegistry()


@_registry.primitive_rule
def _truth(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[bool] | None:
    """`true` and `false` as in YAML, besides Python's words."""
    if info.type is not bool:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="{true,false}",
        choices=("true", "false", "True", "False"),
        instance_from_str=lambda words: words[0].lower() == "true",
        is_instance=lambda value: isinstance(value, bool),
        str_from_instance=lambda value: [str(value).lower()],
    )


def parse(kind: Any, arguments: Sequence[str], *, prog: str, description: str = "", **options: Any) -> Any:
    """`tyro.cli` for a class of settings. A wrong command line is explained by tyro, and ends with status 2."""
    return tyro.cli(kind, args=arguments, prog=prog, description=description, registry=_registry, **options)


def in_full(arguments: Sequence[str]) -> list[str]:
    """The arguments of `gar train`, with the settings that aliases stand for.

    Raises:
        UsageError: A flag without a section is neither an alias nor a setting; names settings whose last part is
            the same or nearly the same.
    """
    first, rest = [], []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        name = name.replace("-", "_").replace("__", "--", 1)
        setting = ALIASES.get(name)
        if setting is None:
            if name.startswith("--") and "." not in name and name not in ("--help", "--help_all"):
                _check_name(name.removeprefix("--"))
            rest.append(argument)
        elif "=" in setting:
            first.append(setting)
        else:
            rest.append(f"{setting}{equals}{value}")
    return first + rest


def _check_name(name: str) -> None:
    if name in config_type().model_fields:
        return
    from gar.records.dotted import leaves  # with pyarrow

    settings = [setting for setting, _ in leaves(config_type()().model_dump())]
    settings += [f"trl.{field}" for field in field_types()]
    if joined := [setting for setting in settings if setting.replace(".", "_") == name]:
        raise UsageError(f"unknown flag --{name}. Did you mean --{joined[0]}?")
    last_parts = [setting.rpartition(".")[2] for setting in settings]
    near = name if name in last_parts else next(iter(difflib.get_close_matches(name, last_parts, n=1, cutoff=0.8)), "")
    found = [f"--{setting}" for setting, last in zip(settings, last_parts, strict=True) if last == near]
    hint = f" Did you mean {' or '.join(found)}?" if found else ""
    raise UsageError(f"unknown flag --{name}.{hint} gar train --help-all shows every setting.")
