"""The sections of a configuration: defaults of the method, ranges, and no torch."""

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


def test_defaults_are_those_of_the_method():
    reward, signal = RewardSettings(), SignalSettings()
    assert (reward.correct_reward, reward.bonus_weight, reward.format_penalty) == (1.0, 0.5, -0.6)
    assert (reward.center, reward.clip, reward.format_gate) == (True, True, "algorithm")
    assert (signal.kind, signal.max_tokens, signal.limit_from) == ("gradient-activation", "auto", "end")
    assert (signal.activation_threshold, signal.anchor_keep_fraction, signal.temperature) == (0.0, 1.0, 1.0)
    assert VerifySettings().format == "think-answer"
    assert AdvantageSettings().min_std == 0.0
    assert AdapterSettings().rank is None


@pytest.mark.parametrize(
    ("section", "field", "good", "bad"),
    [
        (RewardSettings, "bonus_weight", [0, 2.5], [-0.1, "x", None]),
        (RewardSettings, "format_penalty", [0, -1], [0.6]),
        (RewardSettings, "correct_reward", [0, -1, 2], ["one", float("nan"), float("inf")]),
        (SignalSettings, "activation_threshold", [0, 1], [-0.01, 1.01]),
        (SignalSettings, "anchor_keep_fraction", [0.01, 1], [0, 1.01]),
        (SignalSettings, "temperature", [0.1], [0, -1]),
        (SignalSettings, "max_tokens", [1, None, "auto"], [0, 1.5, "all"]),
        (SignalSettings, "limit_from", ["start"], ["middle"]),
        (SignalSettings, "max_batch_tokens", [1], [0]),
        (AdvantageSettings, "ddof", [0, 1, None], [2]),
        (AdvantageSettings, "eps", [0, None], [-1e-9]),
        (AdvantageSettings, "min_std", [0, 0.1], [-0.1]),
        (VerifySettings, "timeout_seconds", [0.1], [0]),
        (VerifySettings, "num_workers", [1], [0]),
        (VerifySettings, "memory_bytes", [64 * 1024**2], [64 * 1024**2 - 1]),
        (AdapterSettings, "rank", [1, 64, None], [0, 1.5, "x"]),
        (AdapterSettings, "alpha", [], [0, 1.5]),
        (AdapterSettings, "dropout", [], [-0.1, 1]),
        (AdapterSettings, "target_modules", [], ["all-linear", ["all-linear", "lm_head"]]),
        (TagSettings, "think_open", ["<t>"], [""]),
        (DataSettings, "max_problems", [1, None], [0]),
        (DataSettings, "anchor_fields", [["a", "b"]], ["a"]),
        (EvaluateSettings, "pass_at_k", [[1, 8], []], [[0], 1, ["two"]]),
        (EvaluateSettings, "eval_steps", [0, 5], [-1]),
        (PreflightSettings, "num_samples", [2], [1]),
    ],
)
def test_section_keeps_each_setting_in_its_range(section, field, good, bad):
    for value in good:
        assert section.model_validate({field: value}) is not None
    for value in bad:
        with pytest.raises(ValidationError, match=field):
            section.model_validate({field: value})
    with pytest.raises(ValidationError, match="frozen"):
        setattr(section(), field, None)


def test_adapter_without_rank_is_not_left_out_silently():
    for settings in ({"alpha": 16}, {"rank": None, "dropout": 0.1}, {"target_modules": ["norm"]}):
        with pytest.raises(ValidationError, match=list(settings)[-1]):
            AdapterSettings.model_validate(settings)
    AdapterSettings.model_validate(AdapterSettings().model_dump())  # defaults written out are no choice


def test_tags_must_not_contain_each_other():
    same = {"think_open": "<t>", "think_close": "<t>"}
    for tags in (same, {"answer_open": "<think>\n"}, {"answer_close": "k>"}):  # longer, shorter
        with pytest.raises(ValidationError, match="tag"):
            TagSettings(**tags)
