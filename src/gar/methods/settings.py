"""A method's view of a run's settings: its own signal, the facts for `gar.rules`, the settings that nothing reads.

One settings file may serve several methods. A setting that a method does not read, such as the bonus under grpo, is
therefore no error: `unread_settings` names it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gar.methods.base import Method
from gar.rules import Rule, faults
from gar.settings import (
    EMBEDDED_TASKS,
    GROUP_DDOF,
    GROUP_EPS,
    MAX_TOKENS,
    REGISTERED,
    RewardSettings,
    Settings,
    SignalSettings,
    section_name,
)

_DEFINING = ("kind", "span")
"""Signal settings that define a method. Its other signal settings are only defaults."""
_OF_EVERY_METHOD = (("advantage.ddof", GROUP_DDOF), ("advantage.eps", GROUP_EPS))
"""Values that the variant `paper` sets. They do not count as chosen."""
_SECTIONS = ("signal", "reward", "advantage", "watchdog")
"""Sections that `Method.reads` lists, besides trl and the method's own."""


def resolve_signal(method: Method, signal: SignalSettings) -> SignalSettings:
    """The signal settings in force: the method's own if the run leaves the default, with each "auto" resolved."""
    fields = SignalSettings.model_fields
    own = {name: value for name, value in method.signal.items() if getattr(signal, name) == fields[name].default}
    resolved = signal.model_copy(update=own)
    if resolved.kind == "hidden":  # a large hidden state is not a large gradient
        resolved = resolved.model_copy(update={"expert_keep_fraction": 1.0})
    return resolved if resolved.max_tokens != "auto" else resolved.model_copy(update={"max_tokens": MAX_TOKENS})


def own_rules(method: Method) -> list[Rule]:
    """Rules that protect a method's own values: those that define its signal, and fields of TRL."""
    signal = {f"signal.{name}": value for name, value in method.signal.items() if name in _DEFINING}
    why = f"it belongs to {method.name}. Leave it out, or take another method"
    rules = [Rule(name, (value,), why) for name, value in signal.items()]
    return rules + [Rule(f"trl.{name}", (value,), why, where="TRL") for name, value in method.trl.items()]


def run_facts(method: Method, sections: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings by dotted name, which of them are chosen, and what decides whether they are read.

    `sections` has the driver's sections by name: `dict(config)` for a `gar.config.RunConfig`.
    """
    own = method.reads is not None and "trl" in sections  # the method lists what it reads
    facts: dict[str, Any] = {
        "method": method.name,
        "method.reads_vectors": None if own else method.reads_vectors,
        "method.reads_spans": None if own else method.compares_responses or method.needs_alignment,
        "method.alignment": method.alignment,
        "method.kind": method.signal.get("kind"),
        "method.gate": method.gate is not None,
    }
    chosen = []
    for section, values in sections.items():
        for name, kind in type(values).model_fields.items() if isinstance(values, Settings) else ():
            facts[f"{section}.{name}"] = value = getattr(values, name)
            if value != kind.default and (f"{section}.{name}", value) not in _OF_EVERY_METHOD:
                chosen.append(f"{section}.{name}")
    source, path = facts.get("data.source", ""), facts.get("model.path", "")
    data = "generated" if source in EMBEDDED_TASKS else "a file" if Path(source).is_file() else "on the Hub"
    model = "embedded" if path == "embedded" else "a folder" if Path(path).is_dir() else "on the Hub"
    return facts | {"chosen": chosen, "data": data, "model": model}


def unread_settings(method: Method, sections: Mapping[str, Any], *, engine: str = "TRL") -> list[str]:
    """Changed settings that nothing reads, as "section.name". `sections` as in `run_facts`."""
    facts = run_facts(method, sections) | {"engine": engine}
    unread = {name for name, _ in faults("", facts, level="unread")}
    parts = {section_name(name): other.settings for name, other in REGISTERED.items() if name != method.name}
    unread |= {f"{section}.{name}" for section, kind in parts.items() if kind for name in kind.model_fields}
    if method.reads is None or "trl" not in sections:
        unread |= {f"reward.{name}" for name in RewardSettings.model_fields if name not in method.reward}
    else:
        own = (*_SECTIONS, section_name(method.name))
        unread |= {name for name in facts["chosen"] if name.partition(".")[0] in own} - set(method.reads(sections))
    return [name for name in facts["chosen"] if name in unread]
