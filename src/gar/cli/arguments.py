"""Parse command lines with tyro. One table holds the aliases of `gar train`."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args

import tyro
from pydantic import create_model

from gar.cli.main import choose
from gar.config import RunConfig, config_type, parse_yaml
from gar.integrations.trl.fields import Field, check_renamed, known_fields

ALIASES = {
    "--model": "--model.path",
    "--model_name_or_path": "--model.path",
    "--attn_implementation": "--model.attention",
    "--dtype": "--model.dtype",
    "--dataset_name": "--data.source",
    "--dataset_train_split": "--data.split",
    "--use_peft": "--adapter.rank=16",
    "--lora_r": "--adapter.rank",
    "--lora_alpha": "--adapter.alpha",
    "--lora_target_modules": "--adapter.target_modules",
    **{f"--{field}": f"--data.{field}" for field in ("column_schema", "prompt_field", "answer_field", "expert_fields")},
    "--output_dir": "--records.output_dir",
    "--steps": "--trl.max_steps",
    **{
        f"--{field}": f"--trl.{field}"
        for field in (
            "learning_rate", "max_steps", "num_train_epochs", "num_generations", "max_completion_length",
            "per_device_train_batch_size", "gradient_accumulation_steps", "use_vllm",
        )
    },
}  # fmt: skip # the fields that keep their name on two lines
"""Names that users of TRL, Hugging Face and `gar data` type. One with a value takes none. Later flags go over it."""


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


@_registry.primitive_rule
def _optional(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Show optional settings as STR instead of {None}|STR. The word None still unsets them."""
    if info.type_origin not in (Union, UnionType) or NoneType not in get_args(info.type):
        return None
    kinds = tuple(kind for kind in get_args(info.type) if kind is not NoneType)
    inner = tyro.constructors.ConstructorRegistry.get_primitive_spec(
        tyro.constructors.PrimitiveTypeInfo.make(cast(Any, Union[kinds]), info.markers)  # noqa: UP007 (of a tuple)
    )
    if not isinstance(inner, tyro.constructors.PrimitiveConstructorSpec) or inner.nargs != 1 or inner.choices:
        return None
    return replace(
        inner,
        instance_from_str=lambda words: None if words == ["None"] else inner.instance_from_str(words),
        is_instance=lambda value: value is None or inner.is_instance(value),
        str_from_instance=lambda value: ["unset"] if value is None else inner.str_from_instance(value),
    )


@_registry.primitive_rule
def _several(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """A tuple of any length. The help shows an empty one as none."""
    kinds = get_args(info.type)
    if info.type_origin is not tuple or kinds[1:] != (...,):
        return None
    as_list = tyro.constructors.ConstructorRegistry.get_primitive_spec(
        tyro.constructors.PrimitiveTypeInfo.make(list[kinds[0]], info.markers)
    )
    if not isinstance(as_list, tyro.constructors.PrimitiveConstructorSpec):
        return None
    return replace(
        as_list,
        instance_from_str=lambda words: tuple(as_list.instance_from_str(words)),
        is_instance=lambda value: isinstance(value, tuple) and as_list.is_instance(list(value)),
        str_from_instance=lambda value: as_list.str_from_instance(list(value)) if value else ["none"],
    )


def parse(kind: Any, arguments: Sequence[str], **options: Any) -> Any:
    """`tyro.cli` for a class of settings. For a wrong command line tyro prints the reason and exits with status 2."""
    options.setdefault("config", (tyro.conf.FlagCreatePairsOff,))  # --overwrite or --no-compare, whichever changes it
    options.setdefault("description", inspect.getdoc(kind))
    named = create_model(f"the command line of {options['prog']}", __base__=kind)  # as tyro's errors call it
    return tyro.cli(named, args=arguments, registry=_registry, **options)


def run_stage(prog: str, stages: Mapping[str, type], arguments: Sequence[str], *, about: str) -> int:
    """Run one stage of a command. A stage is a class of settings with a docstring, which is its help, and `run`."""
    summaries = {name: str(stage.__doc__).partition("\n")[0] for name, stage in stages.items()}
    name, rest = choose(arguments, summaries, prog=prog, about=about)
    return parse(stages[name], rest, prog=f"{prog} {name}").run()


def in_full(arguments: Sequence[str]) -> list[str]:
    """Replace the aliases in the arguments of `gar train` with the full settings."""
    first, rest = [], []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        flag = f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name
        setting = ALIASES.get(flag, name)
        if "=" in setting:
            first.append(setting)
        else:
            rest.append(f"{setting}{equals}{value}")
    return first + rest


class _Default(str):
    """A default, which differs from a value on the command line only by its type."""


def _in_yaml(field: Field) -> Any:
    """A value in YAML. A flag without a value is true. Several words for a field that takes a list are its members."""

    def parsed(words: list[str]) -> Any:
        value = parse_yaml(" ".join(words)) if words else True
        if isinstance(value, list | dict | NoneType) or not (field.is_only_list or (field.is_list and words[1:])):
            return value
        return [parse_yaml(word) for word in words]

    return Annotated[
        Any,
        tyro.constructors.PrimitiveConstructorSpec(
            nargs="*",
            metavar="YAML",
            instance_from_str=parsed,
            is_instance=lambda value: True,
            str_from_instance=lambda value: [str(value)],
        ),
    ]


def parse_run(arguments: Sequence[str], defaults: RunConfig, *, description: str) -> RunConfig:
    """Parse the settings of `gar train`. Flags override `defaults`, and `--trl.FIELD` sets any field of TRL's."""
    check_renamed(arguments)
    kind = config_type()
    fields: dict[str, Any] = {
        name: (_in_yaml(field), _Default(defaults.trl.get(name, "as-in-TRL"))) for name, field in known_fields().items()
    }
    trl: Any = create_model("Trl", **fields)
    chosen = parse(
        create_model(kind.__name__, __base__=kind, trl=(trl, trl())),
        in_full(arguments),
        default=defaults.model_copy(update={"trl": trl()}),
        prog="gar train",
        description=description,
        use_underscores=True,
        config=(tyro.conf.FlagConversionOff,),
    )
    given = {name: value for name, value in chosen.trl if not isinstance(value, _Default)}
    return kind.model_validate(dict(chosen) | {"trl": defaults.trl | given})
