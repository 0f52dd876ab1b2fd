"""Every setting under every method is read, rejected, or named as unread."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gar.config import VARIANTS, RunConfig, make_config
from gar.errors import ConfigError
from gar.integrations.trl import TRL
from gar.methods import METHODS, resolve_signal, unread_settings
from gar.methods.rules import Flags
from gar.models.embedded import load_embedded
from gar.models.families import ModelParts
from gar.reader import Reader
from gar.response import TokenSequence
from gar.scoring.forward import means_from_hidden
from gar.settings import AdvantageSettings, RewardSettings, SignalSettings, VerifySettings
from gar.step import Shaping, plan_shaping
from tests.methods.conftest import batch_of
from tests.support.errors import raises

OTHER: dict[str, dict[str, list[Any]]] = {
    "signal": {
        "kind": ["gradient", "hidden"], "policy": ["initial"], "span": ["think", "response"],
        "max_tokens": [5, None], "limit_from": ["start"], "activation_threshold": [0.9],
        "expert_keep_fraction": [0.5], "temperature": [2.0],
        "max_batch_tokens": [7], "precision": ["float32"], "memory_bytes": [2**20],
    },
    "reward": {
        "bonus_weight": [0.25], "correct_reward": [2.0], "format_penalty": [-1.0], "center": [False], "clip": [False],
        "format_gate": ["equation"],
    },
    "advantage": {
        "estimator": ["group", "reinforce-plus-plus", "reinforce-plus-plus-baseline"], "ddof": [1],
        "eps": [0.1], "min_std": [5.0],
    },
}  # fmt: skip
_, TOKENIZER = load_embedded()
# A group with right, wrong and badly formatted responses, and one with a lone right one.
BATCH = batch_of(
    [(True, True, 0.9), (True, True, 0.1), (False, True, 0.2), (True, False, 0.3), (True, True, 0.4)], [0, 0, 0, 0, 1]
)
BOUNDS = {"max_batch_tokens", "memory_bytes", "precision"}  # of time and memory, read by every method
PAIRS = [
    (section, name, value) for section, names in OTHER.items() for name, values in names.items() for value in values
]


def checked(method: str, **sections: Any) -> Shaping:
    """The plan on an engine that runs everything and adds no rules."""
    flags = Flags(divide_rewards=method != "dr-grpo")
    return plan_shaping(replace(TRL, name="mine", rules=()), method, sections, flags=flags, quiet=True)


def outcome(method: str, section: str, name: str, value: Any) -> str:
    """Whether a run rejects a setting, does not read it, or reads it."""
    config = make_config({"method": method, section: {name: value}})
    try:
        checked(method, signal=config.signal, advantage=config.advantage)
    except ConfigError as error:
        return "rejected" if error.code == f"{section}.{name}" else str(error)
    return "unread" if f"{section}.{name}" in unread_settings(METHODS[method], dict(config)) else "read"


@pytest.mark.parametrize("method", METHODS)
def test_a_shape_reads_the_reward_settings_that_its_method_declares(method):
    declared = {name: getattr(RewardSettings(), name) for name in METHODS[method].reward}
    found = [
        METHODS[method].shape(BATCH, SimpleNamespace(**declared | changes)).rewards.tolist()  # type: ignore[arg-type]
        for changes in ({}, *({name: OTHER["reward"][name][0]} for name in declared))
    ]
    assert found[0] not in found[1:]


@pytest.mark.parametrize("method", METHODS)
def test_no_setting_is_lost_in_silence(method):
    record = METHODS[method]
    for section, name, value in PAIRS:
        found = outcome(method, section, name, value)
        assert found in ("read", "rejected", "unread")
        if section == "reward":
            assert (found != "unread") == (name in record.reward)
            assert found != "rejected"
        elif name in BOUNDS:
            assert found == "read"
        elif section == "signal" and not record.reads_vectors:
            of_texts = name in ("span", "max_tokens", "limit_from")
            assert (found == "read") == (of_texts and record.alignment in ("text", "length"))
        elif section == "signal" and found == "read":
            resolved = resolve_signal(record, SignalSettings.model_validate({name: value}))
            assert getattr(resolved, name) == value  # in force, not replaced
            assert name != "activation_threshold" or resolved.kind == "gradient-activation"
            assert name != "expert_keep_fraction" or resolved.kind != "hidden"  # it ranks gradients


def results(method: str, sections: dict[str, Any]) -> list[Any]:
    """Vectors, scored tokens, rewards and advantages of a small batch under some settings."""
    plan = checked(method, **{name: type(getattr(RunConfig(), name))(**values) for name, values in sections.items()})
    torch.manual_seed(0)
    backbone, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 4)
    parts = ModelParts(backbone=backbone, head=head, logit_scale=1.0, logit_softcap=None)
    ids = TOKENIZER.encode(f"<think> {'1 + ' * 400}1 </think> <answer> 7 </answer>")
    reader = Reader.from_settings(TOKENIZER, plan.signal, VerifySettings())
    sequence = TokenSequence(context_ids=[0], ids=[1, 2], positions=[0, 1])
    keep = [plan.signal.expert_keep_fraction]
    means = means_from_hidden(parts, torch.randn(1, 3, 3), [sequence], [1], plan.signal, keep_fractions=keep)
    rewards = plan.method.shape(BATCH, plan.reward).rewards
    advantages = plan.advantages(rewards, BATCH.group_index, token_counts=torch.tensor([1, 2, 3, 4, 5]))
    scored = reader.read(TOKENIZER.encode("3+4="), ids).sequence.positions
    return [list(scored), plan.reads_initial, means.tolist(), rewards.tolist(), advantages.tolist()]


def test_every_setting_changes_something():
    for section, names in OTHER.items():
        assert names.keys() == type(getattr(RunConfig(), section)).model_fields.keys()
    for section, name, value in PAIRS:
        method = "gar-reinforce-plus-plus" if value == "group" else "gar-grpo"
        rest = {"max_tokens": 2} if name == "limit_from" else {"ddof": 0} if name == "ddof" else {}
        changed = results(method, {section: {**rest, name: value}}) != results(method, {section: rest})
        assert changed == (name not in BOUNDS and value != "think")  # think is the default of this format


def test_a_setting_that_nothing_would_read_is_rejected():
    for method, section, settings in (
        ("gar-grpo", "signal", {"activation_threshold": 0.1, "kind": "gradient"}),
        ("gar-grpo", "signal", {"activation_threshold": 0.1, "kind": "hidden"}),
        ("gar-grpo", "signal", {"temperature": 2, "kind": "hidden"}),
        ("gar-grpo", "signal", {"expert_keep_fraction": 0.5, "kind": "hidden"}),
        ("gar-grpo", "signal", {"limit_from": "start", "max_tokens": None}),
        ("g2rl", "signal", {"limit_from": "start"}),
        ("g2rl", "signal", {"span": "think"}),
        ("hidden-cosine", "signal", {"kind": "gradient"}),
        ("reinforce-plus-plus", "advantage", {"min_std": 0.1}),
        ("gar-grpo", "advantage", {"eps": 1e-3, "estimator": "reinforce-plus-plus-baseline"}),
        ("dr-grpo", "advantage", {"min_std": 0.1}),
        ("dr-grpo", "advantage", {"eps": 1e-3}),
        ("dr-grpo", "advantage", {"ddof": 1}),
    ):
        with raises(ConfigError, f"{section}.{next(iter(settings))}"):
            checked(method, **{section: type(getattr(RunConfig(), section))(**settings)})
    assert checked("hidden-cosine", signal=SignalSettings(expert_keep_fraction=0.5)).signal.expert_keep_fraction == 1


@pytest.mark.parametrize("setting", [{}, {"ddof": 0}, {"eps": 0.1}, {"min_std": 0.1}], ids=str)
def test_any_setting_of_advantages_replaces_the_engines_own(setting):
    assert checked("grpo", advantage=AdvantageSettings(**setting)).overrides_advantages == bool(setting)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("variant", ["paper", "paper-thresholds"])
def test_defaults_are_never_rejected_nor_named(method, variant):
    config = make_config({"method": method, "variant": variant})
    checked(method, signal=config.signal, advantage=config.advantage)
    named = {name.partition(".")[2] for name in unread_settings(METHODS[method], dict(config))}
    assert named <= VARIANTS[variant].get("signal", {}).keys()


def test_settings_that_a_run_has_no_use_for_are_named():
    off = {
        "method": "grpo",
        "data": {"source": __file__, "subset": "main", "column_schema": "gsm8k"},
        "model": {"path": ".", "revision": "v1"},
        "evaluate": {"num_samples": 3},
        "preflight": {"mode": "off", "num_problems": 2},
    }
    assert unread_settings(METHODS["grpo"], dict(make_config(off))) == [
        "model.revision", "data.subset", "evaluate.num_samples", "preflight.num_problems",
    ]  # fmt: skip
    embedded = make_config({"data": {"column_schema": "gsm8k", "subset": "guess"}, "model": {"revision": "v1"}})
    assert unread_settings(METHODS["gar-grpo"], dict(embedded)) == ["model.revision", "data.column_schema"]
