"""What GAR cannot do under TRL, said before training starts and with the reason."""

from collections.abc import Sequence
from typing import Any, get_args

from transformers import ProcessorMixin

from gar.data.problems import no_expert_solutions
from gar.errors import ConfigError
from gar.integrations.trl.fields import check_num_problems
from gar.methods import Engine, Method
from gar.methods.base import Estimator, Need
from gar.step import Shaping
from gar.types import Problem

TRL = Engine(
    name="TRL",
    can=frozenset(need for kind in get_args(Need) for need in get_args(kind)),  # everything
    estimators=dict.fromkeys(get_args(Estimator), ()),
    ddof=1,
    eps=1e-4,
)
"""TRL runs every method. ddof and eps are those of its own advantages."""


def check_supported(args: Any, shaping: Shaping, problems: Sequence[Problem]) -> None:
    """Reject settings under which the rewards or advantages would not be what the method defines.

    Args:
        args: A `trl.GRPOConfig`.
        shaping: What is trained.
        problems: What is trained on.

    Raises:
        ConfigError: Names the setting, its value, and why.
        DataError: The data lack what the method needs.
    """
    if args.multi_objective_aggregation != "sum_then_normalize":
        raise ConfigError(
            f"trl.multi_objective_aggregation is '{args.multi_objective_aggregation}', expected 'sum_then_normalize': "
            "GAR's bonus must be added to the outcome before the group is normalized"
        )
    if args.remove_unused_columns:
        raise ConfigError(
            "trl.remove_unused_columns is True, expected False: the columns answer and expert_solution would be dropped"
        )
    if getattr(args, "dynamic_sampling", False):
        raise ConfigError(
            "trl.dynamic_sampling drops groups whose outcome rewards are all equal before GAR sees them, and those "
            "all-correct groups are the ones that GAR gives a signal"
        )
    _check_scale(args, shaping)
    if shaping.method.gate is not None:
        _check_gate(args, shaping.method)
    _check_problems(args, shaping.method, problems)


def refuse_processor(tokenizer: Any) -> None:
    """Reject a multimodal processor in the place of a tokenizer."""
    if isinstance(tokenizer, ProcessorMixin):
        raise ConfigError("GAR works on text: processing_class must be a tokenizer, got a multimodal processor")


def _check_scale(args: Any, shaping: Shaping) -> None:
    """What TRL divides rewards by must be what the run's advantages are divided by."""
    estimator = shaping.estimator
    if estimator == "group" and overrides_advantages(shaping) and args.scale_rewards not in ("group", "none"):
        raise ConfigError(
            f"trl.scale_rewards is '{args.scale_rewards}', but the advantage section is about groups: use "
            "trl.scale_rewards group or none, or leave the section at TRL's own (advantage.ddof and eps null)"
        )
    if args.scale_rewards != "group" and estimator != "group":
        raise ConfigError(
            f"trl.scale_rewards is '{args.scale_rewards}', but these advantages are not TRL's, and nothing would read "
            "it. Leave it at group."
        )


def check_batch(args: Any, problems: Sequence[Problem]) -> None:
    """`check_num_problems` for TRL's arguments."""
    check_num_problems(args.generation_batch_size, args.num_generations, len(problems))


def _check_problems(args: Any, method: Method, problems: Sequence[Problem]) -> None:
    check_batch(args, problems)
    if method.alignment is not None and not any(problem.anchors for problem in problems):
        raise no_expert_solutions(method.name, len(problems))


def _check_gate(args: Any, method: Method) -> None:
    """A gate weighs the ratio of each token, which therefore must be neither averaged nor clipped, nor always 1."""
    if args.importance_sampling_level != "token":
        raise ConfigError(
            f"trl.importance_sampling_level is '{args.importance_sampling_level}', expected 'token': {method.name} "
            "weighs the probability ratio of each token by itself"
        )
    if args.delta is not None:
        raise ConfigError(
            f"trl.delta is {args.delta}, expected none: it clips ratios, and {method.name} has a soft gate instead"
        )
    if args.gradient_accumulation_steps % generation_passes(args) == 0:
        raise ConfigError(
            f"{method.name} needs two or more updates per rollout: with one, every ratio is 1 and it is the plain "
            f"policy gradient. Got trl.num_iterations {args.num_iterations}, steps_per_generation "
            f"{args.steps_per_generation}, gradient_accumulation_steps {args.gradient_accumulation_steps}. "
            "Set trl.num_iterations to 2."
        )


def overrides_advantages(shaping: Shaping) -> bool:
    """Whether the run asks for other advantages than TRL's own."""
    advantage = shaping.advantage
    return (
        shaping.estimator != "group" or advantage.ddof is not None or advantage.eps is not None or advantage.min_std > 0
    )


def generation_passes(args: Any) -> int:
    """Forward-backward passes made on one generation of rollouts."""
    return args.num_iterations * args.steps_per_generation


def generation_period_steps(args: Any) -> int:
    """Optimizer steps from one generation of rollouts to the next. Resuming is exact at multiples of it."""
    return max(1, generation_passes(args) // args.gradient_accumulation_steps)


def inexact_resumes(args: Any) -> list[str]:
    """Why a resumed run would not be an uninterrupted one, a sentence for each setting that makes it so."""
    period = generation_period_steps(args)
    reasons = []
    if args.save_strategy == "steps" and args.save_steps % period:
        reasons.append(
            f"trl.save_steps {args.save_steps:g} is no multiple of the {period} steps between two generations: a "
            "resumed run will differ from an uninterrupted one."
        )
    if args.save_only_model and args.save_strategy != "no":
        reasons.append("trl.save_only_model leaves out the optimizer: this run cannot be resumed from its checkpoints.")
    if getattr(args, "sync_ref_model", False):
        reasons.append(
            "trl.sync_ref_model moves the reference model, which is in no checkpoint: a resumed run will differ from "
            "an uninterrupted one."
        )
    if args.ignore_data_skip:
        reasons.append(
            "trl.ignore_data_skip begins with the first problems again: a resumed run will differ from an "
            "uninterrupted one."
        )
    return reasons
