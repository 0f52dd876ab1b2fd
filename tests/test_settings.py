"""The sections of a configuration: defaults of the method, and ranges."""

import pytest
from pydantic import ValidationError

from gar.settings import (
    AdapterSettings,
    AdvantageSettings,
    DataSettings,
    EvaluateSettings,
    PreflightSettings,
    RewardSettings,
    SignalSettings,
    TagSettings,
    VerifySettings,
)
from gar.types import Tags


def test_defaults_are_those_of_the_method():
    reward, signal = RewardSettings(), SignalSettings()
    assert (reward.correct_reward, reward.bonus_weight, reward.format_penalty) == (1.0, 0.5, -0.6)
    assert (reward.center, reward.clip, reward.format_gate) == (True, True, "algorithm")
    assert (signal.kind, signal.max_tokens, signal.limit_from) == ("gradient-activation", "auto", "end")
    assert (signal.activation_threshold, signal.anchor_keep_fraction, signal.temperature) == (0.0, 1.0, 1.0)
    assert (VerifySettings().format, TagSettings().as_tags()) == ("think-answer", Tags())
    assert (AdvantageSettings().min_std, AdapterSettings().rank) == (0.0, None)


RANGES = [
    (RewardSettings, "bonus_weight", [0, 2.5], [-0.1, "x", None]),
    (RewardSettings, "format_penalty", [0, -1], [0.6]),
    (RewardSettings, "correct_reward", [0, -1, 2], ["one", float("nan"), float("inf")]),
    (SignalSettings, "activation_threshold", [0, 1], [-0.01, 1.01]),
    (SignalSettings, "anchor_keep_fraction", [0.01, 1], [0, 1.01]),
    (SignalSettings, "temperature", [0.1], [0, -1]),
    (SignalSettings, "max_tokens", [1, None, "auto"], [0, 1.5, "all"]),
    (SignalSettings, "max_batch_tokens", [1], [0]),
    (AdvantageSettings, "ddof", [0, 1, None], [2]),
    (AdvantageSettings, "eps", [0, None], [-1e-9]),
    (AdvantageSettings, "min_std", [0, 0.1], [-0.1]),
    (VerifySettings, "memory_bytes", [64 * 1024**2], [64 * 1024**2 - 1]),
    (AdapterSettings, "rank", [1, 64, None], [0, 1.5, "x"]),
    (AdapterSettings, "dropout", [], [-0.1, 1, 0.1]),  # the last for want of a rank
    (AdapterSettings, "alpha", [], [0, 1.5, 16]),
    (AdapterSettings, "target_modules", [], ["all-linear", ["all-linear", "lm_head"], ["norm"]]),
    (DataSettings, "max_problems", [1, None], [0]),
    (DataSettings, "anchor_fields", [["a", "b"]], ["a"]),
    (EvaluateSettings, "pass_at_k", [[1, 8], []], [[0], 1, ["two"]]),
    (PreflightSettings, "num_samples", [2], [1]),
]


def test_sections_keep_each_setting_in_its_range():
    for section, field, good, bad in RANGES:
        for value in good:
            section.model_validate({field: value})
        for value in bad:
            with pytest.raises(ValidationError, match=field):
                section.model_validate({field: value})
        with pytest.raises(ValidationError, match="frozen"):
            setattr(section(), field, None)
    AdapterSettings.model_validate(AdapterSettings().model_dump())  # defaults written out are no choice


def test_tags_are_not_empty_and_do_not_contain_each_other():
    same = {"think_open": "<t>", "think_close": "<t>"}
    for tags in (same, {"think_open": ""}, {"answer_open": "<think>\n"}, {"answer_close": "k>"}):  # longer, shorter
        with pytest.raises(ValidationError, match=r"tag|think_open"):
            TagSettings(**tags)
