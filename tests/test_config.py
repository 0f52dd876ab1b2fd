"""Configurations: what goes over what, what is rejected and in which words, and that nothing is lost on the way."""

import re
from pathlib import Path
from typing import Any

import pytest

from gar.config import (
    dump_config,
    make_config,
    merge,
    parse_yaml,
    preset_names,
    read_config,
    read_preset,
)
from gar.errors import ConfigError
from gar.settings import AdvantageSettings

CONFIGS = sorted((Path(__file__).parent.parent / "src" / "gar" / "configs").glob("*.yaml"))


def refusal(values: Any, source: str = "configs/demo.yaml") -> str:
    with pytest.raises(ConfigError) as caught:
        make_config(values, source=source)
    return str(caught.value)


# The files that ship with the package.


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_make_config_accepts_every_file_in_configs(path):
    config = make_config(read_config(path), source=str(path))
    assert config == make_config(read_preset(path.stem))
    assert make_config(parse_yaml(dump_config(config))) == config


def test_preset_names_are_the_files_in_configs():
    assert preset_names() == [path.stem for path in CONFIGS]
    assert "demo" in preset_names()  # `gar --help` starts with it


# Defaults, variant, file.


def test_make_config_puts_the_variant_over_the_defaults_and_the_values_over_the_variant():
    assert make_config({}).signal.activation_threshold == 0.0
    thresholds = make_config({"variant": "paper-thresholds"})
    assert (thresholds.signal.activation_threshold, thresholds.signal.anchor_keep_fraction) == (0.05, 0.7)
    own = make_config({"variant": "paper-thresholds", "signal": {"activation_threshold": 0.1}})
    assert (own.signal.activation_threshold, own.signal.anchor_keep_fraction) == (0.1, 0.7)


@pytest.mark.parametrize("variant", ["paper", "paper-thresholds"])
def test_variant_paper_normalizes_as_equation_12(variant):
    # Population deviation and eps 1e-6, not the engine's own: K 16 with 5 right gives the paper's 1.4832.
    advantage = make_config({"variant": variant}).advantage
    assert advantage == AdvantageSettings(ddof=0, eps=1e-6)
    assert make_config({"advantage": {"ddof": None, "eps": None}}).advantage == AdvantageSettings()


def test_merge_goes_into_sections_and_replaces_everything_else():
    base = {"a": {"x": 1, "y": [1, 2]}, "b": 1}
    assert merge(base, {"a": {"y": [3]}, "c": {"z": 0}}) == {"a": {"x": 1, "y": [3]}, "b": 1, "c": {"z": 0}}
    assert merge(base, {"a": None, "b": {"w": 1}}) == {"a": None, "b": {"w": 1}}
    assert base == {"a": {"x": 1, "y": [1, 2]}, "b": 1}


# YAML.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("-2.5e-6", -2.5e-6),
        ("7", 7),
        ("no", "no"),  # as in `save_strategy: no`; YAML 1.1 reads False
        ("2026-11-21", "2026-11-21"),
        ("12e4x", "12e4x"),
        ("{enable_thinking: false}", {"enable_thinking": False}),
        ("", None),
    ],
)
def test_parse_yaml_reads_scalars_as_yaml_1_2(text, value):
    found = parse_yaml(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("reward: [1, 2", "expected ',' or '\\]', but got '<stream end>' in line 1"),
        (
            "reward:\n  bonus_weight: 1\nreward:\n  correct_reward: 2\n",
            'found duplicate key "reward" .* in line 3, column 1',
        ),
        ("reward: {bonus_weight: 1, bonus_weight: 2}", 'found duplicate key "bonus_weight"'),
        ("a: b: c", "mapping values are not allowed here"),
        ("!!python/object/apply:os.system [true]", "could not determine a constructor"),
    ],
)
def test_parse_yaml_says_what_is_wrong_and_where(text, words):
    with pytest.raises(ConfigError, match=rf"^run\.yaml: not valid YAML: .*{words}") as caught:
        parse_yaml(text, "run.yaml")
    assert "\n" not in str(caught.value)


def test_read_config_refuses_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"nosuch\.yaml: cannot read the configuration: .*No such file"):
        read_config(tmp_path / "nosuch.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"method: gr\xfcn")
    with pytest.raises(ConfigError, match=r"latin\.yaml: cannot read the configuration: .*codec can't decode"):
        read_config(tmp_path / "latin.yaml")


def test_dump_config_and_back_is_the_same_configuration():
    config = make_config(
        {
            "variant": "paper-thresholds",
            "seed": 3,
            "model": {"path": "no", "revision": "123e456"},
            "adapter": {"rank": 8, "target_modules": ["q_proj", "1e3"]},
            "data": {"anchor_fields": ["solution", "1"]},
            "evaluate": {"pass_at_k": [1, 8]},
            "records": {"name": "2026-11-21"},
            "trl": {
                "save_strategy": "no",
                "learning_rate": 1e-6,
                "run_name": "1e-3",
                "report_to": ["none"],
                "chat_template_kwargs": {"enable_thinking": False},
                "max_steps": 5,
                "hub_token": None,
            },
        }
    )
    text = dump_config(config)
    assert make_config(parse_yaml(text)) == config
    assert text.startswith("method: gar-grpo\nvariant: paper-thresholds\nseed: 3\n")


# Refusals.


def test_make_config_suggests_the_nearest_key():
    assert (
        refusal({"reward": {"bonus_wait": 1}})
        == "configs/demo.yaml: unknown key 'reward.bonus_wait'. Did you mean 'bonus_weight'?"
    )
    assert refusal({"rewards": {}}) == "configs/demo.yaml: unknown key 'rewards'. Did you mean 'reward'?"
    assert refusal({"verify": {"tags": {"think_opn": "x"}}}) == (
        "configs/demo.yaml: unknown key 'verify.tags.think_opn'. Did you mean 'think_open'?"
    )


def test_make_config_reports_all_faults_at_once():
    lines = refusal(
        {
            "seed": "one",
            "reward": {"bonus_weight": -1, "format_penalty": 3, "bonus_wait": 1},
            "evaluate": {"pass_at_k": [1, "two"]},
            "verify": {"tags": {"think_close": "<think>"}},
        }
    ).splitlines()
    assert lines == [
        "configs/demo.yaml: seed must be a valid integer, unable to parse string as an integer, got 'one'",
        "configs/demo.yaml: verify.tags: '<think>' is part of another tag, so one could not be told from the other, "
        "got {'think_close': '<think>'}",
        "configs/demo.yaml: reward.bonus_weight must be greater than or equal to 0, got -1",
        "configs/demo.yaml: reward.format_penalty must be less than or equal to 0, got 3",
        "configs/demo.yaml: unknown key 'reward.bonus_wait'. Did you mean 'bonus_weight'?",
        "configs/demo.yaml: evaluate.pass_at_k.1 must be a valid integer, unable to parse string as an integer, got "
        "'two'",
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, 2], "run.yaml: expected a mapping of settings, got list"),
        ("grpo", "run.yaml: expected a mapping of settings, got str"),
        ({"reward": None}, "run.yaml: reward: expected a section of settings, got None."),
        ({"trl": 5}, "run.yaml: trl must be a valid dictionary, got 5"),
        ({"variant": "papr"}, "run.yaml: unknown variant 'papr', expected one of paper, paper-thresholds"),
        ({"variant": None}, "run.yaml: unknown variant 'None'"),
        ({"advantage": {"zzz": 1}}, "run.yaml: unknown key 'advantage.zzz'. Known here: estimator, ddof, "),
        (
            {"method": "anchor-shufled"},
            "run.yaml: method: unknown value 'anchor-shufled', expected one of grpo, dr-grpo, ",
        ),
        (
            {"verify": {"format": "box"}},
            "run.yaml: verify.format: unknown value 'box', expected one of think-answer, boxed, none. "
            "Did you mean 'boxed'?",
        ),
        (
            {"adapter": {"alpha": 16}},
            "run.yaml: adapter: alpha without rank would train no adapter; set rank, for example 16, got {'alpha': 16}",
        ),
        ({"reward": {"bonus_weight": float("nan")}}, "run.yaml: reward.bonus_weight must be a finite number, got nan"),
        ({1: 2}, "run.yaml: 1: Keys should be strings"),
    ],
)
def test_make_config_refuses(values, words):
    assert re.match(re.escape(words), refusal(values, "run.yaml"))
