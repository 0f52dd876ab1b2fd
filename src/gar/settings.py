"""Every setting of a run, one frozen model per section. Importing this imports no torch.

`config.py` puts the sections together, loads YAML, applies flags and dumps what was used.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gar.types import ResponseFormat, Tags

MethodName = Literal[
    "grpo", "dr-grpo", "dapo", "reinforce-pp", "reinforce-pp-baseline", "maspo",
    "gar-grpo", "gar-reinforce-pp", "g2rl", "grad2reward",
    "anchor-shuffled", "anchor-random", "hidden-cosine", "text-similarity", "length", "alignment-only",
]  # fmt: skip


REMOVED: Mapping[str, float] = {"signal.sparse_threshold": 0.0, "signal.gate_threshold": 0.0}
"""Settings that are gone, and the value at which they did nothing. Files of older runs may hold it."""


FORMER_DEFAULTS: Mapping[str, Any] = {"signal.limit_tokens": 768}
"""Defaults of older versions that were spelled otherwise. Files of older runs hold them where nobody chose them."""


def removal(name: str) -> str:
    """Why a setting of `REMOVED` is refused."""
    return (
        f"{name} was removed in gar 0.1.0: approximate vectors were hardly cheaper (docs/log.md). Leave it out; a file "
        f"of an older run may hold {REMOVED[name]}"
    )


class Settings(BaseModel):
    """Base of all sections: frozen; an unknown key or a number that is not finite is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class ModelSettings(Settings):
    """The policy."""

    path: str = "embedded"
    """A Hub id, a local folder, a .gguf file, "embedded" for the tiny Qwen3 inside the package, or "smollm2" after
    `gar models fetch smollm2`. A PEFT adapter brings its base."""
    revision: str | None = None
    """Commit, tag or branch of a Hub model."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Dtype to load the weights in; auto is the checkpoint's own."""
    attention: str | None = None
    """Attention implementation, for example sdpa or flash_attention_2."""


class AdapterSettings(Settings):
    """LoRA: train small matrices beside the model's own, which stay as they are. Needs the extra `peft`."""

    rank: Annotated[int, Field(ge=1)] | None = None
    """Rank of the matrices, for example 16. None: no new adapter."""
    alpha: Annotated[int, Field(ge=1)] = 32
    """Their product counts alpha / rank times."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the adapter's inputs that is dropped in training passes; never where the signal is read."""
    target_modules: tuple[str, ...] = ("all-linear",)
    """Modules that get one, by name or its end: q_proj v_proj. all-linear: every linear layer except the LM head."""
    target_parameters: tuple[str, ...] = ()
    """Parameters that get one though they are no linear layer, for example the experts' in a mixture of experts."""
    modules_to_save: tuple[str, ...] = ()
    """Modules to train whole beside the adapter; not the LM head."""
    use_rslora: bool = False
    """Rank-stabilised: alpha / sqrt(rank) times."""
    use_dora: bool = False
    """Learn the weights' sizes apart from their directions; slower."""

    @model_validator(mode="after")
    def _mean_something(self) -> Self:
        chosen = [name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default]
        if self.rank is None and chosen:
            raise ValueError(f"{', '.join(chosen)} without rank would train no adapter; set rank, for example 16")
        if "all-linear" in self.target_modules and len(self.target_modules) > 1:
            raise ValueError("target_modules is all-linear or a list of names, not both")
        return self


class DataSettings(Settings):
    """The problems to train on."""

    source: str = "arithmetic"
    """A .jsonl or .parquet file, a Hub id, or "arithmetic" for the task inside the package."""
    split: str = "train"
    """Split of a Hub data set or of the embedded task."""
    subset: str | None = None
    """Configuration of a Hub data set, for example main of openai/gsm8k. Of the embedded task: the expert's method,
    stepwise (default), or a worse one, running or guess."""
    revision: str | None = None
    """Commit, tag or branch of a Hub data set; pin it."""
    layout: str | None = None
    """Column layout, as in `gar data check --layout`; None detects it from the columns."""
    prompt_field: str | None = None
    """Column of the problem text, where the schema's own does not fit."""
    answer_field: str | None = None
    """Column of the gold answer."""
    anchor_fields: tuple[str, ...] = ()
    """Columns to look for the expert solution in; the first that is not empty wins."""
    template: Literal["plain", "think-answer", "boxed"] = "plain"
    """How a problem becomes a prompt: as it is, or with an instruction that asks for the format."""
    max_prompt_tokens: Annotated[int, Field(ge=1)] | None = None
    """Longer prompts are dropped, and counted."""
    max_problems: Annotated[int, Field(ge=1)] | None = None
    """Take the first so many problems."""


class TagSettings(Settings):
    """The markers of the response format."""

    think_open: Annotated[str, Field(min_length=1)] = "<think>"
    """Opens the thinking part, in the response or at the end of the prompt."""
    think_close: Annotated[str, Field(min_length=1)] = "</think>"
    """Closes the thinking part."""
    answer_open: Annotated[str, Field(min_length=1)] = "<answer>"
    """Opens the answer part."""
    answer_close: Annotated[str, Field(min_length=1)] = "</answer>"
    """Closes the answer part."""

    @model_validator(mode="after")
    def _stand_for_themselves(self) -> Self:
        tags = list(self.model_dump().values())
        for i, tag in enumerate(tags):
            if any(tag in other for other in tags[:i] + tags[i + 1 :]):
                raise ValueError(f"'{tag}' is part of another tag, so one could not be told from the other")
        return self

    def as_tags(self) -> Tags:
        """The same markers as plain data."""
        return Tags(**self.model_dump())


class VerifySettings(Settings):
    """How a response is checked."""

    format: ResponseFormat = "think-answer"
    """think-answer: one thinking part, then one answer part, nothing else. boxed: a last \\boxed{}. none: any text."""
    tags: TagSettings = TagSettings()
    verifier: str | None = None
    """Your own grader, "package.module:function" with (response_text, gold_answer) -> bool or a grade in [0, 1]."""
    pass_grade: Annotated[float, Field(gt=0, le=1)] = 1.0
    """A grade of at least this counts as verified."""
    num_workers: Annotated[int, Field(ge=1)] = 2
    """Processes that parse answers."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 5.0
    """After this a worker is killed, and the response has status timeout."""
    memory_bytes: Annotated[int, Field(ge=64 * 1024**2)] = 2 * 1024**3
    """Most memory of its own that each of these processes may take. An answer that needs more has status error."""


LIMIT_TOKENS = 768
"""What `signal.limit_tokens` auto stands for: the paper's number. A method may have another."""


class SignalSettings(Settings):
    """Gradient-activation vectors: which tokens, and how."""

    kind: Literal["gradient-activation", "gradient", "hidden"] = "gradient-activation"
    """The paper's vector, its ablation without activations, or the mean hidden state as a control."""
    span: Literal["think", "response"] | None = None
    """Score the thinking part or the whole response. None: think for the think-answer format, else response."""
    limit_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] | None = "auto"
    """Score at most this many tokens of the span; None: all of them. auto is 768, and None for g2rl, whose vector is
    that of the whole response."""
    limit_from: Literal["end", "start"] = "end"
    """Keep the last tokens of the span (the released code) or the first (cheaper)."""
    activation_threshold: Annotated[float, Field(ge=0, le=1)] = 0.0
    """tau_a: dimensions of h_t under this share of its largest do not count. Of gradient-activation alone."""
    anchor_keep_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """p_f: share of anchor tokens, those with the largest gradient, that counts."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits inside the signal; not the sampling temperature."""
    max_batch_tokens: Annotated[int, Field(ge=1)] = 4096
    """Padded tokens per forward pass where a pass of our own is needed."""
    precision: Literal["auto", "float32", "storage"] = "auto"
    """Of the products with the LM head: float32 widens a bfloat16 head tile by tile, storage takes it as it is. auto:
    storage for a large bfloat16 head on a GPU, else float32."""
    memory_bytes: Annotated[int, Field(ge=1)] = 256 * 1024**2
    """Most memory that the closed form may use beside hidden states and head, whatever the number of tokens."""

    @model_validator(mode="before")
    @classmethod
    def _drop_what_was_removed(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        for name, old in REMOVED.items():
            key = name.removeprefix("signal.")
            if key in values and values[key] != old:
                raise ValueError(removal(name))
        return {key: value for key, value in values.items() if f"signal.{key}" not in REMOVED}


class RewardSettings(Settings):
    """From verdicts and alignment to a reward."""

    beta: Annotated[float, Field(ge=0)] = 0.5
    """Weight of the alignment bonus. Not the KL weight: that is --trl.beta."""
    base: float = 1.0
    """Reward of an eligible response."""
    penalty: Annotated[float, Field(le=0)] = -0.6
    """Added for bad format."""
    centre: bool = True
    """Subtract the group's mean alignment."""
    clip: bool = True
    """Cut negative bonuses to zero."""
    singleton: Literal["zero", "absolute"] = "zero"
    """What the only scored correct response of a group gets: no bonus (paper), or its cosine (released code)."""
    format_gate: Literal["algorithm", "equation"] = "algorithm"
    """A right answer in bad format gets the penalty alone (algorithm 1), or base and penalty (equation 6)."""
    novelty: Literal["prose", "printed", "centred"] = "prose"
    """g2rl: which reading of its reward; docs/methods.md has the three."""
    novelty_weight: Annotated[float, Field(ge=0)] = 1.0
    """g2rl: lambda."""


GROUP_DDOF, GROUP_EPS = 0, 1e-6
"""Of the standard deviation of a group. Equation 12 of GAR implies ddof 0; it names no eps: 1e-6 is ours."""


class AdvantageSettings(Settings):
    """From rewards to advantages. None leaves a value to the engine (TRL: ddof 1, eps 1e-4); variants set both."""

    estimator: Literal["group", "reinforce-pp", "reinforce-pp-baseline"] | None = None
    """Normalise within groups, or whiten over all tokens of the batch, without or with the group's mean taken off
    first. None is the method's own."""
    baseline: Literal["group", "none"] = "group"
    """Subtract the group's mean and scale; or take the reward itself as advantage, as the released code does. Of the
    estimator group alone."""
    ddof: Literal[0, 1] | None = None
    """Denominator of the variance: 0 population (paper), 1 Bessel."""
    eps: Annotated[float, Field(ge=0)] | None = None
    """Added to the standard deviation. The paper gives no number; the variant `paper` has 1e-6. The estimators
    reinforce-pp add 1e-8 to the variance instead."""
    std_floor: Annotated[float, Field(ge=0)] = 0.0
    """Smallest standard deviation to divide by: bounds how much a group's small bonuses are blown up. Of the estimator
    group alone, and only where it divides (trl.scale_rewards group)."""


class MaspoSettings(Settings):
    """The gate of maspo; the defaults are its released code's."""

    sigma_base: Annotated[float, Field(gt=0)] = 1.0
    """Width of the gate for a token of probability 1."""
    alpha: Annotated[float, Field(ge=0)] = 0.3
    """How fast the gate widens as tokens get rarer."""
    sigma_high: Annotated[float, Field(gt=0)] = 10.0
    """Largest width before the advantage counts."""
    a_low: Annotated[float, Field(gt=0)] = 0.1
    """Smallest factor of the advantage on the width."""
    a_high: Annotated[float, Field(gt=0)] = 10.0
    """Largest factor of the advantage on the width."""
    beta_pos: Annotated[float, Field(ge=0)] = 0.03
    """How much a positive advantage widens the gate."""
    beta_neg: Annotated[float, Field(ge=0)] = 0.03
    """How much a negative advantage narrows it."""


class LossSettings(Settings):
    """What TRL's own loss does not have."""

    kl: Literal["k3", "k2"] = "k3"
    """Estimator of the KL term, whose weight is --trl.beta: TRL's k3, or k2 as REINFORCE++ with baseline has it."""
    maspo: MaspoSettings = MaspoSettings()


class JudgeSettings(Settings):
    """The judge of grad2reward: the policy as it was before training."""

    template: str = "default"
    """Its prompt: default, arithmetic (the embedded task), or a text file with {problem}, {response}, {criterion}."""
    verdict_true: Annotated[str, Field(min_length=1)] = " True"
    """What it goes on with where the criterion holds, leading space included."""
    verdict_false: Annotated[str, Field(min_length=1)] = " False"
    """What it goes on with where it does not."""
    criteria: Annotated[tuple[tuple[str, float], ...], Field(min_length=1)] = (
        ("The response solves the problem correctly.", 1.0),
    )
    """Texts with weights, negative for a fault. One: the verifier's outcome is its verdict. Several: a rubric."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """tau: divides the standardised scores of tokens; large ones share the reward equally."""
    max_batch_tokens: Annotated[int, Field(ge=1)] = 4096
    """Padded tokens per pass. A pass goes forward and backward: it needs the memory of a training step."""

    @model_validator(mode="after")
    def _can_be_earned(self) -> Self:
        weights = [weight for _, weight in self.criteria]
        if sum(weights) <= 0:
            raise ValueError(f"the weights of the criteria must have a positive sum, got {weights}")
        if self.verdict_true == self.verdict_false:
            raise ValueError(f"verdict_true and verdict_false are the same, {self.verdict_true!r}")
        return self


class EvaluateSettings(Settings):
    """Measurement before and after training."""

    sources: tuple[str, ...] = ()
    """Problem files, or splits of the embedded task. Empty: no evaluation."""
    num_samples: Annotated[int, Field(ge=1)] = 16
    """Responses per problem."""
    ks: tuple[Annotated[int, Field(ge=1)], ...] = (1, 4)
    """pass@k for these k, at most num_samples."""
    max_problems: Annotated[int, Field(ge=1)] | None = None
    """Take the first so many problems of each source."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits when sampling; --trl.temperature is that of training."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the probability that is sampled from."""
    batch_size: Annotated[int, Field(ge=1)] = 256
    """Responses generated at one time."""
    every_steps: Annotated[int, Field(ge=0)] = 0
    """Also evaluate during training, every so many steps; 0 only before and after."""
    before: bool = True
    """Evaluate before training, too; leave it out where many runs start from one model."""


class PreflightSettings(Settings):
    """A look at a few rollouts before the first step."""

    mode: Literal["stop", "warn", "off"] = "stop"
    """What to do where no response is correct, most are cut off, or nothing can be parsed."""
    num_problems: Annotated[int, Field(ge=1)] = 16
    """Problems to look at, drawn with the seed."""
    num_samples: Annotated[int, Field(ge=2)] = 8
    """Responses per problem."""


class WatchdogSettings(Settings):
    """A look at every step's rollouts: has the policy collapsed?"""

    mode: Literal["warn", "stop", "off"] = "warn"
    """What to do where for `steps` steps every response is empty, every one cut off, or none right."""
    steps: Annotated[int, Field(ge=1)] = 20
    """Steps in a row."""


class RecordSettings(Settings):
    """Where results go."""

    folder: str = "runs"
    """Parent of the run folders."""
    name: str | None = None
    """Name of the run folder; None makes one from method, data and time."""
    rollouts: bool = True
    """Write every rollout to Parquet."""
    trackio: bool = True
    """Also log to trackio, a local dashboard (`trackio show`)."""
