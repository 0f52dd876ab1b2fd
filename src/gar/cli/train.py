"""`gar train`: a YAML file or a preset gives the settings, flags override them."""

import argparse
from collections.abc import Mapping
from typing import Any

import tyro

from gar.cli.arguments import in_full, parse
from gar.cli.console import announce
from gar.cli.outcomes import DONE
from gar.cli.parser import Parser
from gar.cli.train_help import short_help
from gar.config import VARIANTS, RunConfig, config_type, make_config, merge, parse_yaml, read_config, read_preset
from gar.errors import ConfigError, UsageError
from gar.integrations.trl.fields import field_types

_TRL = "--trl."
_DESCRIPTION = """Train a policy with gradient-aligned rewards. Every setting, by section.

gar train --help has examples and what people change.

Later ones win: variant, file or preset, flags.

--trl.FIELD VALUE sets any field of TRL's configuration for the method."""


def main(arguments: list[str]) -> int:
    """Parse first, then check; torch is imported only when there is something to run."""
    source, rest = _parse_source(arguments)
    helped = {"-h", "--help", "--help-all"} & set(rest)
    if source.resume is not None and not helped:
        _check_resume(source, rest)
    elif source.allow_config_change and not helped:
        raise ConfigError(
            "--allow-config-change needs --resume: it lets a run continue with what was changed in its folder."
        )
    if "--help-all" not in rest and helped:
        name, values = _read_source(source)
        print(short_help(make_config(values, source=name)), end="")
        return DONE
    config = None if source.resume is not None and not helped else _parse_settings(source, rest)
    if config is not None:
        from gar.train.checks import check_before_loading

        check_before_loading(config)
    announce("loading torch, transformers and TRL ...")
    try:
        _run(source, config, arguments)
    except KeyboardInterrupt as interrupt:
        if interrupt.args:
            raise
        raise KeyboardInterrupt("interrupted before there was a run folder; nothing was written") from None
    return DONE


def _run(source: argparse.Namespace, config: RunConfig | None, arguments: list[str]) -> None:
    from gar.integrations.trl.ranks import leave_ranks
    from gar.train import run

    if config is None:
        run.resume(source.resume, allow_config_change=source.allow_config_change)
    elif source.dry_run:
        run.dry_run(config)
    else:
        run.train(config, command=["gar", "train", *arguments])
    leave_ranks()


def _check_resume(source: argparse.Namespace, rest: list[str]) -> None:
    if rest or source.config or source.preset or source.plugin or source.variant or source.dry_run:
        raise ConfigError(
            "--resume takes every setting from the run folder, so that the run continues exactly; got "
            f"{' '.join(rest) or 'a second source of settings'} beside it. To continue with other settings start a "
            "new run with --model.path RUN/model."
        )
    from gar.records import RunFolder

    RunFolder.open(source.resume)


def _parse_source(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Where the settings come from, and the remaining arguments. The configuration file, if any, comes first."""
    config = arguments[0] if arguments and not arguments[0].startswith("-") else None
    parser = Parser(prog="gar train", add_help=False, allow_abbrev=False)
    parser.add_argument("--preset")
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--resume")
    parser.add_argument("--allow-config-change", action="store_true")
    parser.add_argument("--variant", choices=VARIANTS)
    parser.add_argument("--dry-run", "--dry_run", action="store_true")
    source, rest = parser.parse_known_args(arguments[1:] if config else arguments)
    source.config = config
    if config and source.preset:
        raise ConfigError(f"give a configuration file or --preset, got both: {config} and {source.preset}")
    return source, rest


def _parse_settings(source: argparse.Namespace, arguments: list[str]) -> RunConfig:
    """The variant's defaults, under the file's or preset's values, under the flags."""
    name, values = _read_source(source)
    defaults = make_config(values, source=name)
    trl, rest = _split_trl(in_full(arguments))
    chosen = parse(
        config_type(),
        ["--help" if argument == "--help-all" else argument for argument in rest],
        default=defaults.model_copy(update={"trl": {}}),  # tyro would accept no other fields than those set here
        prog="gar train",
        description=_DESCRIPTION,
        use_underscores=True,
        config=(tyro.conf.FlagConversionOff,),
    )
    return chosen.model_copy(update={"trl": defaults.trl | trl})


def _read_source(source: argparse.Namespace) -> tuple[str, Any]:
    """Name and values of the file or preset. A variant given as a flag overrides theirs, and plugins are added."""
    name, values = "command line", {}
    if source.preset:
        name, values = f"preset {source.preset}", read_preset(source.preset)
    elif source.config:
        name, values = source.config, read_config(source.config)
    if source.variant and isinstance(values or {}, Mapping):  # make_config rejects anything else
        values = merge(values or {}, {"variant": source.variant})
    if source.plugin and isinstance(values or {}, Mapping):
        values = merge(values or {}, {"plugins": [*(values or {}).get("plugins", ()), *source.plugin]})
    return name, values


def _split_trl(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Separate `--trl.FIELD VALUE` and `--trl.FIELD=VALUE`, read as YAML, from all other arguments.

    A field that is true or false may stand alone, as in TRL: `--trl.use_vllm`.
    """
    trl: dict[str, Any] = {}
    rest: list[str] = []
    remaining = list(reversed(arguments))
    while remaining:
        argument = remaining.pop()
        if not argument.startswith(_TRL):
            rest.append(argument)
            continue
        name, equals, value = argument.removeprefix(_TRL).partition("=")
        name = name.replace("-", "_")
        if not equals:
            alone = not remaining or remaining[-1].startswith("--")
            if alone and "bool" not in field_types().get(name, ""):
                raise UsageError(f"{argument} needs a value, for example {_TRL}learning_rate 1e-6")
            value = "true" if alone else remaining.pop()
        trl[name] = parse_yaml(value, _TRL + name)
    return trl, rest
