"""TRL as an engine: its abilities and its configuration.

A field of the method that the user sets to a different value is an error.
"""

import copy
import dataclasses
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast, get_args

import torch
from transformers import GenerationConfig, ProcessorMixin, TrainingArguments
from trl import GRPOConfig

from gar.config import RunConfig
from gar.data.problem_set import ProblemSet
from gar.data.problems import no_experts
from gar.errors import ConfigError
from gar.integrations.trl.fields import check_enough_problems, wrong_fields
from gar.integrations.trl.rules import RESUME_RULES, RULES, TrlFlags
from gar.methods import METHODS, Engine, Method
from gar.methods.base import Estimator, Need
from gar.rules import Facts, faults, raise_all
from gar.step import Shaping, plan_shaping

DEFAULTS: dict[str, Any] = {
    # slime's defaults, the paper's stack: per-sequence mean, no KL, group-normalized (docs/how-it-works.md).
    "loss_type": "grpo",
    "scale_rewards": "group",
    "beta": 0.0,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": 100,
    "save_total_limit": 2,
    "report_to": "none",
    "project": "gar",
}
"""Defaults of `gar train` that differ from TRL's. `GARTrainer` does not touch them."""

TRL = Engine(
    name="TRL",
    can=frozenset(need for kind in get_args(Need) for need in get_args(kind)),  # everything
    estimators=dict.fromkeys(get_args(Estimator), ()),
    ddof=1,
    eps=1e-4,
    rules=RULES,
)
"""TRL runs every method. ddof and eps come from its advantages."""

PLAIN_TRAINER = dataclasses.replace(TRL, name="GARTrainer", can=TRL.can - {"trainer"})
"""`GARTrainer` itself: a method with a trainer of its own needs that one."""


def grpo_arguments(config: RunConfig) -> tuple[GRPOConfig, Shaping]:
    """TRL's configuration for a run (`DEFAULTS`, then the user's fields, then the method's), and the method's plan.

    `in_folder` gives it the run's folder, once that is made. Until then it names one that is there.

    Raises:
        ConfigError: TRL has no such field, rejects a value, or does not go with the method.
    """
    raise_all(wrong_fields(config.trl))
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
    """A configuration of one of TRL's trainers (`kind`) from a run's settings. Fields that it lacks are left out.

    Args:
        kind: For example `trl.GRPOConfig`.
        config: The run's settings. `DEFAULTS` and then `config.trl` give the fields.
        output_dir: Where checkpoints go.
        fields: Override the run's.

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
    values |= {
        "output_dir": str(output_dir),
        "seed": config.seed,
    }
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


def trl_flags(args: Any) -> TrlFlags:
    """The fields of a `trl.GRPOConfig`, and what follows from them."""
    updates = generation_passes(args) / args.gradient_accumulation_steps
    corrects = args.use_vllm and args.vllm_importance_sampling_correction
    return TrlFlags(
        values={f"trl.{name}": value for name, value in vars(args).items()} | {"updates_per_rollout": updates},
        divide_rewards=args.scale_rewards != "none",
        on_policy=args.gradient_accumulation_steps % generation_passes(args) == 0,
        accelerator=torch.accelerator.is_available(),
        corrects_filtered_sampling=corrects and _is_filtered(args),
    )


def _is_filtered(args: Any) -> bool:
    """Whether tokens are drawn from other probabilities than the policy's at its temperature."""
    chosen = sampling_of(args) | {"top_p": args.top_p} | dict(args.generation_kwargs or {})
    neutral = {"top_p": (1.0, None), "top_k": (0, -1, None), "min_p": (0.0, None), "repetition_penalty": (1.0, None)}
    return any(chosen.get(name) not in values for name, values in neutral.items())


def check_processor(processing_class: Any) -> None:
    """Raise a `ConfigError` for the processor of a model that reads more than text."""
    if isinstance(processing_class, ProcessorMixin):
        raise ConfigError(
            f"processing_class is a multimodal processor ({type(processing_class).__name__}), expected a tokenizer: "
            "GAR works on text.",
            code="processing_class",
        )


def check_batch(args: Any, num_problems: int) -> None:
    """Raise a `DataError` if there are fewer problems than a batch has groups."""
    check_enough_problems(args.generation_batch_size, args.num_generations, num_problems)


def check_problems(args: Any, method: Method, problems: ProblemSet) -> None:
    """Raise a `DataError` if there are too few problems for a batch, or no expert solutions for the method."""
    check_batch(args, len(problems))
    if method.alignment is not None and not problems.anchored_sample()[0]:
        raise no_experts(method.name, len(problems))


def unread_fields(values: Mapping[str, Any], read: Collection[str]) -> list[str]:
    """Fields, as "trl.name", that a method with its own trainer does not read: not in `read`, nor transformers'."""
    shared = {field.name for field in dataclasses.fields(TrainingArguments)}
    return [f"trl.{name}" for name in values if name not in shared and f"trl.{name}" not in read]


def generation_passes(args: Any) -> int:
    """Forward-backward passes made on one generation of rollouts."""
    return args.num_iterations * args.steps_per_generation


def inexact_resumes(args: Any) -> list[str]:
    """Why a resumed run would differ from an uninterrupted one, a sentence for each such setting."""
    return [text for _, text in faults(RESUME_RULES, Facts(settings=trl_flags(args).values))]
