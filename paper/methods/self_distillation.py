"""The policy as its own teacher, with the expert solution in its prompt: TRL's experimental SDFT and SDPO."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from gar import ConfigError, Settings
from gar.data import EMBEDDED_TASKS
from gar.methods import OUTCOME_SETTINGS, Method, outcome_rewards

_CANNOT_RESUME = "its teacher is in no checkpoint of TRL."


class TeacherSettings(Settings):
    """The teacher. None takes TRL's default, or what the embedded models need."""

    teacher_model_kind: Literal["base", "ema", "live"] | None = None
    """The initial policy, a moving average of the policy, or the policy itself."""
    teacher_update_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the policy in each update of a moving average."""
    teacher_sync_steps: Annotated[int, Field(ge=1)] | None = None
    """Optimizer steps between two updates of a moving average."""
    distillation_mode: Literal["sampled_token", "full_logits", "topk_logits"] | None = None
    """What is compared at each token: the sampled token, all tokens, or the likeliest ones."""
    distillation_alpha: Annotated[float, Field(ge=0, le=1)] | None = None
    """Divergence: 0 forward KL, 1 reverse KL, Jensen-Shannon between them."""
    distillation_topk: Annotated[int, Field(ge=1)] | None = None
    """How many tokens topk_logits compares."""
    distillation_add_tail: bool | None = None
    """Whether topk_logits compares the rest of the probability, too."""
    distillation_is_clip: Annotated[float, Field(gt=0)] | None = None
    """Largest weight of a token for the policy's change since it was sampled."""


class SDFTSettings(TeacherSettings):
    """sdft: the teacher's prompt."""

    teacher_prompt_template: str | None = None
    """With {prompt} and {privileged_context}."""
    num_loss_tokens_to_skip: Annotated[int, Field(ge=0)] | None = None
    """First tokens of a response without loss."""


class SDPOSettings(TeacherSettings):
    """sdpo: the teacher's prompt, and the share of a policy loss."""

    reprompt_template: str | None = None
    """With {prompt} and {feedback}."""
    feedback_template: str | None = None
    """With {feedback_raw}."""
    distillation_weight: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of distillation in the loss. The rest is a policy loss."""


_SAMPLING = (
    "chat_template_kwargs", "max_completion_length", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "generation_kwargs", "cache_implementation", "num_generations", "num_generations_eval", "generation_batch_size",
    "steps_per_generation", "num_iterations", "shuffle_dataset", "disable_dropout", "ds3_gather_for_generation",
)  # fmt: skip
_POLICY_LOSS = ("loss_type", "scale_rewards", "epsilon", "epsilon_high", "importance_sampling_level")
_TEACHER = ("teacher_model_kind", "distillation_mode", "distillation_alpha", "distillation_is_clip")


def _reads_sdft(sections: Mapping[str, Any]) -> list[str]:
    own = ("teacher_prompt_template", "num_loss_tokens_to_skip")
    mode = "full_logits" if sections["data"].source in EMBEDDED_TASKS else "topk_logits"
    return [*_reads("sdft", sections["sdft"], own, mode=mode, teacher="base"), *(f"trl.{name}" for name in _SAMPLING)]


def _reads_sdpo(sections: Mapping[str, Any]) -> list[str]:
    section = sections["sdpo"]
    own = ("reprompt_template", "feedback_template", "distillation_weight")
    trl = [*_SAMPLING, "mask_truncated_completions", "reward_weights"]
    if (section.distillation_weight if section.distillation_weight is not None else 1.0) < 1:
        trl += _POLICY_LOSS
    return [*_reads("sdpo", section, own, mode="sampled_token", teacher="ema"), *(f"trl.{name}" for name in trl)]


def _reads(name: str, section: TeacherSettings, own: tuple[str, ...], *, mode: str, teacher: str) -> list[str]:
    """The settings of its section that a run reads, given TRL's defaults, and those that its records need."""
    fields = [*_TEACHER, *own]
    if (section.teacher_model_kind or teacher) == "ema":
        fields += ["teacher_update_rate", "teacher_sync_steps"]
    if (section.distillation_mode or mode) == "topk_logits":
        fields += ["distillation_topk", "distillation_add_tail"]
    return [
        *(f"{name}.{field}" for field in fields),
        *(f"reward.{field}" for field in OUTCOME_SETTINGS),
        *("advantage.ddof", "advantage.eps", "advantage.min_std", "watchdog.mode", "watchdog.steps"),
    ]


def _check(config: Any, args: Any) -> None:
    method = config.method
    if config.adapter.rank is not None:
        raise ConfigError(f"adapter.rank is {config.adapter.rank}, but {method} trains all weights. Leave it out.")
    if args.use_vllm:
        raise ConfigError(f"trl.use_vllm is True, but {method} samples with transformers. Leave it out.")
    if args.world_size > 1:
        raise ConfigError(f"{method} trains in one process, got {args.world_size}. Start it without a launcher.")


def _trainer(parts: Any) -> Any:
    from paper.methods.self_distillation_trainer import teacher_trainer

    return teacher_trainer(parts)


SDFT = Method(
    name="sdft",
    summary="self-distillation from the initial policy, which sees the expert solution [arXiv 2601.19897]",
    shape=outcome_rewards,
    settings=SDFTSettings,
    trainer=_trainer,
    check=_check,
    reads=_reads_sdft,
    cannot_resume=_CANNOT_RESUME,
)

SDPO = Method(
    name="sdpo",
    summary="self-distillation from a moving average of the policy, which sees the expert solution [arXiv 2601.20802]",
    shape=outcome_rewards,
    settings=SDPOSettings,
    trainer=_trainer,
    check=_check,
    reads=_reads_sdpo,
    cannot_resume=_CANNOT_RESUME,
)
