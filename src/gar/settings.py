"""Every setting of a run, one frozen model per section. Importing this module does not import torch.

`config.py` combines the sections, loads YAML, applies flags, and dumps the settings of a run.
"""

import re
from dataclasses import fields
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gar.errors import ConfigError, did_you_mean
from gar.types import PromptTemplate, ResponseFormat, Tags

OutcomeMethod = Literal[
    "grpo", "dr-grpo", "dapo", "reinforce-plus-plus", "reinforce-plus-plus-baseline", "maspo", "g2rl",
]  # fmt: skip
"""Methods that need no expert solutions."""
AlignedMethod = Literal[
    "gar-grpo", "gar-reinforce-plus-plus",
    "anchor-shuffled", "anchor-random", "hidden-cosine", "text-similarity", "length", "alignment-only",
]  # a line for each kind # fmt: skip
"""Methods that do."""
MethodName = Literal[OutcomeMethod, AlignedMethod]

EMBEDDED_TASKS = ("arithmetic",)
"""Tasks inside the package, as `data.source` names them. "embedded" is the model for the first."""

Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
"""Names of several things. A text is one name."""

REGISTERED: dict[str, Any] = {}
"""The `gar.methods.Method`s that `register` has added."""


def section_name(method: str) -> str:
    """The name of a method's section of settings."""
    return method.replace("-", "_")


def errors_in_words(error: ValidationError, kind: Any, *, source: str = "") -> ConfigError:
    """pydantic's errors about settings of this kind as one `ConfigError`, a line each."""
    # Wrong members of a list do not count: pydantic then also says that there are too few.
    lines = [line for line in error.errors() if line["type"] != "too_short" or not line["input"]]
    first, start = lines[0], f"{source}: " if source else ""
    code = "unknown-key" if first["type"] in _UNKNOWN else _setting_of(first)
    return ConfigError("\n".join(f"{start}{_explain(line, kind)}" for line in lines), code=code)


def _explain(error: Any, section: Any) -> str:
    if error["type"] not in _UNKNOWN:
        return _error_in_words(error)
    for part in error["loc"][:-1]:
        section = get_args(section)[0] if isinstance(part, int) else section.model_fields[part].annotation
    key, kinds = str(error["loc"][-1]), getattr(section, "model_fields", {})
    names = kinds or [field.name for field in fields(section)]
    inside = [f"{name}.{key}" for name, kind in kinds.items() if key in getattr(kind.annotation, "model_fields", ())]
    hint = did_you_mean(key, names) or f" Known here: {', '.join(names)}."
    if inside:
        hint = f" Did you mean '{inside[0]}'?"
    elif "trl" in kinds and "Did you" not in hint:
        hint += " Fields of trl.GRPOConfig belong in the section trl."
    return f"unknown key '{_setting_of(error)}'.{hint}"


def _error_in_words(error: Any) -> str:
    """pydantic's error about a setting, with what was got and the nearest word of those that it expects."""
    name, kind, given = _setting_of(error), error["type"], error["input"]
    if kind == "missing":
        return f"{name} is missing."
    if kind == "value_error":  # one of ours, which says what was got
        return f"{name}: {error['msg'].removeprefix('Value error, ')}".removeprefix(": ")
    if kind == "too_short":
        return f"{name} is empty, expected at least {error['ctx']['min_length']}."
    if kind in ("model_type", "dataclass_type"):
        return f"{name}: expected a section, {name}: {{SETTING: VALUE}}, got {given!r}. Leave out an empty section."
    words = re.findall(r"'([^']+)'", error["ctx"]["expected"]) if kind == "literal_error" else []
    hint = did_you_mean(str(given), words, cutoff=0.4)
    if name == "method" and not hint:
        hint = " Your own method needs its --plugin."
    return f"{name}: {error['msg']}, got {given!r}.{hint}"


def _setting_of(error: Any) -> str:
    """The dotted name of the setting that pydantic's error is about, without the kind that did not fit."""
    return ".".join(str(part) for part in error["loc"] if not _KIND.match(str(part)))


_KIND = re.compile(r"constrained-|literal\[|(int|float|str|bool)$")  # what pydantic calls the members of a union
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's types for models and for dataclasses


class Settings(BaseModel):
    """Base of all sections: frozen. An unknown key or a number that is not finite is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        """Raise a `ConfigError` in the words of `make_config`."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise errors_in_words(error, type(self)) from None

    # pydantic does not call it for a section within another, whose errors it collects.
    __init__.__pydantic_base_init__ = True  # pyright: ignore[reportFunctionMemberAccess]


class ModelSettings(Settings):
    """The policy."""

    path: str = "embedded"
    """A Hub id, a folder, or "embedded" for the packaged tiny Qwen3. A PEFT adapter is loaded with its base model."""
    revision: str | None = None
    """Commit, tag or branch of a Hub model."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Dtype of the loaded weights. auto: float32 to train all weights, else the checkpoint's."""
    attention: str | None = None
    """Attention implementation, for example sdpa or flash_attention_2."""


class AdapterSettings(Settings):
    """LoRA: train small matrices beside the model's frozen weights. Needs the extra `peft`."""

    rank: Annotated[int, Field(ge=1)] | None = None
    """Rank of the matrices, for example 16. None: no new adapter."""
    alpha: Annotated[int, Field(ge=1)] = 32
    """Scales the product of the two matrices by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout rate of the adapter's inputs in training passes. The signal is computed without dropout."""
    target_modules: Names = ("all-linear",)
    """Modules that get an adapter, by name or suffix: q_proj v_proj. all-linear: every linear layer but the LM head.
    In a mixture of experts PEFT chooses."""

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        chosen = [name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default]
        if self.rank is None and chosen:
            raise ValueError(f"{', '.join(chosen)} has no effect without rank. Set adapter.rank, for example 16.")
        if "all-linear" in self.target_modules and len(self.target_modules) > 1:
            raise ValueError("target_modules holds all-linear and names. Give one or the other.")
        return self


class SourceSettings(Settings):
    """How to read a source of problems."""

    split: str = "train"
    """Split of a Hub data set or of a generated task."""
    subset: str | None = None
    """Configuration of a Hub data set, such as main. For a generated task the method of its expert solutions."""
    revision: str | None = None
    """Commit, tag or branch of a Hub data set. Pin it: the newest may change."""
    column_schema: Literal["gar", "numina-1.5", "numina-cot", "gsm8k"] | None = None
    """Column schema. None detects it from the columns of the first row."""
    prompt_field: str | None = None
    """Column of the problem's text, instead of the schema's."""
    answer_field: str | None = None
    """Column of the gold answer, instead of the schema's."""
    expert_fields: Names = ()
    """Columns to search for the expert solution, instead of the schema's. The first non-empty one is used."""


DEFAULT_SOURCE = SourceSettings()
"""Columns are detected."""


class DataSettings(SourceSettings):
    """The problems to train on."""

    source: str = "arithmetic"
    """A .jsonl, .parquet, .csv or .json file, a Hub id, or arithmetic, the task that the package generates."""
    template: Literal["auto", PromptTemplate] = "auto"
    """plain leaves prompts as they are, and chat makes them messages. The others add an instruction on the format.
    auto: plain for embedded models and tasks and for verify.format none, else as verify.format."""
    max_prompt_tokens: Annotated[int, Field(ge=1)] | None = None
    """Drop problems with longer prompts, and print how many."""
    max_problems: Annotated[int, Field(ge=1)] | None = None
    """Use only the first problems, at most this many."""


class VerifySettings(Settings):
    """How a response is checked."""

    format: ResponseFormat = "think-answer"
    """think-answer: one thinking part, then one answer part, nothing else. boxed: a last \\boxed{}. none: any text."""
    tags: Tags = Tags()
    verifier: str | None = None
    """Your own grader, "package.module:function" with (response_text, gold_answer) -> bool or a grade in [0, 1].
    Only a grade of 1 counts as verified."""
    num_workers: Annotated[int, Field(ge=1)] = 2
    """Processes that parse answers."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Time limit per answer. A worker that exceeds it is killed, and the response has status timeout."""
    memory_bytes: Annotated[int, Field(ge=64 * 1024**2)] = 2 * 1024**3
    """Memory limit of each worker process, in bytes. An answer that needs more has status error."""


MAX_TOKENS = 768
"""The value of `signal.max_tokens` auto, from the paper. A method may override it."""


class SignalSettings(Settings):
    """Gradient-activation vectors: which tokens, and how."""

    kind: Literal["gradient-activation", "gradient", "hidden"] = "gradient-activation"
    """The paper's vector, its ablation without activations, or the mean hidden state as a control."""
    policy: Literal["current", "initial"] = "current"
    """Policy that computes the vectors: the current one (the paper), or the one before training. initial needs TRL."""
    span: Literal["think", "response"] | None = None
    """Score the thinking part or the whole response. None: think for the think-answer format, else response."""
    max_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] | None = "auto"
    """Score at most this many tokens of the span. None scores all.
    auto is 768, and all tokens for g2rl."""
    limit_from: Literal["end", "start"] = "end"
    """Keep the last tokens of the span (the released code) or the first (cheaper)."""
    activation_threshold: Annotated[float, Field(ge=0, le=1)] = 0.0
    """tau_a: ignore dimensions of h_t below this share of the largest one. Only for kind gradient-activation."""
    expert_keep_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """p_f: share of the expert solution's tokens to average, those with the largest gradient. Not for kind hidden."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits inside the signal. Not the sampling temperature."""
    max_batch_tokens: Annotated[int, Field(ge=1)] = 4096
    """Padded tokens per forward pass, if gar makes its own pass."""
    precision: Literal["auto", "float32", "storage"] = "auto"
    """Precision of the products with the LM head: float32 widens a bfloat16 head tile by tile, storage keeps it.
    auto: storage for a large bfloat16 head on a GPU, or on a CPU with bfloat16 products. Else float32."""
    memory_bytes: Annotated[int, Field(ge=1)] = 256 * 1024**2
    """Temporary-memory limit of the closed form in bytes, excluding hidden states and head."""


class RewardSettings(Settings):
    """How verdicts and alignment become a reward."""

    bonus_weight: Annotated[float, Field(ge=0)] = 0.5
    """Weight of the alignment bonus. Not the KL weight: that is --trl.beta."""
    correct_reward: float = 1.0
    """Reward of an eligible response."""
    format_penalty: Annotated[float, Field(le=0)] = -0.6
    """Added to the reward for bad format."""
    center: bool = True
    """Subtract the group's mean alignment."""
    clip: bool = True
    """Clip negative bonuses to zero."""
    format_gate: Literal["algorithm", "equation"] = "algorithm"
    """A correct answer in bad format gets only the penalty (algorithm 1), or base and penalty (equation 6)."""


GROUP_DDOF, GROUP_EPS = 0, 1e-6
"""Defaults for the standard deviation of a group. Equation 12 of GAR implies ddof 0 and gives no eps. 1e-6 is ours."""


class AdvantageSettings(Settings):
    """How rewards become advantages. None leaves a value to the engine (TRL: ddof 1, eps 1e-4). Variants set both."""

    estimator: Literal["group", "reinforce-plus-plus", "reinforce-plus-plus-baseline"] | None = None
    """Normalize within groups (group), or whiten over all tokens of the batch (reinforce-plus-plus).
    reinforce-plus-plus-baseline subtracts the group's mean before it whitens. None: the method's own."""
    ddof: Literal[0, 1] | None = None
    """Denominator of the variance: 0 population (paper), 1 Bessel."""
    eps: Annotated[float, Field(ge=0)] | None = None
    """Added to the standard deviation. The variant `paper` has 1e-6.
    The estimators reinforce-plus-plus add 1e-8 to the variance instead."""
    min_std: Annotated[float, Field(ge=0)] = 0.0
    """Smallest standard deviation to divide by: limits the amplification of small bonuses.
    Only for the estimator group with trl.scale_rewards group."""


class EvaluateSettings(Settings):
    """Measurement before and after training."""

    sources: Names = ()
    """Problem files, or splits of the embedded task. Empty: no evaluation."""
    num_samples: Annotated[int, Field(ge=1)] = 16
    """Responses per problem."""
    pass_at_k: tuple[Annotated[int, Field(ge=1)], ...] = (1, 4)
    """pass@k for these k, at most num_samples."""
    max_problems: Annotated[int, Field(ge=1)] | None = None
    """Use only the first problems of each source, at most this many."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling temperature of evaluations. --trl.temperature is for training."""
    batch_size: Annotated[int, Field(ge=1)] = 256
    """Responses generated at the same time."""
    eval_steps: Annotated[int, Field(ge=0)] = 0
    """Also evaluate during training, at this interval. 0: only before and after."""
    eval_on_start: bool = True
    """Also evaluate before training. Turn it off if many runs start from one model."""


class PreflightSettings(Settings):
    """Checks a few rollouts before the first step."""

    mode: Literal["stop", "warn", "off"] = "stop"
    """What to do if no response is correct, most are cut off, or nothing can be parsed."""
    num_problems: Annotated[int, Field(ge=1)] = 16
    """Problems to check, drawn with the seed."""
    num_samples: Annotated[int, Field(ge=2)] = 8
    """Responses per problem."""


class WatchdogSettings(Settings):
    """Checks the rollouts of every step for a collapsed policy."""

    mode: Literal["warn", "stop", "off"] = "warn"
    """What to do if for `steps` steps every response is empty, cut off or unparsed, or none is correct."""
    steps: Annotated[int, Field(ge=1)] = 20
    """Number of consecutive steps."""


def _folder_name(name: str) -> str:
    if not name or name.startswith(".") or set(name) & set("/\0"):
        raise ValueError(f"expected the name of one folder, without / and not beginning with a dot, got {name!r}.")
    return name


class RecordSettings(Settings):
    """Where results are written."""

    output_dir: str = "runs"
    """Parent of the run folders."""
    name: Annotated[str, AfterValidator(_folder_name)] | None = None
    """Name of the run folder. None makes one from method, data and time."""
