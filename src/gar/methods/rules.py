"""What does not go together on every engine, and which settings nothing reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from gar.methods.base import Estimator, Method
from gar.rules import UNSET, Condition, Facts, Rule, When, setting
from gar.settings import EMBEDDED_TASKS, GROUP_DDOF, GROUP_EPS, Settings

ALL_CORRECT = "it drops groups with equal outcomes, and GAR gives all-correct groups a signal"
"""Why a filter does not go with GAR."""
_OF_EVERY_METHOD = (("advantage.ddof", GROUP_DDOF), ("advantage.eps", GROUP_EPS))
"""Values that the variant `paper` sets. They do not count as chosen."""
_DEFINING = ("kind", "span")
"""Signal settings that define a method. Its other signal settings are only defaults."""


@dataclass(frozen=True, kw_only=True)
class MethodFacts(Facts):
    """A method and a run's settings."""

    engine: str
    """Its name."""
    method: Method
    reads_vectors: bool | None
    """None: the method lists what it reads (`Method.reads`)."""
    reads_spans: bool | None
    """The same for the settings of which tokens are scored."""


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What an engine is told besides GAR's settings. An engine's own record adds the facts that follow."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """By the engine's names."""
    divide_rewards: bool = True
    """Whether rewards are divided by their spread."""


FlagsT = TypeVar("FlagsT", bound=Flags, covariant=True)


@dataclass(frozen=True, kw_only=True)
class EngineFacts(MethodFacts, Generic[FlagsT]):
    """A method on an engine."""

    flags: FlagsT
    engine_methods: str
    """Names of the methods that it runs."""
    has_initial_policy: bool
    """Whether it has the policy before training."""
    method_lacks: str
    """Why it cannot run the method. Empty if it can."""
    estimator: Estimator
    estimator_flags: tuple[str, ...]
    """The engine's names for the estimator."""
    own_advantages: bool
    """Whether advantages differ from the engine's own."""


def method_facts(method: Method, sections: Mapping[str, Any], engine: str) -> MethodFacts:
    """The facts of a run. `sections` has settings by section: `dict(config)` for a `gar.config.RunConfig`."""
    settings: dict[str, Any] = {"method": method.name}
    chosen = []
    for section, values in sections.items():
        for name, kind in type(values).model_fields.items() if isinstance(values, Settings) else ():
            settings[f"{section}.{name}"] = value = getattr(values, name)
            if value != kind.default and (f"{section}.{name}", value) not in _OF_EVERY_METHOD:
                chosen.append(f"{section}.{name}")
    own = method.reads is not None and "trl" in sections
    return MethodFacts(
        settings=settings,
        chosen=chosen,
        engine=engine,
        method=method,
        reads_vectors=None if own else method.reads_vectors,
        reads_spans=None if own else method.compares_responses or method.needs_alignment,
    )


AnyEngine = EngineFacts[Flags]

IN_GROUPS = When[AnyEngine]("`estimator` is group", lambda facts: facts.estimator == "group")
WHITENED = When[AnyEngine](
    "`estimator` is reinforce-plus-plus or reinforce-plus-plus-baseline", lambda facts: facts.estimator != "group"
)
ESTIMATOR_FLAG = Condition[AnyEngine](
    "the flag of the run's estimator ({estimator.flags})",
    lambda facts, name: facts.settings.get(name) in facts.estimator_flags,
)
_NOT_DIVIDED = When[AnyEngine]("`rewards are divided` is False", lambda facts: not facts.flags.divide_rewards)
_NO_INITIAL = When[AnyEngine]("`engine.initial_policy` is False", lambda facts: not facts.has_initial_policy)
_RUNS = Condition[AnyEngine]("one that {engine} runs ({engine.methods})", lambda facts, _: not facts.method_lacks)
_VECTORS = When[MethodFacts]("`method.reads_vectors` is True", lambda facts: facts.reads_vectors is True)
_NO_VECTORS = When[MethodFacts]("`method.reads_vectors` is False", lambda facts: facts.reads_vectors is False)
_SPANS = When[MethodFacts]("`method.reads_spans` is True", lambda facts: facts.reads_spans is True)
_NO_SPANS = When[MethodFacts]("`method.reads_spans` is False", lambda facts: facts.reads_spans is False)
_KIND_IS_FREE = When[MethodFacts]("`method.kind` is no value", lambda facts: "kind" not in facts.method.signal)
_KIND_IS_HIDDEN = When[MethodFacts](
    "`method.kind` is hidden", lambda facts: facts.method.signal.get("kind") == "hidden"
)
_KIND_HAS_NO_ACTIVATIONS = When[MethodFacts](
    "`method.kind` is gradient or hidden", lambda facts: facts.method.signal.get("kind") in ("gradient", "hidden")
)
_RANDOM_ANCHOR = When[MethodFacts](
    "`method.alignment` is random-anchor", lambda facts: facts.method.alignment in (None, "random-anchor")
)
_GENERATED = When[MethodFacts]("`data` is generated", lambda facts: facts.settings.get("data.source") in EMBEDDED_TASKS)
_IN_A_FILE = When[MethodFacts]("`data` is a file", lambda facts: Path(facts.settings.get("data.source", "")).is_file())
_LOCAL_MODEL = When[MethodFacts](
    "`model` is embedded or a folder",
    lambda facts: facts.settings.get("model.path") == "embedded" or Path(facts.settings.get("model.path", "")).is_dir(),
)
_SLIME_OR_VERL = When[MethodFacts]("`engine` is slime or verl", lambda facts: facts.engine in ("slime", "verl"))
_VERL = When[MethodFacts]("`engine` is verl", lambda facts: facts.engine == "verl")
_HIDDEN, _OWN_KIND = setting("signal.kind", "hidden"), (_VECTORS, _KIND_IS_FREE)

METHOD_RULES = (
    Rule("method", _RUNS, "{method.lacks}"),
    Rule(
        "signal.policy",
        ("current",),
        "{engine} forms vectors in a pass of the policy that it trains. gar train also has the initial one",
        (_VECTORS, _NO_INITIAL),
    ),
    Rule(
        "signal.activation_threshold",
        UNSET,
        "{signal.kind} multiplies no activations",
        (*_OWN_KIND, setting("signal.kind", "gradient", "hidden")),
    ),
    Rule("signal.temperature", UNSET, "the kind hidden has no logits", (*_OWN_KIND, _HIDDEN)),
    Rule("signal.expert_keep_fraction", UNSET, "the kind hidden has no gradients to rank", (*_OWN_KIND, _HIDDEN)),
    Rule(
        "signal.limit_from",
        ("end",),
        "no token is left out, since signal.max_tokens sets no limit here",
        (_SPANS, setting("signal.max_tokens", None)),
    ),
    Rule("advantage.min_std advantage.eps", UNSET, "{estimator} adds 1e-8 to a variance over the batch", (WHITENED,)),
    Rule(
        "advantage.min_std advantage.eps advantage.ddof",
        UNSET,
        "rewards are not divided here",
        (IN_GROUPS, _NOT_DIVIDED),
    ),
)
"""For `EngineFacts`."""


def _unread(section: str, names: str, *when: When[Any]) -> Rule:
    return Rule(" ".join(f"{section}.{name}" for name in names.split()), when=when)


UNREAD_RULES = (
    _unread("signal", "kind policy activation_threshold expert_keep_fraction temperature", _NO_VECTORS),
    _unread("signal", "expert_keep_fraction", _VECTORS, _RANDOM_ANCHOR),
    _unread("signal", "activation_threshold", _VECTORS, _KIND_HAS_NO_ACTIVATIONS),
    _unread("signal", "temperature expert_keep_fraction", _VECTORS, _KIND_IS_HIDDEN),
    _unread("signal", "span max_tokens limit_from", _NO_SPANS),
    _unread("signal", "precision memory_bytes", _SLIME_OR_VERL),
    _unread("signal", "max_batch_tokens", _VERL),
    _unread("data", "column_schema prompt_field answer_field expert_fields revision", _GENERATED),
    _unread("data", "split subset revision", _IN_A_FILE),
    _unread("model", "revision", _LOCAL_MODEL),
    _unread(
        "evaluate",
        "num_samples pass_at_k max_problems temperature eval_steps eval_on_start",
        setting("evaluate.sources", ()),
    ),
    _unread("preflight", "num_problems num_samples", setting("preflight.mode", "off")),
    _unread("watchdog", "steps", setting("watchdog.mode", "off")),
)
"""For `MethodFacts`: settings that nothing reads."""


def own_rules(method: Method) -> list[Rule]:
    """Rules that protect a method's own values: those that define its signal, and under TRL fields of `GRPOConfig`."""
    why = f"it belongs to {method.name}. Leave it out, or take another method"
    signal = [Rule(f"signal.{name}", (value,), why) for name, value in method.signal.items() if name in _DEFINING]
    has_fields = When[Facts]("`engine` is TRL", lambda facts: "trl.loss_type" in facts.settings)
    return signal + [Rule(f"trl.{name}", (value,), why, (has_fields,)) for name, value in method.trl.items()]
