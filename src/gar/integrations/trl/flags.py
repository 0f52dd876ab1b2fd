"""TRL as an engine: its abilities, and its configuration as facts for `gar.rules`."""

from collections.abc import Sequence
from typing import Any, get_args

import torch
from transformers import ProcessorMixin

from gar import rules
from gar.integrations.trl.fields import check_enough, check_experts
from gar.methods import Engine, Method
from gar.methods.base import Estimator, Need
from gar.types import Problem

TRL = Engine(
    name="TRL",
    can=frozenset(need for kind in get_args(Need) for need in get_args(kind)),  # everything
    estimators=dict.fromkeys(get_args(Estimator), ()),
    ddof=1,
    eps=1e-4,
)
"""TRL runs every method. ddof and eps come from its advantages."""


def trl_flags(args: Any, processing_class: Any = None) -> dict[str, Any]:
    """The fields of a `trl.GRPOConfig` as "trl.FIELD", and what follows from them."""
    fields = {f"trl.{name}": value for name, value in vars(args).items()}
    return (
        fields
        | _processor(processing_class)
        | {
            "updates_per_rollout": generation_passes(args) / args.gradient_accumulation_steps,
            "on policy": args.gradient_accumulation_steps % generation_passes(args) == 0,
            "rewards are divided": args.scale_rewards != "none",
            "accelerator": torch.accelerator.is_available(),
        }
    )


def check_processor(processing_class: Any) -> None:
    """Raise a `ConfigError` for the processor of a model that reads more than text."""
    rules.raise_all(
        [fault for fault in rules.faults("TRL", _processor(processing_class)) if fault[0] == "processing_class"]
    )


def _processor(processing_class: Any) -> dict[str, Any]:
    multimodal = isinstance(processing_class, ProcessorMixin)
    return {"processing_class": "a multimodal processor" if multimodal else None}


def check_batch(args: Any, num_problems: int) -> None:
    """Raise a `DataError` if there are fewer problems than a batch has groups."""
    check_enough(args.generation_batch_size, args.num_generations, num_problems)


def check_problems(args: Any, method: Method, problems: Sequence[Problem]) -> None:
    """Raise a `DataError` if there are too few problems for a batch, or no expert solutions for the method."""
    check_batch(args, len(problems))
    check_solutions(method, problems)


def check_solutions(method: Method, problems: Sequence[Problem]) -> None:
    """Raise a `DataError` if the method needs expert solutions and there are none."""
    if method.alignment is not None:
        check_experts(method.name, problems)


def generation_passes(args: Any) -> int:
    """Forward-backward passes made on one generation of rollouts."""
    return args.num_iterations * args.steps_per_generation


def inexact_resumes(args: Any) -> list[str]:
    """Why a resumed run would differ from an uninterrupted one, a sentence for each such setting."""
    return [text for _, text in rules.faults("TRL", trl_flags(args), level="resume")]
