"""Self-distillation on the expert solution, by TRL's experimental `SDFTTrainer` and `SDPOTrainer`.

TRL samples, asks the teacher and updates. Here are the teacher's prompt, what is rejected, and what a run records.
"""

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from trl.import_utils import TRLExperimentalWarning

from gar import (
    AdvantageSettings,
    ConfigError,
    DataError,
    Problem,
    Prompt,
    Reader,
    ResponseVerifier,
    RewardSettings,
)
from gar.data import EMBEDDED_TASKS, encode_prompt
from gar.integrations.trl import TRL, RolloutBatch, RunParts, StepTimer, check_batch, trl_arguments
from gar.methods import METHODS
from gar.models import check_prompts, is_adapted, own_generation
from gar.records import RolloutRecord
from gar.scoring import Step, judge, plan_shaping
from paper.methods.frozen import frozen_copy
from paper.tasks.chains import SEPARATOR

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TRLExperimentalWarning)
    from trl.experimental.sdft import SDFTConfig, SDFTTrainer
    from trl.experimental.sdft.teacher_sync import SyncTeacherModelCallback
    from trl.experimental.sdpo import SDPOConfig, SDPOTrainer

_DEFAULTS: dict[str, dict[str, Any]] = {
    "sdft": {"max_prompt_length": None},  # TRL would cut off the beginning
    "sdpo": {
        "max_prompt_length": None,
        "max_reprompt_len": sys.maxsize,
        # The expert solution takes the place of an environment's feedback and of the group's correct responses.
        "include_environment_feedback": True,
        "use_successful_as_teacher": False,
        "beta": 0.0,  # TRL's trainer takes it and never reads it
        "feedback_template": "\nCorrect solution:\n\n{feedback_raw}\n\n",  # TRL's words for one of the group
        "diagnostics_warning_interval": 0,  # TRL warns of equal rewards, which are no fault without a policy loss
    },
}
# As `paper.tasks.chains.privileged_prompt`, which the embedded models were trained to read.
_EMBEDDED: dict[str, dict[str, Any]] = {
    "sdft": {
        "teacher_prompt_template": f"{{privileged_context}} {SEPARATOR} {{prompt}}",
        "distillation_mode": "full_logits",  # TRL takes the 100 likeliest tokens, and the embedded models have 36
    },
    "sdpo": {
        "feedback_template": f"{{feedback_raw}} {SEPARATOR} ",
        "reprompt_template": "{feedback}{prompt}",
    },
}
_TEMPLATES = (
    "Expected {prompt} and {privileged_context} in sdft.teacher_prompt_template, or {prompt} and {feedback} in "
    "sdpo.reprompt_template and {feedback_raw} in sdpo.feedback_template."
)


def teacher_trainer(parts: RunParts) -> Any:
    """TRL's trainer for sdft or sdpo."""
    config = parts.settings
    return {"sdft": SDFTRecorded, "sdpo": SDPORecorded}[config.method](
        parts.model,
        problems=parts.problems,
        reader=parts.reader,
        verifier=parts.verifier,
        reward=config.reward,
        advantage=config.advantage,
        on_rollouts=parts.on_rollouts,
        args=teacher_arguments(config, str(parts.arguments.output_dir)),
        processing_class=parts.tokenizer,
    )


def teacher_arguments(config: Any, output_dir: str) -> Any:
    """TRL's configuration for sdft or sdpo: what `trl` has of it, and the method's own section.

    Raises:
        ConfigError: TRL rejects the combination.
    """
    name = config.method
    embedded = _EMBEDDED[name] if config.data.source in EMBEDDED_TASKS else {}
    chosen = {field: value for field, value in dict(getattr(config, name)).items() if value is not None}
    fields = _DEFAULTS[name] | embedded | chosen | {"save_strategy": "no"}
    return trl_arguments({"sdft": SDFTConfig, "sdpo": SDPOConfig}[name], config, output_dir, **fields)


def teacher_prompt(args: Any, problem: Problem) -> Prompt:
    """What the teacher reads before a response, as TRL composes it.

    Args:
        args: An `SDFTConfig` or `SDPOConfig`.
        problem: Its first anchor is shown, in a chat inside the last message.

    Raises:
        ConfigError: The templates show no expert solution, or hold a placeholder that TRL does not fill.
        DataError: The problem has no anchor, or its last message is not the user's.
    """
    if not problem.anchors:
        raise DataError(
            f"problem '{problem.id}' has no expert solution, and self-distillation needs one for every problem. Name "
            "their column with --data.expert_fields, or train with grpo."
        )
    chat = problem.prompt if isinstance(problem.prompt, list) else None
    if chat and chat[-1]["role"] != "user":
        raise DataError(f"problem '{problem.id}' ends with a message that is not the user's, so the teacher sees none")
    text, solution = chat[-1]["content"] if chat else problem.prompt, problem.anchors[0].text
    try:
        if isinstance(args, SDFTConfig):
            shown = args.teacher_prompt_template.format(prompt=text, privileged_context=solution)
        else:
            feedback = args.feedback_template.format(feedback_raw=solution)
            shown = args.reprompt_template.format(prompt=text, solution="", feedback=feedback)
    except (LookupError, ValueError) as error:
        raise ConfigError(f"a template of the teacher's prompt cannot be filled in: {error!r}. {_TEMPLATES}") from error
    if solution not in shown:
        raise ConfigError(f"the teacher's prompt does not show the expert solution. {_TEMPLATES}")
    return [*chat[:-1], {"role": "user", "content": shown}] if chat else shown


_Trainer: Any = object  # a mixin of TRL's trainers


class _Recorded(_Trainer):
    """What both trainers have in common: rollouts are verified and recorded, and the teacher is a copy of the policy.

    Args:
        model: The policy.
        problems: What to train on, each with an expert solution.
        reader: Reads responses.
        verifier: Judges them.
        reward: From verdicts to rewards.
        advantage: How the advantages of the records are normalized.
        on_rollouts: Called with the step and the records of its responses.
        **kwargs: For TRL's trainer: `args`, `processing_class`, `callbacks`.

    Raises:
        ConfigError: A setting that does not fit.
        DataError: A problem has no expert solution, or its teacher's prompt is too long.
    """

    def __init__(
        self,
        model: Any,
        *,
        problems: Sequence[Problem],
        reader: Reader,
        verifier: ResponseVerifier,
        reward: RewardSettings,
        advantage: AdvantageSettings,
        on_rollouts: Callable[[int, list[RolloutRecord]], None],
        **kwargs: Any,
    ):
        args, tokenizer = kwargs["args"], kwargs["processing_class"]
        check_batch(args, len(problems))
        if is_adapted(model):
            raise ConfigError("self-distillation trains all weights here, and the policy has an adapter: merge it")
        prompts = [teacher_prompt(args, problem) for problem in problems]
        template = args.chat_template_kwargs
        ids = [encode_prompt(tokenizer, prompt, chat_template_kwargs=template) for prompt in prompts]
        check_prompts(model, tokenizer, ids, args.max_completion_length)
        self._problems, self._reader, self._verifier = problems, reader, verifier
        self._on_rollouts = on_rollouts
        self._shaping = plan_shaping(TRL, METHODS["grpo"], {"reward": reward, "advantage": advantage}, quiet=True)
        self._rewards: list[float] = []
        rows = [
            {"prompt": problem.prompt, "privileged_context": problem.anchors[0].text, "problem_index": i}
            for i, problem in enumerate(problems)
        ]
        super().__init__(model, train_dataset=Dataset.from_list(rows), **kwargs)
        self._timer = StepTimer(self._metrics["train"])
        self.add_callback(self._timer)

    def _setup_teacher_model(self) -> None:
        """TRL would load the policy's name again: another revision perhaps."""
        if self.args.teacher_model_kind == "live":
            self.teacher_model = self.model
            return
        self.teacher_model = self.accelerator.prepare_model(frozen_copy(self.model), evaluation_mode=True)
        if self.args.teacher_model_kind == "ema":
            self.add_callback(SyncTeacherModelCallback(self.teacher_model, self.accelerator))

    def _generate(self, prompt_ids: list[list[int]]) -> Any:
        own = own_generation(self.accelerator.unwrap_model(self.model), self.generation_config)
        with self._timer.part("generation"), own:
            return super()._generate(prompt_ids)

    def sample_rollouts(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's rollouts, verified and recorded before the teacher reads them."""
        rollouts = super().sample_rollouts(inputs)
        indices = [row["problem_index"] for row in inputs]
        batch = RolloutBatch(
            problems=[self._problems[i] for i in indices],
            group_index=indices,
        )
        prompts = zip(rollouts["prompt_ids"], rollouts["prompt_mask"].bool(), strict=True)
        prompt_ids = [ids[mask].tolist() for ids, mask in prompts]
        endings = [*self.eos_token_ids, self._tokenizer.pad_token_id]
        batch.read(self._reader, {}, prompt_ids, self._get_completion_ids_list(rollouts), None, endings=endings)
        with self._timer.part("verification"):
            batch.responses = judge(self._verifier, batch.responses, batch.problems)
        self._record(batch)
        return rollouts

    def _record(self, batch: RolloutBatch) -> None:
        """Metrics and records. The advantages are what grpo would have made of the rewards."""
        batch.step = Step(self._shaping, batch.responses)
        rewards = batch.step.finish().rewards
        batch.advantages = self._shaping.normalized(rewards, torch.tensor(batch.group_index)).tolist()
        self._rewards = rewards.tolist()
        metrics = {"reward": float(rewards.mean())} | batch.step.metrics()
        for name, value in metrics.items():
            if not math.isnan(value):
                self._metrics["train"][name].append(value)
        step = self.state.global_step + 1
        self._on_rollouts(step, batch.records(step=step))


class SDFTRecorded(_Recorded, SDFTTrainer):
    """`SDFTTrainer` with records."""


class SDPORecorded(_Recorded, SDPOTrainer):
    """`SDPOTrainer` with records. The loss reads the rewards where `distillation_weight` is below 1."""

    def __init__(self, model: Any, **kwargs: Any):
        def outcome(**_: Any) -> list[float]:
            return self._rewards

        super().__init__(model, reward_funcs=outcome, **kwargs)
