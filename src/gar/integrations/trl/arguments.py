"""TRL's configuration: from a `RunConfig`, and with the fields that belong to a method.

A field of the method that the user sets to a different value is an error.
"""

import copy
import dataclasses
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import torch
from transformers import GenerationConfig
from trl import GRPOConfig

from gar.config import RunConfig
from gar.errors import ConfigError
from gar.integrations.trl.fields import DEFAULTS, check_fields
from gar.integrations.trl.flags import TRL, trl_flags
from gar.methods import METHODS, Method
from gar.step import Shaping, plan_shaping


def grpo_arguments(config: RunConfig) -> tuple[GRPOConfig, Shaping]:
    """TRL's configuration for a run (`DEFAULTS`, then the user's fields, then the method's), and the method's plan.

    `in_folder` gives it the run's folder, once that is made. Until then it names one that is there.
    """
    check_fields(config.trl)
    method = METHODS[config.method]
    args = with_method(trl_arguments(GRPOConfig, config, tempfile.gettempdir()), method, chosen=config.trl)
    shaping = plan_shaping(TRL, method, dict(config), flags=trl_flags(args), quiet=True)
    if method.check is not None:
        method.check(config, args)
    return args, shaping


def in_folder(args: Any, config: RunConfig, folder: Path) -> Any:
    """The same configuration, changed: checkpoints go into a run folder. Trackers see its name."""
    args.output_dir = str(folder / "checkpoints")
    args.run_name = config.trl.get("run_name", folder.name)
    return args


def trl_arguments(kind: Any, config: RunConfig, output_dir: str | Path, **fields: Any) -> Any:
    """A configuration of one of TRL's trainers (`kind`) from a run's settings, as far as it has their fields.

    Args:
        kind: For example `trl.GRPOConfig`.
        config: The run's settings. `DEFAULTS` and then `config.trl` give the fields.
        output_dir: Where checkpoints go.
        fields: Go over the run's.

    Raises:
        ConfigError: TRL rejects the combination.
    """
    known = {field.name for field in dataclasses.fields(kind)}
    values: dict[str, Any] = DEFAULTS | {"run_name": Path(output_dir).parent.name}
    if not torch.accelerator.is_available():
        values |= {"use_cpu": True, "bf16": False}  # TRL's default of bfloat16 would be rejected
    if config.model.path == "embedded":
        values["max_completion_length"] = 64  # TRL's default fills the model's whole context
    values |= config.trl | fields
    values |= {"output_dir": str(output_dir), "seed": config.seed, "push_to_hub": False}  # `gar.train.upload` does it
    try:
        return kind(**{name: value for name, value in values.items() if name in known})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"trl.{kind.__name__} rejects these settings: {error}") from error


def with_method(args: GRPOConfig, method: Method, *, chosen: Collection[str] | None = None) -> GRPOConfig:
    """TRL's configuration with the fields of a method (`Method.trl`). A copy, unless it agrees with the method.

    Fields in `chosen` keep their values, for `plan_shaping` to check. None means those that differ from TRL's defaults.
    """
    if chosen is None:
        defaults = {field.name: field.default for field in dataclasses.fields(GRPOConfig)}
        chosen = [name for name in method.trl if getattr(args, name) != defaults[name]]
    different = {name: value for name, value in method.trl.items() if name not in chosen}
    if any(getattr(args, name) != value for name, value in different.items()):
        args = copy.copy(args)
        vars(args).update(different)
    return args


def sampling_of(args: GRPOConfig) -> dict[str, Any]:
    """Sampling fields of training besides temperature, top_p and length, as far as transformers has them."""
    further = cast("dict[str, Any]", args.generation_kwargs or {})
    if args.use_vllm:
        known = GenerationConfig().to_dict()
        further = {name: value for name, value in further.items() if name in known}
    return {name: getattr(args, name) for name in ("top_k", "min_p", "repetition_penalty")} | further
