"""What the sections of a configuration check beyond the types and ranges of their fields."""

import pytest
from pydantic import ValidationError

from gar.errors import ConfigError
from gar.settings import AdapterSettings, RewardSettings, VerifySettings


def test_settings_are_frozen_and_finite_and_reject_values_out_of_range():
    with pytest.raises(ValidationError, match="frozen"):
        RewardSettings().clip = False
    for change in ({"correct_reward": float("inf")}, {"format_penalty": 0.6}, {"clip": None}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            RewardSettings(**change)


def test_an_adapter_needs_a_rank_and_one_way_to_name_its_modules():
    for change in ({"dropout": 0.1}, {"alpha": 16}, {"target_modules": ("norm",)}):
        with pytest.raises(ConfigError, match=f"{next(iter(change))} has no effect"):
            AdapterSettings(**change)
        AdapterSettings(rank=4, **change)
    with pytest.raises(ConfigError, match="one or the other"):
        AdapterSettings(rank=4, target_modules=("all-linear", "lm_head"))
    AdapterSettings.model_validate(AdapterSettings().model_dump())  # defaults written out are no choice


def test_tags_are_not_empty_and_do_not_contain_each_other():
    same = {"think_open": "<t>", "think_close": "<t>"}
    for tags in (same, {"think_open": ""}, {"answer_open": "<think>\n"}, {"answer_close": "k>"}):  # longer, shorter
        with pytest.raises(ConfigError, match=r"a tag is empty|is part of another tag"):
            VerifySettings(tags=tags)
