"""`gar train`: a YAML file or a preset gives the settings, flags override them."""

import gc
import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gar.cli.arguments import ALIASES, parse_run
from gar.cli.console import announce
from gar.cli.outcomes import DONE
from gar.config import RunConfig, VariantName, make_config, merge, preset_names, read_config, read_preset, with_template
from gar.errors import ConfigError, UsageError, did_you_mean
from gar.interrupts import END_WITH_PARENT, Interrupts, end_with_parent

if TYPE_CHECKING:
    from gar.records import RunFolder

_HELP = """usage: gar train [CONFIG.yaml | --preset NAME] [--SETTING VALUE ...] [--dry-run]
       gar train --resume RUN [--allow-config-change]
       gar train ... --records.name NAME --resume-if-exists

Train a policy with gradient-aligned rewards.

examples:
  gar train --preset demo                   offline, minutes on a CPU
  gar train --model.path Qwen/Qwen3-0.6B --data.source problems.jsonl
  gar train --preset demo --method grpo --trl.max_steps 20

options:
  CONFIG.yaml            settings as YAML or JSON, the first argument
  --preset NAME          a configuration that ships with gar, see below
  --plugin NAME          a module or .py file with your own methods
  --dry-run              show the settings and the preflight, and stop
  --resume RUN           continue an interrupted run, with its own settings
  --resume-if-exists     continue the run named by --records.name, or start it
                         if there is none (for jobs that a cluster restarts)
  --allow-config-change  with --resume: accept changed settings or data
  --help-all             every setting, with its meaning and default

Ctrl-C or SIGTERM finishes the step and writes a checkpoint. A second one stops
at once.

common settings:
  model and data   --model.path --adapter.rank --data.source --data.split
                   --data.prompt_field --data.answer_field --data.expert_fields
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

_DESCRIPTION = """Every setting of gar train. A flag overrides a file or preset, which overrides the variant.

--trl.FIELD VALUE sets any field of TRL's configuration for the method."""


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Where the settings come from, and what to do with them."""

    file: Annotated[str | None, tyro.conf.Suppress] = None
    preset: str | None = None
    plugin: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    resume: str = ""
    resume_if_exists: tyro.conf.FlagCreatePairsOff[bool] = False
    allow_config_change: tyro.conf.FlagCreatePairsOff[bool] = False
    variant: VariantName | None = None
    dry_run: tyro.conf.FlagCreatePairsOff[bool] = False


def main(arguments: list[str]) -> int:
    """Parse, check, then run. Torch is imported last."""
    if os.environ.get(END_WITH_PARENT):
        end_with_parent()
    source, rest = _parse_source(arguments)
    if {"-h", "--help"} & set(rest):
        print(_HELP)
        for title, names in (("presets", preset_names()), ("short names", ALIASES)):
            text = f"{title}: {', '.join(names)}"
            print(textwrap.fill(text, 79, subsequent_indent="  ", break_on_hyphens=False))
        return DONE
    if source.resume:
        config = None
        _check_resume(source, rest)
    else:
        config = _parse_settings(source, rest)
        from gar.train.checks import check_before_loading

        check_before_loading(config)
        found = None if source.dry_run else _existing_run(config, resume=source.resume_if_exists)
        if found is not None and found.read_run().status == "finished":
            announce(f"{found.path}: this run is finished. Its model is in {found.path / 'model'}.")
            return DONE
        source = source if found is None else replace(source, resume=str(found.path))
    announce("loading torch, transformers and TRL ...")
    if config is not None:
        _check_accelerator(config)
    interrupts = Interrupts()
    with interrupts.catch():
        try:
            _train(source, config, ["gar", "train", *arguments], interrupts)
        except KeyboardInterrupt as interrupt:
            interrupt.args = interrupt.args or ("interrupted before there was a run folder. Nothing was written.",)
            raise
    return DONE


def _check_accelerator(config: RunConfig) -> None:
    """Raise a `ConfigError` if bfloat16 needs a GPU and there is none. TRL, which takes longer to load, says so too."""
    if not config.trl.get("bf16") or config.trl.get("use_cpu") is not False:
        return
    import torch

    if not torch.accelerator.is_available():
        raise ConfigError(
            "trl.bf16 is True and trl.use_cpu is False, and torch finds no GPU. Leave out both to train on the CPU.",
            code="trl.bf16",
        )


def _train(source: _Source, config: RunConfig | None, command: list[str], interrupts: Interrupts) -> None:
    gc.disable()  # the libraries make a million objects and drop few: a sixth of the time to import them
    try:
        from gar.integrations.trl.ranks import leave_ranks
        from gar.train import run
    finally:
        gc.enable()
    gc.freeze()  # collections need not go over these objects each time
    try:
        if source.resume:
            run.resume(source.resume, allow_config_change=source.allow_config_change, interrupts=interrupts)
        elif config is not None and source.dry_run:
            run.dry_run(config, checked=True)
        elif config is not None:
            run.train(config, command=command, interrupts=interrupts, checked=True)
        leave_ranks()
    finally:
        gc.unfreeze()  # the libraries' extensions count at the exit what was not collected, and print it


def _parse_source(arguments: list[str]) -> tuple[_Source, list[str]]:
    """Split the arguments into the source of the settings and the rest. A configuration file comes first."""
    file = arguments[0] if arguments and not arguments[0].startswith("-") else None
    source, rest = tyro.cli(
        _Source, args=arguments[1:] if file else arguments, prog="gar train", return_unknown_args=True, add_help=False
    )
    return replace(source, file=file), rest


def _check_resume(source: _Source, rest: list[str]) -> None:
    if rest or replace(source, resume="", allow_config_change=False) != _Source():
        raise ConfigError(
            "--resume takes every setting from the run folder, got also "
            f"{' '.join(rest) or 'a second source of settings'}. For other settings start a new run with "
            "--model.path RUN/model."
        )
    from gar.train.resume import unfinished_run

    unfinished_run(source.resume)


def _check_flag(flag: str) -> None:
    """Raise a `UsageError` for a misspelled flag about where the settings come from.

    The parser checks the flags of settings.
    """
    known = [f"--{field.name.replace('_', '-')}" for field in fields(_Source)]
    name = flag.removeprefix("--").replace("-", "_")
    is_setting = "." in name or name in RunConfig.model_fields or f"--{name}" in ALIASES
    if flag.startswith("--") and not is_setting and (hint := did_you_mean(flag, known, cutoff=0.8)):
        raise UsageError(f"unknown flag '{flag}'.{hint}")


def _existing_run(config: RunConfig, *, resume: bool) -> "RunFolder | None":
    """The run to `resume` under `records.name`, None for a new run.

    Raises:
        ConfigError: That run has other settings.
        RecordError: The name of a new run is taken.
    """
    from gar.records import RunFolder
    from gar.records.dotted import changes_in_words, differences
    from gar.records.run_folder import RUN, check_free

    name, path = config.records.name, Path(config.records.output_dir, config.records.name or "")
    if resume and not name:
        raise ConfigError("--resume-if-exists needs --records.name, which names the run to continue.")
    if name and not (resume and (path / RUN).exists()):
        check_free(path)
    if not name or not (path / RUN).exists():
        return None
    folder = RunFolder.open(path)
    changed = differences(folder.read_run().settings, with_template(config).model_dump(mode="json"))
    if changed:
        raise ConfigError(
            f"{path}: --resume-if-exists found this run with other settings: {changes_in_words(changed)}. Give it its "
            "own settings, or another --records.name for a new run.",
            code="other-settings",
        )
    return folder


def _parse_settings(source: _Source, arguments: list[str]) -> RunConfig:
    """Merge the settings: flags override the file or preset, which overrides the variant's defaults."""
    if source.file and source.preset:
        raise ConfigError(f"give a configuration file or --preset, not both. Got {source.file} and {source.preset}.")
    if source.allow_config_change:
        raise ConfigError("--allow-config-change needs --resume: a run continues with what was changed in its folder.")
    name, values = "command line", {}
    if source.preset:
        name, values = f"preset {source.preset}", read_preset(source.preset)
    elif source.file:
        name, values = source.file, read_config(source.file) or {}
    if isinstance(values, Mapping):  # make_config rejects anything else
        variant = {"variant": source.variant} if source.variant else {}
        plugins = {"plugins": [*values.get("plugins", ()), *source.plugin]} if source.plugin else {}
        values = merge(values, variant | plugins)
    for argument in arguments:
        _check_flag(argument.partition("=")[0])
    flags = ["--help" if argument == "--help-all" else argument for argument in arguments]
    return parse_run(flags, make_config(values, source=name), description=_DESCRIPTION)
