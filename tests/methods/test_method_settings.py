"""Every setting under every method is read, rejected, or named as unread: none is lost in silence."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gar.config import VARIANTS, RunConfig, make_config
from gar.errors import ConfigError
from gar.integrations.trl import TRL
from gar.methods import METHODS, ScoredBatch, resolve_signal, unread_settings
from gar.models.embedded import load_embedded
from gar.models.families import ModelParts
from gar.scoring.forward import means_from_hidden
from gar.sequences import SequenceReader, TokenSequence
from gar.settings import RewardSettings, SignalSettings, VerifySettings
from gar.step import Shaping, plan_shaping
from tests.support.errors import raises

OTHER: dict[str, dict[str, list[Any]]] = {
    "signal": {
        "kind": ["gradient", "hidden"], "policy": ["initial"], "span": ["think", "response"],
        "max_tokens": [5, None], "limit_from": ["start"], "activation_threshold": [0.9],
        "anchor_keep_fraction": [0.5], "temperature": [2.0],
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
BOUNDS = {"max_batch_tokens", "memory_bytes", "precision"}  # of time and memory: no method is defined by them
SPANS = {"span", "max_tokens", "limit_from"}
PAIRS = [
    (section, name, value) for section, names in OTHER.items() for name, values in names.items() for value in values
]


def checked(method: str, divides: bool = True, **sections: Any) -> Shaping:
    """The plan on an engine that runs everything and has no rules of its own."""
    return plan_shaping(replace(TRL, name="mine"), method, sections, flags={"rewards are divided": divides}, quiet=True)


class Spy:
    """Settings that note which of them are read."""

    def __init__(self, settings: Any):
        self.settings, self.read = settings, set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.settings, name)


def batch() -> ScoredBatch:
    """Two groups with right, wrong and badly formatted responses, and one with a lone right one."""
    flags = torch.tensor([[1, 1], [1, 1], [0, 1], [1, 0], [1, 1]]).bool()
    vectors = torch.nn.functional.normalize(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    return ScoredBatch(
        verified=flags[:, 0], well_formatted=flags[:, 1], group_index=torch.tensor([0, 0, 0, 0, 1]),
        alignment=torch.tensor([0.9, 0.1, 0.2, 0.3, 0.4]).double(), vectors=vectors,
    )  # fmt: skip


def outcome(method: str, section: str, name: str, value: Any) -> str:
    """Rejected, unread, or read, as the settings of a run say."""
    config = make_config({"method": method, section: {name: value}})
    record = METHODS[method]
    try:
        checked(method, record.trl.get("scale_rewards") != "none", signal=config.signal, advantage=config.advantage)
    except ConfigError as error:
        return "rejected" if error.code == f"{section}.{name}" else f"rejected in other words: {error}"
    return "unread" if f"{section}.{name}" in unread_settings(record, dict(config)) else "read"


def test_the_values_here_cover_every_setting_of_a_method():
    for section, names in OTHER.items():
        assert names.keys() == type(getattr(RunConfig(), section)).model_fields.keys()


@pytest.mark.parametrize("method", METHODS)
def test_a_shape_reads_the_reward_settings_that_its_method_declares(method):
    spy = Spy(RewardSettings())
    METHODS[method].shape(batch(), spy)  # type: ignore[arg-type]
    assert spy.read == set(METHODS[method].reward)


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
            assert (found == "read") == (name in SPANS and record.alignment in ("text", "length"))
        elif section == "signal" and found == "read":
            resolved = resolve_signal(record, SignalSettings.model_validate({name: value}))
            assert getattr(resolved, name) == value  # in force, not replaced
            if name == "activation_threshold":
                assert resolved.kind == "gradient-activation"


def results(method: str, sections: dict[str, Any]) -> list[Any]:
    """Vectors, scored tokens, rewards and advantages of a small batch under some settings."""
    plan = checked(method, **{name: type(getattr(RunConfig(), name))(**values) for name, values in sections.items()})
    torch.manual_seed(0)
    backbone, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 4)
    parts = ModelParts(backbone=backbone, head=head, logit_scale=1.0, logit_softcap=None)
    ids = TOKENIZER.encode(f"<think> {'1 + ' * 400}1 </think> <answer> 7 </answer>")
    reader = SequenceReader.from_settings(TOKENIZER, plan.signal, VerifySettings())
    sequence = TokenSequence(context_ids=[0], ids=[1, 2], positions=[0, 1])
    keep = [plan.signal.anchor_keep_fraction]
    means = means_from_hidden(parts, torch.randn(1, 3, 3), [sequence], [1], plan.signal, keep_fractions=keep)
    rewards = plan.method.shape(batch(), plan.reward).rewards
    advantages = plan.advantages(rewards, batch().group_index, token_counts=torch.tensor([1, 2, 3, 4, 5]))
    scored = reader.response(TOKENIZER.encode("3+4="), ids).positions
    return [list(scored), plan.reads_initial, means.tolist(), rewards.tolist(), advantages.tolist()]


def test_every_setting_changes_something():
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
        values = type(getattr(RunConfig(), section))(**settings)
        with raises(ConfigError, f"{section}.{next(iter(settings))}"):
            checked(method, method != "dr-grpo", **{section: values})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("variant", ["paper", "paper-thresholds"])
def test_defaults_are_never_refused_nor_named(method, variant):
    config = make_config({"method": method, "variant": variant})
    checked(method, False, signal=config.signal, advantage=config.advantage)
    named = {name.partition(".")[2] for name in unread_settings(METHODS[method], dict(config))}
    assert named <= VARIANTS[variant].get("signal", {}).keys()


def test_settings_that_a_run_has_no_use_for_are_named(tmp_path: Path):
    file = tmp_path / "problems.jsonl"
    file.touch()
    off = {
        "method": "grpo",
        "data": {"source": str(file), "subset": "main", "column_schema": "gsm8k"},
        "model": {"path": str(tmp_path), "revision": "v1"},
        "evaluate": {"num_samples": 3},
        "preflight": {"mode": "off", "num_problems": 2},
    }
    assert unread_settings(METHODS["grpo"], dict(make_config(off))) == [
        "model.revision", "data.subset", "evaluate.num_samples", "preflight.num_problems",
    ]  # fmt: skip
    embedded = make_config({"data": {"column_schema": "gsm8k", "subset": "guess"}, "model": {"revision": "v1"}})
    assert unread_settings(METHODS["gar-grpo"], dict(embedded)) == ["model.revision", "data.column_schema"]
