"""Configurations: what goes over what, what is rejected in which words, and what sections check beyond types."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from gar.config import dump_yaml, make_config, parse_yaml, preset_names, read_config, read_preset
from gar.errors import ConfigError
from gar.settings import AdapterSettings, AdvantageSettings, RewardSettings, VerifySettings
from tests.support.errors import raises

CONFIGS = sorted((Path(__file__).parent.parent / "src" / "gar" / "configs").glob("*.yaml"))


def test_every_file_that_ships_is_a_preset_and_survives_a_dump():
    assert preset_names() == [path.stem for path in CONFIGS]
    assert "demo" in preset_names()  # `gar --help` starts with it
    for path in CONFIGS:
        config = make_config(read_config(path), source=str(path))
        assert config == make_config(read_preset(path.stem))
        assert make_config(parse_yaml(dump_yaml(config.model_dump(mode="json")))) == config


def test_make_config_puts_the_variant_over_the_defaults_and_the_values_over_the_variant():
    assert make_config({}).signal.activation_threshold == 0.0
    thresholds = make_config({"variant": "paper-thresholds"})
    assert (thresholds.signal.activation_threshold, thresholds.signal.expert_keep_fraction) == (0.05, 0.7)
    own = make_config({"variant": "paper-thresholds", "signal": {"activation_threshold": 0.1}})
    assert (own.signal.activation_threshold, own.signal.expert_keep_fraction) == (0.1, 0.7)
    # Equation 12: population deviation and eps 1e-6, not the engine's own: K 16 with 5 right gives the paper's 1.4832.
    for config in (make_config({}), thresholds):
        assert config.advantage == AdvantageSettings(ddof=0, eps=1e-6)
    assert make_config({"advantage": {"ddof": None, "eps": None}}).advantage == AdvantageSettings()


def test_parse_yaml_reads_scalars_as_yaml_1_2():
    for text, value in (
        ("1e-3", 0.001),
        ("-2.5e-6", -2.5e-6),
        ("7", 7),
        ("no", "no"),  # as in `save_strategy: no`; YAML 1.1 reads False
        ("2026-11-21", "2026-11-21"),
        ("12e4x", "12e4x"),
        ("{enable_thinking: false}", {"enable_thinking": False}),
        ("", None),
    ):
        found = parse_yaml(text)
        assert (found, type(found)) == (value, type(value))


def test_what_cannot_be_read_is_an_error_of_one_line(tmp_path):
    for text in (
        "reward: [1, 2",
        "reward:\n  bonus_weight: 1\nreward:\n  correct_reward: 2\n",  # a key twice
        "reward: {bonus_weight: 1, bonus_weight: 2}",
        "a: b: c",
        "!!python/object/apply:os.system [true]",
    ):
        with raises(ConfigError, "not-yaml") as caught:
            parse_yaml(text, "run.yaml")
        assert str(caught.value).startswith("run.yaml: not valid YAML: ")
        assert "\n" not in str(caught.value)
    (tmp_path / "latin.yaml").write_bytes(b"method: gr\xfcn")
    for name in ("nosuch.yaml", "latin.yaml"):
        with raises(ConfigError, "unreadable"):
            read_config(tmp_path / name)


AWKWARD = """
variant: paper-thresholds
seed: 3
model: {path: "no", revision: "123e456"}
adapter: {rank: 8, target_modules: [q_proj, "1e3"]}
data: {expert_fields: [solution, "1"]}
records: {name: 2026-11-21}
trl: {save_strategy: no, learning_rate: 1e-6, run_name: "1e-3", report_to: [none], hub_token: null,
  chat_template_kwargs: {enable_thinking: false}, max_steps: 5}
"""


def test_dump_and_back_is_the_same_configuration():
    config = make_config(parse_yaml(AWKWARD))
    text = dump_yaml(config.model_dump(mode="json"))
    assert make_config(parse_yaml(text)) == config
    assert text.startswith("method: gar-grpo\nvariant: paper-thresholds\nseed: 3\n")


def test_make_config_reports_all_faults_at_once():
    reward = {"bonus_weight": -1, "format_penalty": 3, "bonus_wait": 1}
    with raises(ConfigError, "seed") as caught:
        make_config({"seed": "one", "reward": reward, "evaluate": {"pass_at_k": [1, "two"]}})
    lines = str(caught.value).splitlines()
    for name in ("seed", "reward.bonus_weight", "reward.format_penalty", "reward.bonus_wait"):
        assert sum(f"{name}:" in line or f"'{name}'" in line for line in lines) == 1
    assert "evaluate.pass_at_k.1: " in lines[-1]


def test_make_config_rejects():
    for values, code in (
        ({"reward": None}, "reward"),
        ({"trl": 5}, "trl"),
        ({"variant": "papr"}, "variant"),
        ({"variant": None}, "variant"),
        ({"verify": {"tags": {"think_opn": "x"}}}, "unknown-key"),
        ({"reward": {"bonus_weight": float("nan")}}, "reward.bonus_weight"),
        ({1: 2}, None),
    ):
        with raises(ConfigError, code):
            make_config(values)


# Sections.


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
