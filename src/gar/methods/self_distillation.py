"""The policy as its own teacher, with the expert solution in its prompt: TRL's experimental SDFT and SDPO."""

import sys
from collections.abc import Mapping
from typing import Any

from gar.methods.base import OUTCOME_SETTINGS, Method, outcome_rewards
from gar.settings import EMBEDDED_TASKS

_COMMON: dict[str, Any] = {
    "save_strategy": "no",  # a moving teacher is in no checkpoint of TRL's
    "max_prompt_length": None,  # TRL would cut off the beginning
}

_SAMPLING = (
    "chat_template_kwargs", "max_completion_length", "max_prompt_length", "temperature", "top_p", "top_k", "min_p",
    "repetition_penalty", "generation_kwargs", "cache_implementation", "use_vllm", "generate_from_teacher",
    "num_generations", "num_generations_eval", "generation_batch_size", "steps_per_generation", "num_iterations",
    "shuffle_dataset", "disable_dropout", "ds3_gather_for_generation",
)  # fmt: skip
_TEACHER = ("teacher_model_kind", "distillation_mode", "distillation_alpha", "distillation_is_clip")
_SDFT = ("teacher_prompt_template", "num_loss_tokens_to_skip")
_SDPO = (
    "distillation_weight", "reprompt_template", "feedback_template", "max_reprompt_len", "mask_truncated_completions",
    "use_successful_as_teacher", "success_reward_threshold", "include_environment_feedback", "reward_weights",
    "diagnostics_warning_interval", "diagnostics_flat_tolerance",
)  # fmt: skip
_POLICY_LOSS = ("loss_type", "scale_rewards", "epsilon", "epsilon_high", "importance_sampling_level")


def _reads_sdft(sections: Mapping[str, Any]) -> list[str]:
    # As `integrations.trl.self_distillation.teacher_defaults`: the embedded models have too few tokens for TRL's top k.
    mode = "full_logits" if sections["data"].source in EMBEDDED_TASKS else "topk_logits"
    return _reads(sections["trl"], _SDFT, mode=mode, teacher="base")


def _reads_sdpo(sections: Mapping[str, Any]) -> list[str]:
    return _reads(sections["trl"], _SDPO, mode="sampled_token", teacher="ema")


def _reads(trl: Mapping[str, Any], own: tuple[str, ...], *, mode: str, teacher: str) -> list[str]:
    """What a run reads of `trl`, given TRL's defaults; and what its records are made with."""
    fields = [*_SAMPLING, *_TEACHER, *own]
    if trl.get("teacher_model_kind", teacher) == "ema":
        fields += ["teacher_update_rate", "teacher_sync_steps"]
    if trl.get("distillation_mode", mode) == "topk_logits":
        fields += ["distillation_topk", "distillation_add_tail"]
    if trl.get("distillation_weight", 1.0) < 1:
        fields += _POLICY_LOSS
    return [
        *(f"trl.{name}" for name in fields),
        *(f"reward.{name}" for name in OUTCOME_SETTINGS),
        *("advantage.ddof", "advantage.eps", "advantage.std_floor", "watchdog.mode", "watchdog.steps"),
    ]


SDFT = Method(
    name="sdft",
    summary="self-distillation from the initial policy, which sees the expert solution [arXiv 2601.19897]",
    shape=outcome_rewards,
    trl=_COMMON,
    self_distillation="sdft",
    reads=_reads_sdft,
)

SDPO = Method(
    name="sdpo",
    summary="self-distillation from a moving average of the policy, which sees the expert solution [arXiv 2601.20802]",
    shape=outcome_rewards,
    trl={
        **_COMMON,
        "max_reprompt_len": sys.maxsize,
        # The expert solution takes the place of an environment's feedback and of the group's correct responses.
        "include_environment_feedback": True,
        "use_successful_as_teacher": False,
        "beta": 0.0,  # TRL's trainer takes it and never reads it
    },
    self_distillation="sdpo",
    reads=_reads_sdpo,
)
