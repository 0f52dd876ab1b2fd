"""How a method reads a run's settings: its own signal, the settings that it rejects, and those that it does not read.

One settings file may serve several methods. A setting of a part that the method lacks, such as maspo's gate under
gar-grpo, is therefore no mistake: `unread_settings` names it. A setting that another one of the same run switches off
is a mistake: `resolve_signal` and `check_settings` reject it, the same in every driver.
"""

import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from gar.errors import ConfigError
from gar.methods.base import Method
from gar.settings import (
    EMBEDDED_TASKS,
    GROUP_DDOF,
    GROUP_EPS,
    MAX_TOKENS,
    REGISTERED,
    AdvantageSettings,
    RewardSettings,
    Settings,
    SignalSettings,
    section_name,
)

_DEFINING = ("kind", "span")
"""Signal settings that define a method. Its other signal settings are only defaults."""

_VECTOR_SETTINGS = (
    "kind",
    "policy",
    "activation_threshold",
    "anchor_keep_fraction",
    "temperature",
)
_OF_EVERY_METHOD = (("advantage", "ddof", GROUP_DDOF), ("advantage", "eps", GROUP_EPS))
"""What the variant `paper` sets, so that nobody has chosen it."""
_SECTIONS = ("signal", "reward", "advantage", "watchdog")
"""What `Method.reads` lists, beside trl."""
_SPANS = ("span", "max_tokens", "limit_from")
_COLUMNS = ("column_schema", "prompt_field", "answer_field", "anchor_fields")


def resolve_signal(method: Method, signal: SignalSettings) -> SignalSettings:
    """The signal settings in force: the method's own where the run leaves the default, and no "auto" among them.

    Raises:
        ConfigError: The run contradicts a setting that defines the method, or sets something that the signal lacks.
    """
    update: dict[str, Any] = {}
    for name, value in method.signal.items():
        given = getattr(signal, name)
        if given in (value, _default(signal, name)):
            update[name] = value
        elif name in _DEFINING:
            raise ConfigError(
                f"signal.{name} is {given!r}, but {method.name} is defined by {value!r}. Leave it out, or take another "
                "method."
            )
    resolved = signal.model_copy(update=update)
    if resolved.max_tokens == "auto":
        resolved = resolved.model_copy(update={"max_tokens": MAX_TOKENS})
    _refuse(_signal_faults(method, signal, resolved))
    return resolved


def check_settings(method: Method, *, advantage: AdvantageSettings, divides: bool = True) -> None:
    """Reject settings that nothing would read, because another setting or the method switches them off.

    Args:
        method: The method that is trained.
        advantage: How rewards become advantages. `ddof` and `eps` at the paper's values, which the variant `paper` sets
            for every method, are no choice and never rejected.
        divides: Whether normalizing in groups divides by the group's standard deviation.

    Raises:
        ConfigError: Names each such setting, its value, and what switches it off.
    """
    _refuse(_advantage_faults(method, advantage, divides))


def unread_settings(method: Method, sections: Mapping[str, Any], *, ignored: Collection[str] = ()) -> list[str]:
    """Settings away from their defaults that nothing reads, as "section.name".

    Args:
        method: The method that is trained.
        sections: The sections that the driver takes, by name; `dict(config)` gives those of a `gar.config.RunConfig`.
        ignored: Settings that this driver never reads, as "section.name".
    """
    names = [f"{section}.{name}" for section, names in _unread(method, sections) for name in names]
    return [name for name in [*names, *ignored] if _is_chosen(sections, *name.split("."))]


def warn_of_unread(method: Method, sections: Mapping[str, Any], *, driver: str, ignored: Collection[str] = ()) -> None:
    """Name the `unread_settings` in a warning, if there are any. `gar train` prints the same."""
    unread = unread_settings(method, sections, ignored=ignored)
    if unread:
        warnings.warn(f"Not read by {method.name} under {driver}: {', '.join(unread)}.", stacklevel=4)


def _is_chosen(sections: Mapping[str, Any], section: str, name: str) -> bool:
    values = sections.get(section)
    if values is None or (section, name, getattr(values, name)) in _OF_EVERY_METHOD:
        return False
    return getattr(values, name) != _default(values, name)


def _unread(method: Method, sections: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The settings that this run does not use, by section. Limits of time and memory are left out."""
    if method.reads is None or "trl" not in sections:
        yield from _unread_by_method(method)
    else:
        read = set(method.reads(sections))
        own = [] if method.settings is None else [section_name(method.name)]
        for section in (*_SECTIONS, *own):
            names = type(sections[section]).model_fields
            yield section, tuple(name for name in names if f"{section}.{name}" not in read)
    for name, other in REGISTERED.items():
        if other.settings is not None and name != method.name:
            yield section_name(name), tuple(other.settings.model_fields)
    verify, data, model = sections.get("verify"), sections.get("data"), sections.get("model")
    if verify and verify.verifier is None:
        yield "verify", ("pass_grade",)
    if data and data.source in EMBEDDED_TASKS:
        yield "data", (*_COLUMNS, "revision")
    elif data and Path(data.source).is_file():
        yield "data", ("split", "subset", "revision")
    if model and (model.path.partition(":")[0] == "embedded" or Path(model.path).is_dir()):
        yield "model", ("revision",)
    if "evaluate" in sections and not sections["evaluate"].sources:
        yield (
            "evaluate",
            ("num_samples", "pass_at_k", "max_problems", "temperature", "top_p", "eval_steps", "eval_on_start"),
        )
    if "preflight" in sections and sections["preflight"].mode == "off":
        yield "preflight", ("num_problems", "num_samples")
    if "watchdog" in sections and sections["watchdog"].mode == "off":
        yield "watchdog", ("steps",)


def _unread_by_method(method: Method) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not method.reads_vectors:
        yield "signal", _VECTOR_SETTINGS
    elif method.alignment not in ("anchor", "shuffled-anchor"):
        yield "signal", ("anchor_keep_fraction",)
    if method.reads_vectors and method.signal.get("kind") in ("gradient", "hidden"):
        yield "signal", ("activation_threshold", *(("temperature",) if method.signal["kind"] == "hidden" else ()))
    if not _reads_span(method):
        yield "signal", _SPANS
    yield "reward", tuple(name for name in RewardSettings.model_fields if name not in method.reward)


def _signal_faults(method: Method, signal: SignalSettings, resolved: SignalSettings) -> Iterator[str]:
    if method.reads_vectors and signal.activation_threshold and signal.kind != "gradient-activation":
        yield (
            f"signal.activation_threshold is {signal.activation_threshold}, but signal.kind {signal.kind!r} multiplies "
            "no activations. Set it to 0."
        )
    if method.reads_vectors and signal.temperature != 1 and signal.kind == "hidden":
        yield f"signal.temperature is {signal.temperature}, but signal.kind 'hidden' has no logits. Set it to 1."
    if _reads_span(method) and resolved.limit_from == "start" and resolved.max_tokens is None:
        yield "signal.limit_from is 'start', but no token is left out: signal.max_tokens sets no limit here."


def _reads_span(method: Method) -> bool:
    return method.compares_responses or method.needs_alignment


def _advantage_faults(method: Method, advantage: AdvantageSettings, divides: bool) -> Iterator[str]:
    estimator = advantage.estimator or method.estimator
    if estimator != "group":
        yield from _without_spread(advantage, f"{estimator} adds 1e-8 to a variance over the batch", reads_ddof=True)
    elif not divides:
        yield from _without_spread(advantage, "rewards are not divided by a standard deviation here")


def _without_spread(advantage: AdvantageSettings, why: str, *, reads_ddof: bool = False) -> Iterator[str]:
    for name, unset in (("min_std", (0.0,)), ("eps", (None, GROUP_EPS)), ("ddof", (None, GROUP_DDOF))):
        value = getattr(advantage, name)
        if value not in unset and not (reads_ddof and name == "ddof"):
            yield f"advantage.{name} is {value}, but {why}, so that nothing would read it. Leave it out."


def _default(section: Settings, name: str) -> Any:
    return type(section).model_fields[name].default


def _refuse(faults: Any) -> None:
    lines = list(faults)
    if lines:
        raise ConfigError("\n".join(lines))
