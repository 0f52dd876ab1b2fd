"""What `gar` relies on in private methods of TRL and transformers, checked on those that are installed.

Read in the tested release (`TESTED`). Another one that keeps this runs without a word.
"""

import inspect
import pkgutil
import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import transformers
import trl
from trl import GRPOConfig

from gar.errors import ConfigError
from gar.integrations.trl.fields import TESTED

_GRPO = "trl.trainer.grpo_trainer:GRPOTrainer."
_SAMPLER = "trl.trainer.utils:RepeatSampler.__iter__"
_ROTATION = "transformers.trainer_utils:rotate_checkpoints"

SIGNATURES = {
    "_generate": "self prompts",
    "_generate_and_score_completions": "self inputs",
    "_calculate_rewards": "self inputs prompts completions completion_ids_list",
    "_compute_loss": "self model inputs",
    "_log_completion_extra": "self column values",
    "_run_epoch": r".*\bepoch\b.*\bepochs_trained\b.*",
    "_get_per_token_logps_and_entropies": "self model input_ids attention_mask logits_to_keep.*",
}
"""Names of the parameters of methods that `gar` overrides or calls, as a pattern. Others would fail in the middle."""

FIELDS = (
    "chat_template_kwargs", "generation_batch_size", "generation_kwargs", "max_completion_length", "num_generations",
    "num_iterations", "scale_rewards", "steps_per_generation", "temperature", "top_p", "use_vllm",
    "vllm_importance_sampling_clip_max", "vllm_importance_sampling_clip_min", "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode", "vllm_mode",
)  # fmt: skip
"""Fields of `trl.GRPOConfig` that `gar` reads, and that transformers' arguments lack."""

BODIES = {
    # A method with keywords runs an epoch: gar skips it after the last step, and restores its order.
    _GRPO + "_inner_training_loop": (
        "self._run_epoch( model=model, epoch=epoch,", "if self.control.should_training_stop: break",
    ),
    _SAMPLER: ("torch.randperm(self.num_samples, generator=self.generator)",),
    # Checkpoints are not rotated without a limit.
    _ROTATION: ("if save_total_limit is None or save_total_limit <= 0: return",),
    # Rewards are gathered over all ranks before they return.
    _GRPO + "_calculate_rewards": ("rewards_per_func = gather(rewards_per_func) return rewards_per_func",),
    # Old log-probabilities are computed under the condition that gar repeats. The group's divisor is as gar states.
    _GRPO + "_generate_and_score_completions": (
        "generate_every = self.args.steps_per_generation * self.num_iterations # generation frequency "
        "if self.args.gradient_accumulation_steps % generate_every != 0 or ( "
        "self.use_vllm and self.vllm_importance_sampling_correction ): old_per_token_logps",
        "advantages / (std_rewards + 1e-4)",
        "self._generate( … self._get_per_token_logps_and_entropies( … self._calculate_rewards(",
        "old_per_token_logps, _, _ = … ref_per_token_logps, _, _ =",
    ),
    # The loss reads advantages per response and per token, adds KL by beta, and averages per response.
    _GRPO + "_compute_loss": (
        'advantages = inputs["advantages"]', "advantages.dim() == 1", "advantages.unsqueeze(1)",
        "loss = ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()",
        'normalizer = self.current_gradient_accumulation_steps if mode == "train" else 1.0',
        'self._get_per_token_logps_and_entropies( … inputs["advantages"]',
    ),
    _GRPO + "_maybe_log_save_evaluate": ("self.log( … self._save_checkpoint( … callback_handler.on_save(",),
}  # fmt: skip
"""Texts of bodies, with single spaces. Parts around an ellipsis are first met in this order."""

COUNTS = {
    (_SAMPLER, "generator="): 1,
    (_GRPO + "_compute_loss", "if self.beta != 0.0:"): 3,
    (_GRPO + "_compute_loss", "self._get_per_token_logps_and_entropies("): 1,
}


def check_contract() -> None:
    """Compare the installed TRL with what `gar` relies on.

    Warns:
        UserWarning: A method works differently, so rewards, losses or a resumed run may be wrong.

    Raises:
        ConfigError: A method that `gar` overrides or calls is missing or has other parameters, or a field is missing.
    """
    installed = f"TRL {trl.__version__} with transformers {transformers.__version__}"
    advice = f"gar is tested with TRL {TESTED}: pip install 'trl=={TESTED}.*'"
    if changed := [*changed_signatures(), *missing_fields()]:
        raise ConfigError(f"{installed} does not fit gar: {'; '.join(changed)}. {advice}", code="trl-version")
    if changed := list(changed_bodies()):
        warnings.warn(f"{installed} may not fit gar. Different: {'; '.join(changed)}. {advice}", stacklevel=3)


def changed_signatures() -> Iterator[str]:
    """Methods that are missing or have other parameters: "other parameters in GRPOTrainer._generate(self, texts)"."""
    for name, pattern in SIGNATURES.items():
        method = getattr(trl.GRPOTrainer, name, None)
        if method is None:
            yield f"no GRPOTrainer.{name}"
            continue
        found = list(inspect.signature(method).parameters)
        if not re.fullmatch(pattern, " ".join(found)):
            yield f"other parameters in GRPOTrainer.{name}({', '.join(found)})"


def missing_fields() -> Iterator[str]:
    """Fields of `FIELDS` that the configuration lacks: "no GRPOConfig.num_generations"."""
    known = GRPOConfig.__dataclass_fields__
    yield from (f"no GRPOConfig.{name}" for name in FIELDS if name not in known)


def changed_bodies() -> Iterator[str]:
    """Methods that lack a text: "GRPOTrainer._compute_loss without 'advantages.dim() == 1'"."""
    for path, texts in BODIES.items():
        name, body = path.partition(":")[2], _body(path)
        for text in texts:
            places = [body.find(part) for part in text.split(" … ")]
            if -1 in places or places != sorted(places):
                yield f"{name} without '{text}'"
    for (path, text), number in COUNTS.items():
        if (found := _body(path).count(text)) != number:
            yield f"{path.partition(':')[2]} with '{text}' {found} times, not {number}"


def _body(path: str) -> str:
    """The source of a function with single spaces, "" if there is none."""
    try:
        return _source(pkgutil.resolve_name(path))
    except (ImportError, AttributeError, OSError):
        return ""


@cache
def _source(function: Any) -> str:
    return " ".join(inspect.getsource(function).split())
