"""`gar train`: a YAML file or a preset gives the settings, flags override them."""

import argparse
import textwrap
from collections.abc import Mapping
from typing import Annotated, Any

import tyro

from gar.config import VARIANTS, RunConfig, make_config, merge, parse_yaml, preset_names, read_config, read_preset
from gar.errors import ConfigError
from gar.settings import REMOVED, removal

_TRL = "--trl."

# Blank lines and indentation as tyro lays them out.
_DESCRIPTION = """Train a policy with gradient-aligned rewards:
  gar train [CONFIG.yaml | --preset NAME] [--dry-run] [--SETTING VALUE ...]
  gar train --resume RUN [--override]

Settings come from variant, file or preset, and flags; later ones win:
  CONFIG.yaml        settings by the names below, by section; must come first
  --preset NAME      a configuration that ships with gar:
{presets}
  --dry-run          show the resolved settings and the preflight, and stop
  --resume RUN       continue an interrupted run, with its own settings
  --override         with --resume: accept changed settings, data or records
  --trl.FIELD VALUE  any field of trl.GRPOConfig: --trl.learning_rate 1e-6
"""


def _wrapped_presets() -> str:
    indent = " " * len("  CONFIG.yaml        ")
    return textwrap.fill(", ".join(preset_names()), 79, initial_indent=indent, subsequent_indent=indent,
                         break_on_hyphens=False)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Parse first; torch is imported only when there is something to run."""
    source, rest = _parse_source(arguments)
    if source.resume is not None and not {"-h", "--help"} & set(rest):
        if rest or source.config or source.preset or source.variant or source.dry_run:
            raise ConfigError(
                "--resume takes every setting from the run folder, so that the run continues exactly; got "
                f"{' '.join(rest) or 'a second source of settings'} beside it. To go on with other settings start a "
                "new run with --model.path RUN/model."
            )
        from gar.integrations.trl.ranks import leave_ranks
        from gar.training import resume

        resume(source.resume, override=source.override)
        leave_ranks()
        return 0
    if source.override:
        raise ConfigError("--override goes with --resume: it lets a run go on with what was changed in its folder.")
    config = _parse_settings(source, rest)
    from gar import training
    from gar.integrations.trl.ranks import leave_ranks

    if source.dry_run:
        training.dry_run(config)
    else:
        training.train(config, command=["gar", "train", *arguments])
    leave_ranks()
    return 0


def _parse_source(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Where the settings come from, and the remaining arguments. The configuration file, if any, comes first."""
    config = arguments[0] if arguments and not arguments[0].startswith("-") else None
    parser = argparse.ArgumentParser(prog="gar train", add_help=False, allow_abbrev=False)
    parser.add_argument("--preset")
    parser.add_argument("--resume")
    parser.add_argument("--override", action="store_true")
    parser.add_argument("--variant", choices=VARIANTS)
    parser.add_argument("--dry-run", action="store_true")
    source, rest = parser.parse_known_args(arguments[1:] if config else arguments)
    source.config = config
    if config and source.preset:
        raise ConfigError(f"give a configuration file or --preset, got both: {config} and {source.preset}")
    return source, rest


def _parse_settings(source: argparse.Namespace, arguments: list[str]) -> RunConfig:
    """The variant's defaults, under the file's or preset's values, under the flags."""
    trl, rest = _split_trl(arguments)
    for argument in rest:
        name = argument.partition("=")[0].removeprefix("--").replace("-", "_")
        if name in REMOVED:
            raise ConfigError(removal(name))
    name, values = _read_source(source)
    defaults = make_config(values, source=name)
    chosen = tyro.cli(
        Annotated[RunConfig, tyro.conf.FlagConversionOff],
        args=rest,
        default=defaults.model_copy(update={"trl": {}}),  # tyro would take the fields set here for all there are
        prog="gar train",
        description=_DESCRIPTION.format(presets=_wrapped_presets()),
        use_underscores=True,
    )
    return chosen.model_copy(update={"trl": defaults.trl | trl})


def _read_source(source: argparse.Namespace) -> tuple[str, Any]:
    """Name and values of the file or preset. A variant given as a flag goes over theirs."""
    name, values = "command line", {}
    if source.preset:
        name, values = f"preset {source.preset}", read_preset(source.preset)
    elif source.config:
        name, values = source.config, read_config(source.config)
    if source.variant and isinstance(values or {}, Mapping):  # else it is for make_config to refuse
        values = merge(values or {}, {"variant": source.variant})
    return name, values


def _split_trl(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """`--trl.FIELD VALUE` and `--trl.FIELD=VALUE`, read as YAML, apart from all other arguments."""
    trl: dict[str, Any] = {}
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if not argument.startswith(_TRL):
            rest.append(argument)
            continue
        name, equals, value = argument.removeprefix(_TRL).partition("=")
        if not equals:
            value = next(remaining, "--")
        if value.startswith("--"):
            raise ConfigError(f"{argument} needs a value, for example {_TRL}learning_rate 1e-6")
        trl[name.replace("-", "_")] = parse_yaml(value, _TRL + name)
    return trl, rest
