"""`gar train`: a YAML file or a preset gives the settings, flags override them."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import tyro

from gar.cli.arguments import ALIASES, parse_run
from gar.cli.console import announce
from gar.cli.outcomes import DONE
from gar.config import RunConfig, VariantName, make_config, merge, preset_names, read_config, read_preset
from gar.errors import ConfigError

_HELP = """usage: gar train [CONFIG.yaml | --preset NAME] [--SETTING VALUE ...] [--dry-run]
       gar train --resume RUN

Train a policy with gradient-aligned rewards.

examples:
  gar train --preset demo                   offline, minutes on a CPU
  gar train --model.path Qwen/Qwen3-0.6B --data.source problems.jsonl
  gar train --preset demo --method grpo --trl.max_steps 20

options:
  CONFIG.yaml            settings, YAML or JSON; must come first
  --preset NAME          a configuration that ships with gar, see below
  --plugin NAME          a module or .py file with methods of your own
  --dry-run              show the settings and the preflight, and stop
  --resume RUN           continue an interrupted run, with its own settings
  --help-all             every setting, with its meaning and default

settings that people change:
  model and data   --model.path --adapter.rank --data.source --data.split
                   --data.prompt_field --data.answer_field --data.anchor_fields
                   --data.template --data.max_prompt_tokens --seed
  method           --method --variant --reward.bonus_weight
                   --reward.format_penalty --signal.max_tokens
                   --verify.format --verify.verifier
  training         --trl.max_steps --trl.learning_rate --trl.num_generations
                   --trl.per_device_train_batch_size --trl.temperature
                   --trl.gradient_accumulation_steps --trl.use_vllm --trl.beta
                   --trl.max_completion_length --trl.save_steps
                   and every other field of trl.GRPOConfig
  checks, records  --preflight.mode --evaluate.sources --records.name
"""

_DESCRIPTION = """Train a policy with gradient-aligned rewards. Every setting, by section.

gar train --help has examples and what people change.

Later ones win: variant, file or preset, flags.

--trl.FIELD VALUE sets any field of TRL's configuration for the method."""


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Where the settings come from, and what to do with them."""

    file: Annotated[str | None, tyro.conf.Suppress] = None
    preset: str | None = None
    plugin: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    resume: str = ""
    variant: VariantName | None = None
    dry_run: tyro.conf.FlagCreatePairsOff[bool] = False


def main(arguments: list[str]) -> int:
    """Parse, check, then run. Torch is imported last."""
    source, rest = _parse_source(arguments)
    helped = {"-h", "--help", "--help-all"} & set(rest)
    if source.resume and not helped:
        _check_resume(source, rest)
    if "--help-all" not in rest and helped:
        print(_HELP)
        for title, names in (("presets", preset_names()), ("names of TRL that are read, too", ALIASES)):
            text = f"{title}: {', '.join(names)}"
            print(textwrap.fill(text, 79, subsequent_indent="  ", break_on_hyphens=False))
        return DONE
    config = None if source.resume and not helped else _parse_settings(source, rest)
    if config is not None:
        from gar.train.checks import check_before_loading

        check_before_loading(config)
    announce("loading torch, transformers and TRL ...")
    try:
        _run(source, config, arguments)
    except KeyboardInterrupt as interrupt:
        if interrupt.args:
            raise
        raise KeyboardInterrupt("interrupted before there was a run folder. Nothing was written.") from None
    return DONE


def _run(source: _Source, config: RunConfig | None, arguments: list[str]) -> None:
    from gar.integrations.trl.ranks import leave_ranks
    from gar.train import run

    if config is None:
        run.resume(source.resume)
    elif source.dry_run:
        run.dry_run(config)
    else:
        run.train(config, command=["gar", "train", *arguments])
    leave_ranks()


def _check_resume(source: _Source, rest: list[str]) -> None:
    if rest or source.file or source.preset or source.plugin or source.variant or source.dry_run:
        raise ConfigError(
            "--resume takes every setting from the run folder, got also "
            f"{' '.join(rest) or 'a second source of settings'}. For other settings start a new run with "
            "--model.path RUN/model."
        )
    from gar.records import RunFolder

    RunFolder.open(source.resume)


def _parse_source(arguments: list[str]) -> tuple[_Source, list[str]]:
    """Split the arguments into the source of the settings and the rest. A configuration file comes first."""
    file = arguments[0] if arguments and not arguments[0].startswith("-") else None
    source, rest = tyro.cli(
        _Source, args=arguments[1:] if file else arguments, prog="gar train", return_unknown_args=True, add_help=False
    )
    if file and source.preset:
        raise ConfigError(f"give a configuration file or --preset, not both. Got {file} and {source.preset}.")
    return replace(source, file=file), rest


def _parse_settings(source: _Source, arguments: list[str]) -> RunConfig:
    """Merge the settings: flags override the file or preset, which overrides the variant's defaults."""
    name, values = _read_source(source)
    flags = ["--help" if argument == "--help-all" else argument for argument in arguments]
    return parse_run(flags, make_config(values, source=name), description=_DESCRIPTION)


def _read_source(source: _Source) -> tuple[str, Any]:
    """Read the file or preset. A variant given as a flag overrides its variant, and plugins are added."""
    name, values = "command line", {}
    if source.preset:
        name, values = f"preset {source.preset}", read_preset(source.preset)
    elif source.file:
        name, values = source.file, read_config(source.file)
    if source.variant and isinstance(values or {}, Mapping):  # make_config rejects anything else
        values = merge(values or {}, {"variant": source.variant})
    if source.plugin and isinstance(values or {}, Mapping):
        values = merge(values or {}, {"plugins": [*(values or {}).get("plugins", ()), *source.plugin]})
    return name, values
