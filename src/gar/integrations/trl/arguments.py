"""From a `RunConfig` to a `trl.GRPOConfig`: our defaults, the method's, the user's, then what the run decides."""

import dataclasses
import difflib
from pathlib import Path
from typing import Any, cast

import torch
from transformers import GenerationConfig
from trl import GRPOConfig

from gar.config import RunConfig
from gar.errors import ConfigError
from gar.methods import METHODS, check_settings, resolve_signal

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
"""Where we differ from TRL's defaults."""

_OWNED = {
    "output_dir": "records.folder and records.name",
    "seed": "seed",
    "data_seed": "seed",
    "resume_from_checkpoint": "gar train --resume RUN",
    "reward_funcs": "verify.verifier",
}


def _device_defaults() -> dict[str, Any]:
    """Without an accelerator: float32 on the CPU, where TRL's default of bfloat16 would be refused."""
    return {} if torch.accelerator.is_available() else {"use_cpu": True, "bf16": False}


def grpo_arguments(config: RunConfig, folder: Path) -> GRPOConfig:
    """TRL's configuration for a run.

    Raises:
        ConfigError: `config.trl` names a field that TRL does not have (with the nearest one), or one that another
            setting of ours decides; nothing would read a setting of ours; or TRL refuses the combination, with its own
            words.
    """
    fields = {field.name for field in dataclasses.fields(GRPOConfig) if field.init}
    for name in config.trl:
        if name in _OWNED:
            raise ConfigError(f"trl.{name} is decided by another setting: use {_OWNED[name]}")
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f" Did you mean 'trl.{near[0]}'?" if near else ""
            raise ConfigError(f"unknown key 'trl.{name}': trl.GRPOConfig has no such field.{hint}")
    chosen = DEFAULTS | _device_defaults() | dict(METHODS[config.method].trl) | config.trl
    method, divides = METHODS[config.method], chosen["scale_rewards"] != "none"
    resolve_signal(method, config.signal)
    check_settings(method, reward=config.reward, advantage=config.advantage, divides=divides)
    try:
        return GRPOConfig(output_dir=str(folder / "checkpoints"), seed=config.seed, **chosen)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"trl.GRPOConfig refuses these settings: {error}") from error


def sampling_of(args: GRPOConfig) -> dict[str, Any]:
    """How training samples, besides temperature, top_p and length, as fields of transformers' `GenerationConfig`.

    Under vLLM `generation_kwargs` are fields of its `SamplingParams`: those that transformers has by the same name are
    taken.
    """
    further = cast("dict[str, Any]", args.generation_kwargs or {})
    if args.use_vllm:
        known = GenerationConfig().to_dict()
        further = {name: value for name, value in further.items() if name in known}
    return {
        "top_k": args.top_k,
        "min_p": args.min_p,
        "repetition_penalty": args.repetition_penalty,
        **further,
    }
