"""What does not go together: rows of one form, checked in the same way by every engine.

A row names a setting or an engine's flag, the values with which GAR runs, when the row applies, and why. An engine
translates its configuration to facts, a flat mapping with settings by dotted name ("signal.kind") and its flags by
their own names ("--qkv-format"), and raises all `faults`. This module imports no torch. The page
docs/rules.md is made from it (docs/site/rules.py).
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gar.errors import ConfigError, did_you_mean
from gar.extras import install_command

Facts = Mapping[str, Any]
"""Facts about an engine. A missing flag counts as None. "chosen" holds settings away from their defaults."""

Level = Literal["error", "unread", "resume"]
"""An error, a warning that nothing reads the setting, or a reason why a resumed run would differ."""


@dataclass(frozen=True)
class Condition:
    """Values that a condition allows: in words, with `{name}` for the value of another fact, and as a function."""

    words: str
    fits: Callable[[Any, Facts], bool]


UNSET = Condition("no value", lambda value, facts: value not in facts.get("chosen", ()))
"""The setting is left at its default."""


@dataclass(frozen=True)
class Rule:
    """One row. In texts `{name}` becomes the value of a fact."""

    names: str  # settings or flags, to each of which the row applies, with spaces between them
    allowed: tuple[Any, ...] | Condition | str = UNSET  # or the name of a fact that holds the values
    why: str = ""  # and what else to do
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # facts under which the row applies
    where: str = ""  # name of the engine, "gar train", or "" for all
    level: Level = "error"

    def faults(self, facts: Facts) -> Iterator[tuple[str, str]]:
        """Name and sentence of each setting that breaks the rule."""
        if any(facts.get(name) not in values for name, values in self.when.items()):
            return
        allowed = facts.get(self.allowed, (None,)) if isinstance(self.allowed, str) else self.allowed
        for name in self.names.split():
            value = facts.get(name)
            if isinstance(allowed, Condition):
                fits = allowed.fits(name if allowed is UNSET else value, facts)
            else:
                fits = value in allowed
            if not fits:
                expected = _filled(allowed.words, facts) if isinstance(allowed, Condition) else in_words(allowed)
                words = [word for word in allowed if isinstance(word, str)] if isinstance(allowed, tuple) else []
                hint = did_you_mean(str(value), words)
                why = f": {_filled(self.why, facts)}" if self.why else ""
                yield name, f"{name} is {value}, expected {expected}{why}.{hint}"


def faults(where: str, facts: Facts, *, level: str = "error", more: Iterable[Rule] = ()) -> list[tuple[str, str]]:
    """Name and sentence of every fault on an engine. `more` are rows of the run's method."""
    rows = [rule for rule in (*RULES, *more) if rule.level == level and rule.where in ("", where)]
    return [fault for rule in rows for fault in rule.faults(facts)]


def raise_all(found: list[tuple[str, str]]) -> None:
    """One `ConfigError` of all faults, if there are any. Its code is the name of the first setting."""
    if found:
        texts = [text for _, text in found]
        raise ConfigError(texts[0] if len(texts) == 1 else "\n- ".join(["", *texts]), code=found[0][0])


def in_words(values: Iterable[Any]) -> str:
    """`a, b or c`. None alone is "no value". It is left out beside other values."""
    values = [value for value in values if value is not None] or [None]
    words = ["no value" if value is None else "empty" if value == () else str(value) for value in values]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def bounds(text: str) -> Condition:
    """Numbers within bounds such as "> 0 and <= 1". Anything but a number passes."""
    parts = [(_COMPARE[sign], float(limit)) for sign, limit in map(str.split, text.split(" and "))]
    return Condition(
        text, lambda value, _: not isinstance(value, (int, float)) or all(fits(value, limit) for fits, limit in parts)
    )


_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def _filled(text: str, facts: Facts) -> str:
    return re.sub(r"\{([^}]+)\}", lambda found: str(facts.get(found[1])), text)


# Words of the table.

_SECTION_READ = {"estimator": ("group",), "advantages are TRL's": (False,)}
_WHITENING = ("reinforce-plus-plus", "reinforce-plus-plus-baseline")
_IN_GROUPS, WHITENED = {"estimator": ("group",)}, {"estimator": _WHITENING}
_UNDIVIDED = _IN_GROUPS | {"rewards are divided": (False,)}
OFF = (None, False)
ALL_CORRECT = "it drops groups with equal outcomes, and GAR gives all-correct groups a signal"
_SAVES = {"trl.save_strategy": ("steps", "epoch", "best")}
_GATE = {"method.gate": (True,)}
_VECTORS = {"method.reads_vectors": (True,)}
_NO_VECTORS = {"method.reads_vectors": (False,)}
_NOT_EVALUATED = {"evaluate.sources": ((),)}
_OWN_KIND = _VECTORS | {"method.kind": (None,)}  # the run may choose, and has
_NO_ACTIVATIONS, _NO_GRADIENTS = {"signal.kind": ("gradient", "hidden")}, {"signal.kind": ("hidden",)}
_NO_INITIAL = _VECTORS | {"engine.initial_policy": (False,)}
_NO_LIMIT = {"method.reads_spans": (True,), "signal.max_tokens": (None,)}
PACKAGES = {
    "trl.use_vllm": ("vllm", install_command("vllm")),
    "trl.deepspeed": ("deepspeed", "pip install deepspeed"),
    "trl.use_liger_kernel": ("liger_kernel", "pip install liger-kernel"),
    "adapter.rank": ("peft", install_command("peft")),
}
"""Settings that need a package: its module, and the command that installs it."""


LOWBIT = ("adamw_torch_8bit", "adamw_torch_4bit")
"""Words of `trl.optim` for torchao's optimizers, which can round at random."""


_RUNS = Condition("one that {engine} runs ({engine.methods})", lambda _, facts: not facts.get("method.lacks"))
_REPEATS = Condition("two or more", lambda _, facts: not facts["on policy"])
_ONE_WEIGHT = Condition("a list of one", lambda weights, _: not isinstance(weights, list) or len(weights) == 1)
_ENOUGH_SAMPLES = Condition(
    "numbers from 1 to {evaluate.num_samples} (evaluate.num_samples)",
    lambda ks, facts: all(1 <= k <= facts["evaluate.num_samples"] for k in ks),
)

_COLDEST = "vLLM raises a lower one to 0.01"

# The table.

_METHOD = (
    Rule("method", _RUNS, "{method.lacks}"),
    Rule(
        "signal.policy",
        ("current",),
        "{engine} forms vectors in a pass of the policy that it trains. gar train also has the initial one",
        _NO_INITIAL,
    ),
    Rule("signal.activation_threshold", UNSET, "{signal.kind} multiplies no activations", _OWN_KIND | _NO_ACTIVATIONS),
    Rule("signal.temperature", UNSET, "the kind hidden has no logits", _OWN_KIND | _NO_GRADIENTS),
    Rule("signal.expert_keep_fraction", UNSET, "the kind hidden has no gradients to rank", _OWN_KIND | _NO_GRADIENTS),
    Rule("signal.limit_from", ("end",), "no token is left out, since signal.max_tokens sets no limit here", _NO_LIMIT),
    Rule("advantage.min_std advantage.eps", UNSET, "{estimator} adds 1e-8 to a variance over the batch", WHITENED),
    Rule("advantage.min_std advantage.eps advantage.ddof", UNSET, "rewards are not divided here", _UNDIVIDED),
)

_TRL = (
    Rule("trl.multi_objective_aggregation", ("sum_then_normalize",), "the bonus belongs to the normalized reward"),
    Rule("trl.remove_unused_columns", (False,), "the columns answer and expert_solution would be dropped"),
    Rule("trl.dynamic_sampling", OFF, ALL_CORRECT),
    Rule("trl.scale_rewards", ("group", "none"), "advantage.ddof and eps need one. Or leave them null", _SECTION_READ),
    Rule("trl.scale_rewards", ("group",), "with {estimator} nothing would read it", WHITENED),
    Rule("trl.importance_sampling_level", ("token",), "the method weighs the ratio of each token by itself", _GATE),
    Rule("trl.delta", (None,), "it clips ratios, and the method has a soft gate instead", _GATE),
    Rule("updates_per_rollout", _REPEATS, "with one, every ratio is 1. Set trl.num_iterations to 2", _GATE),
    Rule(
        "trl.vllm_importance_sampling_mode",
        ("token_truncate", "token_mask"),
        "with top_p, top_k, min_p or repetition_penalty a response's ratio to vLLM's probabilities is a product over "
        "its tokens, which shrinks with its length and takes the gradient with it. Or sample without them",
        {"trl.use_vllm corrects filtered sampling": (True,)},
    ),
    Rule("trl.temperature", bounds(">= 0.01"), _COLDEST, {"trl.use_vllm": (True,)}),
    Rule("trl.fp16", OFF, "it needs an accelerator, and this machine has none", {"accelerator": (False,)}),
)

_RESUME = (
    Rule("trl.save_only_model", (False,), "a checkpoint without the optimizer cannot be resumed", _SAVES),
    Rule("trl.sync_ref_model", OFF, "the reference model that it moves is in no checkpoint"),
    Rule("trl.ignore_data_skip", (False,), "a resumed run would begin with the first problems again"),
)

_TRAIN = (
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
    Rule("trl.fp16", OFF, "trl.bf16 is set, and only one of the two can be", {"trl.bf16": (True,)}),
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
    *(
        Rule(name, OFF, f"{module} is not installed: {command}", {f"no {module}": (True,)})
        for name, (module, command) in PACKAGES.items()
    ),
    Rule(
        "model.dtype",
        ("auto", "float32"),
        "all weights are trained, and in 16 bits a small update rounds to nothing. Load float32: trl.bf16 still "
        f"computes in bfloat16. Or round at random: {install_command('lowbit')}, trl.optim adamw_torch_8bit, "
        "trl.optim_args bf16_stochastic_round=True",
        {"updates are lost": (True,)},
    ),
    Rule("evaluate.temperature", bounds(">= 0.01"), _COLDEST, {"trl.use_vllm": (True,), "evaluates": (True,)}),
    Rule("evaluate.pass_at_k", _ENOUGH_SAMPLES, "pass@k needs k responses per problem", {"evaluates": (True,)}),
)


def _unread(section: str, names: str, when: Mapping[str, tuple[Any, ...]]) -> Rule:
    return Rule(" ".join(f"{section}.{name}" for name in names.split()), when=when)


_UNREAD = (
    _unread("signal", "kind policy activation_threshold expert_keep_fraction temperature", _NO_VECTORS),
    _unread("signal", "expert_keep_fraction", _VECTORS | {"method.alignment": (None, "random-anchor")}),
    _unread("signal", "activation_threshold", _VECTORS | {"method.kind": ("gradient", "hidden")}),
    _unread("signal", "temperature expert_keep_fraction", _VECTORS | {"method.kind": ("hidden",)}),
    _unread("signal", "span max_tokens limit_from", {"method.reads_spans": (False,)}),
    _unread("signal", "precision memory_bytes", {"engine": ("slime", "verl")}),
    _unread("signal", "max_batch_tokens", {"engine": ("verl",)}),
    _unread("data", "column_schema prompt_field answer_field expert_fields revision", {"data": ("generated",)}),
    _unread("data", "split subset revision", {"data": ("a file",)}),
    _unread("model", "revision", {"model": ("embedded", "a folder")}),
    _unread("evaluate", "num_samples pass_at_k max_problems temperature eval_steps eval_on_start", _NOT_EVALUATED),
    _unread("preflight", "num_problems num_samples", {"preflight.mode": ("off",)}),
    _unread("watchdog", "steps", {"watchdog.mode": ("off",)}),
)

RULES: tuple[Rule, ...] = tuple(
    replace(rule, where=where, level=level)
    for where, level, rules in (
        ("", "error", _METHOD),
        ("gar train", "error", _TRAIN),
        ("TRL", "error", _TRL),
        ("", "unread", _UNREAD),
        ("TRL", "resume", _RESUME),
    )
    for rule in rules
)
"""Every row, except for a method's own values (`gar.methods.plan.own_rules`) and an engine's flags (`Engine.rules`)."""
