"""What does not go together in a run of `gar train`, before anything is loaded. This module imports no torch."""

from dataclasses import dataclass
from typing import get_args

from gar.extras import install_command
from gar.rules import OFF, Condition, Facts, Rule, When, bounds, setting
from gar.types import AnswerFormat

PACKAGES = {
    "trl.use_vllm": ("vllm", install_command("vllm")),
    "trl.deepspeed": ("deepspeed", "pip install deepspeed"),
    "trl.use_liger_kernel": ("liger_kernel", "pip install liger-kernel"),
    "adapter.rank": ("peft", install_command("peft")),
}
"""Settings that need a package: its module, and the command that installs it."""


@dataclass(frozen=True, kw_only=True)
class TrainFacts(Facts):
    """The settings of a run, `trl` included."""

    evaluates: bool
    """There are sources to evaluate on."""
    loses_updates: bool
    """Small updates of its weights are lost to rounding."""
    is_launched: bool
    """Started on several processes."""
    missing: frozenset[str]
    """Modules of `PACKAGES` that are not installed."""


_SAME_FORMAT = Condition[TrainFacts](
    "auto, plain, chat or {verify.format} (verify.format)",
    lambda facts, name: facts.settings[name] in ("auto", "plain", "chat", facts.settings["verify.format"]),
)
_EVALUATES = When[TrainFacts]("`evaluates` is True", lambda facts: facts.evaluates)
_ONE_PROCESS = When[TrainFacts]("`is launched` is False", lambda facts: not facts.is_launched)
_LOSES_UPDATES = When[TrainFacts]("`updates are lost` is True", lambda facts: facts.loses_updates)
_ONE_WEIGHT = Condition[TrainFacts](
    "a list of one",
    lambda facts, name: not isinstance(facts.settings.get(name), list) or len(facts.settings[name]) == 1,
)
_ENOUGH_SAMPLES = Condition[TrainFacts](
    "numbers from 1 to {evaluate.num_samples} (evaluate.num_samples)",
    lambda facts, name: all(1 <= k <= facts.settings["evaluate.num_samples"] for k in facts.settings[name]),
)


def _missing(module: str) -> When[TrainFacts]:
    return When(f"`no {module}` is True", lambda facts: module in facts.missing)


RULES = (
    Rule("trl.output_dir", (None,), "use records.output_dir and records.name"),
    Rule("trl.seed trl.data_seed", (None,), "use seed"),
    Rule("trl.resume_from_checkpoint", (None,), "use gar train --resume RUN"),
    Rule("trl.reward_funcs", (None,), "use verify.verifier"),
    Rule(
        "trl.reward_weights",
        _ONE_WEIGHT,
        "gar train has one reward function. reward.bonus_weight and reward.format_penalty weigh its parts",
    ),
    Rule("trl.loss_type", (None, "grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "vespo", "luspo")),
    Rule("trl.scale_rewards", (None, "group", "batch", "none", True, False)),
    Rule("trl.importance_sampling_level", (None, "token", "sequence")),
    Rule("trl.vllm_mode", (None, "colocate", "server")),
    Rule("trl.fp16", OFF, "trl.bf16 is set, and only one of the two can be", (setting("trl.bf16", True),)),
    Rule("trl.push_to_hub", OFF, "gar train uploads nothing. When the run has ended: hf upload OWNER/NAME RUN/model"),
    Rule("trl.num_train_epochs trl.temperature trl.repetition_penalty", bounds("> 0")),
    Rule(
        "trl.learning_rate trl.weight_decay trl.adam_epsilon trl.max_grad_norm trl.warmup_steps trl.beta trl.epsilon "
        "trl.epsilon_high trl.delta trl.save_steps trl.logging_steps trl.dataloader_num_workers",
        bounds(">= 0"),
    ),
    Rule(
        "trl.per_device_train_batch_size trl.gradient_accumulation_steps trl.max_completion_length trl.num_iterations "
        "trl.steps_per_generation trl.generation_batch_size trl.save_total_limit",
        bounds(">= 1"),
    ),
    Rule("trl.adam_beta1 trl.adam_beta2", bounds(">= 0 and < 1")),
    Rule("trl.top_p trl.vllm_gpu_memory_utilization", bounds("> 0 and <= 1")),
    Rule("trl.min_p trl.top_entropy_quantile", bounds(">= 0 and <= 1")),
    Rule("trl.max_steps trl.top_k", bounds(">= -1")),
    Rule("trl.num_generations", bounds(">= 2")),
    Rule("trl.fsdp", OFF, "shards need several processes: accelerate launch --num_processes 8 -m gar", (_ONE_PROCESS,)),
    *(
        Rule(name, OFF, f"{module} is not installed: {command}", (_missing(module),))
        for name, (module, command) in PACKAGES.items()
    ),
    Rule(
        "model.dtype",
        ("auto", "float32"),
        "all weights are trained, and in 16 bits a small update rounds to nothing. Load float32: trl.bf16 still "
        f"computes in bfloat16. Or round at random: {install_command('lowbit')}, trl.optim adamw_torch_8bit, "
        "trl.optim_args bf16_stochastic_round=True",
        (_LOSES_UPDATES,),
    ),
    Rule(
        "evaluate.temperature",
        bounds(">= 0.01"),
        "vLLM raises a lower one to 0.01",
        (setting("trl.use_vllm", True), _EVALUATES),
    ),
    Rule(
        "data.template",
        _SAME_FORMAT,
        "prompts would ask for a format that is not checked",
        (setting("verify.format", *get_args(AnswerFormat)),),
    ),
    Rule("evaluate.pass_at_k", _ENOUGH_SAMPLES, "pass@k needs k responses per problem", (_EVALUATES,)),
)
"""For `TrainFacts`."""
