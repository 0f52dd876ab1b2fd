"""`gar train`: from a command line to a configuration, or to an error that names the flag."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import gar.records
import gar.train.run
from gar.cli.main import main
from gar.config import RunConfig, make_config, read_preset
from gar.integrations.trl.fields import field_types

Parse = Callable[..., RunConfig]


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Parse:
    """The configuration that `gar train ARGUMENTS` would train with."""
    seen: list[RunConfig] = []
    monkeypatch.setattr(gar.train.run, "train", lambda config, *, command: seen.append(config))

    def parse(*arguments: str) -> RunConfig:
        assert main(["train", *arguments]) == 0
        return seen[-1]

    return parse


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text("seed: 3\nreward:\n  bonus_weight: 0.25\ntrl:\n  learning_rate: 1e-3\n  max_steps: 7\n")
    return path


def rejected(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said of a command line that is explained and rejected."""
    assert main(["train", *arguments]) == 1
    return capsys.readouterr().err


def misused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is printed for a command line that is wrong usage, without line breaks and boxes."""
    try:
        status = main(["train", *arguments])
    except SystemExit as ended:  # of tyro
        status = ended.code
    assert status == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return " ".join(captured.err.replace("│", " ").split())


# What goes over what.


def test_train_flags_go_over_the_file_and_the_file_over_the_variant(parse, file):
    assert parse(str(file)).reward.bonus_weight == 0.25
    config = parse(str(file), "--reward.bonus_weight", "0.75", "--variant", "paper-thresholds")
    assert (config.reward.bonus_weight, config.seed, config.signal.activation_threshold) == (0.75, 3, 0.05)
    assert config.variant == "paper-thresholds"
    file.write_text("variant: paper-thresholds\nsignal: {activation_threshold: 0.0}\n")
    config = parse(str(file), "--reward.correct_reward", "2")
    assert (config.signal.activation_threshold, config.reward.correct_reward) == (0.0, 2.0)
    assert config.signal.anchor_keep_fraction == 0.7
    file.write_text("variant: paper-thresholds\n")
    assert parse(str(file), "--variant=paper") == make_config({})


def test_train_preset_is_the_file_of_that_name(parse):
    assert parse("--preset", "demo") == make_config(read_preset("demo"))
    assert parse("--preset=demo", "--seed=5").seed == 5


def test_train_parses_every_kind_of_setting(parse):
    config = parse(
        "--method", "grpo",
        "--reward.format_penalty", "-1.5",
        "--reward.clip", "False",
        "--signal.max_tokens", "None",
        "--signal.limit-from=start",
        "--data.anchor_fields", "solution", "reasoning",
        "--evaluate.pass_at_k", "1", "8",
        "--model.revision", "123e4",
        "--adapter.rank", "8", "--adapter.target-modules", "q_proj", "v_proj",
        "--verify.tags.think_open", "<|think|>",
    )  # fmt: skip
    assert (config.method, config.reward.format_penalty, config.reward.clip) == ("grpo", -1.5, False)
    assert (config.signal.max_tokens, config.signal.limit_from) == (None, "start")
    assert (config.data.anchor_fields, config.evaluate.pass_at_k) == (("solution", "reasoning"), (1, 8))
    assert (config.model.revision, config.verify.tags.think_open) == ("123e4", "<|think|>")
    assert (config.adapter.rank, config.adapter.target_modules) == (8, ("q_proj", "v_proj"))


# Fields of TRL.


@pytest.mark.parametrize(
    ("arguments", "trl"),
    [
        (["--trl.learning-rate", "1e-5"], {"learning_rate": 1e-5}),
        (["--trl.bf16", "false"], {"bf16": False}),
        (["--trl.save_strategy", "no"], {"save_strategy": "no"}),
        (["--trl.optim=adamw_torch", "--trl.max_steps", "3"], {"optim": "adamw_torch", "max_steps": 3}),
        (["--trl.run_name", "null"], {"run_name": None}),
        (["--trl.chat_template_kwargs", "{a: b=c}"], {"chat_template_kwargs": {"a": "b=c"}}),
        (["--trl.max_steps", "3", "--trl.max_steps", "4"], {"max_steps": 4}),
    ],
)
def test_train_reads_trl_fields_as_yaml(parse, arguments, trl):
    config = parse(*arguments, "--seed", "1")
    assert config.trl == trl
    assert {name: type(value) for name, value in config.trl.items()} == {name: type(trl[name]) for name in trl}
    assert config.seed == 1


def test_train_trl_flags_go_over_the_file_and_keep_the_rest_of_it(parse, file):
    config = parse(str(file), "--trl.max_steps", "9", "--trl.beta=0.1")
    assert config.trl == {"learning_rate": 1e-3, "max_steps": 9, "beta": 0.1}
    file.write_text("trl:\n  chat_template_kwargs: {a: [], 1: null}\n  run_name: null\n")
    assert parse(str(file)).trl == {"chat_template_kwargs": {"a": [], 1: None}, "run_name": None}


@pytest.mark.parametrize(
    ("short", "full"),
    [
        (["--learning-rate", "1e-5", "--max_steps=3"], ["--trl.learning_rate", "1e-5", "--trl.max_steps", "3"]),
        (["--steps", "3"], ["--trl.max_steps", "3"]),
        (["--trl.log_completions", "--seed", "3"], ["--trl.log_completions", "true", "--seed", "3"]),
        (["--model_name_or_path", "embedded"], ["--model.path", "embedded"]),
        (["--lora_r", "8", "--use_peft", "--lora_alpha=4"], ["--adapter.rank", "8", "--adapter.alpha", "4"]),
    ],
)
def test_train_reads_the_names_of_trl_and_hugging_face(parse, short, full):
    assert parse(*short) == parse(*full)


# Resume and dry run.


@pytest.mark.parametrize(("flags", "allow_config_change"), [([], False), (["--allow-config-change"], True)])
def test_train_resume_hands_over_the_folder(monkeypatch, flags, allow_config_change):
    seen: list[Any] = []
    monkeypatch.setattr(gar.records.RunFolder, "open", lambda path: None)
    monkeypatch.setattr(gar.train.run, "resume", lambda path, **options: seen.append((path, options)))
    assert main(["train", "--resume", "runs/one", *flags]) == 0
    assert seen == [("runs/one", {"allow_config_change": allow_config_change})]


def test_train_takes_its_settings_from_one_place(capsys, file):
    for arguments, named in (
        (["--resume", "runs/one", "--trl.max_steps=3"], "--trl.max_steps=3"),
        (["--resume", "runs/one", "--preset", "demo"], "a second source"),
        ([str(file), "--resume", "runs/one"], "a second source"),
    ):
        error = rejected(capsys, *arguments)
        assert error.startswith("gar train: --resume takes every setting from the run folder")
        assert named in error
    assert "got both" in rejected(capsys, str(file), "--preset", "demo")
    assert "--allow-config-change needs --resume" in rejected(capsys, "--preset", "demo", "--allow-config-change")


def test_train_dry_run_does_not_train(monkeypatch, parse):
    seen: list[RunConfig] = []
    monkeypatch.setattr(gar.train.run, "train", lambda *args, **kwargs: pytest.fail("trained"))
    monkeypatch.setattr(gar.train.run, "dry_run", seen.append)
    assert main(["train", "--preset", "demo", "--dry-run", "--seed", "4"]) == 0
    assert [config.seed for config in seen] == [4]


def test_train_records_the_command_line(monkeypatch):
    seen: list[list[str]] = []
    monkeypatch.setattr(gar.train.run, "train", lambda config, *, command: seen.append(command))
    main(["train", "--preset", "demo", "--trl.max_steps=1"])
    assert seen == [["gar", "train", "--preset", "demo", "--trl.max_steps=1"]]


# Mistakes.


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("reward: {bonus_wait: 1}", "unknown key 'reward.bonus_wait'. Did you mean 'bonus_weight'?"),
        ("[1, 2]", "expected a mapping of settings, got list"),
        ("trl: 5", "trl must be a valid dictionary, got 5"),
        ("variant: papr", "unknown variant 'papr', expected one of paper"),
    ],
)
def test_train_names_the_file_of_a_wrong_setting(capsys, file, content, words):
    file.write_text(content)
    assert rejected(capsys, str(file), "--trl.max_steps", "1").startswith(f"gar train: {file}: {words}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--reward.bonus_wait", "1"], "--reward.bonus_weight FLOAT"),
        (["--frobnicate"], "Unrecognized options: --frobnicate"),
        (["--lerning_rate", "1"], "--trl.learning_rate YAML"),
        (["--data-source", "x.jsonl"], "--data.source STR"),
        (["--trl.lerning_rate", "1e-5"], "--trl.learning_rate YAML"),
        (["--trl.reward_weights=[1, 2"], "Error parsing --trl.reward_weights: YAML: not valid YAML: expected ','"),
        (["--reward.bonus_weight", "-1"], "bonus_weight Input should be greater than or equal to 0"),
        (
            ["--reward.bonus_weight", "much"],
            "Error parsing --reward.bonus_weight: could not convert string to float: 'much'",
        ),
        (["--reward.clip", "maybe"], "invalid choice 'maybe' for argument '--reward.clip'."),
        (["--method", "gar"], "invalid choice 'gar' for argument '--method'."),
        (["--trl.max_steps"], "Missing value for argument '--trl.max_steps'."),
        (["--dry-run", "run.yaml"], "Unrecognized options: run.yaml"),
    ],
)
def test_train_refuses_a_wrong_flag_as_wrong_usage(capsys, arguments, words):
    assert words in misused(capsys, *arguments)


# Help.


def settings_of(model: type[BaseModel], prefix: str = "--") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings_of(field.annotation, f"{prefix}{name}.")
        elif name != "trl":
            yield prefix + name


def test_train_help_all_explains_every_setting_and_gives_its_default(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "110")  # more gives several columns of boxes
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help-all"])
    assert ended.value.code == 0
    explained: dict[str, str] = {}
    flag = ""
    for line in capsys.readouterr().out.splitlines():
        words = line.strip(" │").split()
        if words and words[0].startswith("--"):
            flag = words[0]
        elif flag:
            explained[flag] = " ".join([explained.get(flag, ""), *words]).strip()
    names = list(settings_of(RunConfig))
    assert len(names) > 50
    for name in names:
        assert not explained[name].startswith("(default"), f"{name} is not explained"
        assert "(default: " in explained[name]


def test_train_help_shows_the_settings_that_people_change(capsys):
    assert main(["train", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = [re.match(r"  --([\w.]+) (?! )(\S+) +[^ ]", line) for line in lines]
    shown = {match[1]: match[2] for match in found if match and match[2] not in ("NAME", "RUN")}
    assert len(shown) == 30
    settings = {name.removeprefix("--") for name in settings_of(RunConfig)} | {f"trl.{name}" for name in field_types()}
    assert shown.keys() <= settings
    assert (shown["reward.bonus_weight"], shown["trl.learning_rate"], shown["trl.save_steps"]) == (
        "0.5",
        "1e-06",
        "100",
    )


def test_train_help_shows_the_presets_and_the_values_of_the_one_chosen(capsys):
    assert main(["train", "--preset", "demo", "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"a configuration that ships with gar:\n{' ' * 21}bench, demo, " in shown
    assert "--evaluate.sources test harder" in shown
    assert "--trl.max_steps 100 " in shown
