"""`gar train`: from a command line to a configuration, or to an error that names the flag."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gar.train.resume
import gar.train.run
from gar.cli.arguments import ALIASES
from gar.cli.main import main
from gar.config import RunConfig, make_config, read_preset
from gar.integrations.trl.fields import known_fields
from gar.records.dotted import leaves

Parse = Callable[..., RunConfig]
SETTINGS = {f"--{name}" for name, _ in leaves(RunConfig().model_dump()) if name != "trl"}
ALL = SETTINGS | {f"--trl.{name}" for name in known_fields()}


@pytest.fixture
def parse_train(monkeypatch: pytest.MonkeyPatch) -> Parse:
    """The configuration that `gar train ARGUMENTS` would train with."""
    seen: list[RunConfig] = []
    monkeypatch.setattr(gar.train.run, "train", lambda config, **_: seen.append(config))

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
    assert main(["train", *arguments]) == 1
    return capsys.readouterr().err


def test_train_flags_go_over_the_file_and_the_file_over_the_variant(parse_train, file):
    config = parse_train(
        str(file), "--reward.correct_reward", "2", "--variant", "paper-thresholds", "--trl.max_steps=9"
    )
    assert (config.reward.bonus_weight, config.reward.correct_reward, config.seed) == (0.25, 2.0, 3)
    assert (config.variant, config.signal.activation_threshold) == ("paper-thresholds", 0.05)
    assert config.trl == {"learning_rate": 1e-3, "max_steps": 9}
    file.write_text("variant: paper-thresholds\nsignal: {activation_threshold: 0.0}\ntrl: {run_name: null}\n")
    config = parse_train(str(file), "--reward.bonus_weight", "0.75")
    assert (config.signal.activation_threshold, config.signal.expert_keep_fraction) == (0.0, 0.7)
    assert (config.reward.bonus_weight, config.trl) == (0.75, {"run_name": None})
    file.write_text("variant: paper-thresholds\n")
    assert parse_train(str(file), "--variant=paper") == make_config({})
    demo = make_config(read_preset("demo"))
    assert parse_train("--preset=demo", "--seed=5") == demo.model_copy(update={"seed": 5})


def test_train_parses_every_kind_of_setting(parse_train):
    config = parse_train(
        "--method", "grpo",
        "--reward.format_penalty", "-1.5",
        "--reward.clip", "False",
        "--signal.max_tokens", "None",
        "--signal.limit-from=start",
        "--data.expert_fields", "solution", "reasoning",
        "--evaluate.pass_at_k", "1", "8",
        "--model.revision", "123e4",
        "--adapter.rank", "8", "--adapter.target-modules", "q_proj", "v_proj",
        "--verify.tags.think_open", "<|think|>",
        "--trl.learning-rate", "1e-5", "--trl.bf16", "false", "--trl.log_completions", "--trl.save_strategy", "no",
        "--trl.optim=adamw_torch", "--trl.run_name", "null", "--trl.chat_template_kwargs", "{a: b=c, d: [], 1: null}",
        "--trl.max_steps", "3", "--trl.max_steps", "4",
    )  # fmt: skip
    assert (config.method, config.reward.format_penalty, config.reward.clip) == ("grpo", -1.5, False)
    assert (config.signal.max_tokens, config.signal.limit_from) == (None, "start")
    assert (config.data.expert_fields, config.evaluate.pass_at_k) == (("solution", "reasoning"), (1, 8))
    assert (config.model.revision, config.verify.tags.think_open) == ("123e4", "<|think|>")
    assert (config.adapter.rank, config.adapter.target_modules) == (8, ("q_proj", "v_proj"))
    trl = {
        "learning_rate": 1e-5, "bf16": False, "log_completions": True, "save_strategy": "no", "optim": "adamw_torch",
        "run_name": None, "chat_template_kwargs": {"a": "b=c", "d": [], 1: None}, "max_steps": 4,
    }  # fmt: skip
    assert config.trl == trl
    assert {name: type(value) for name, value in config.trl.items()} == {name: type(trl[name]) for name in trl}


def test_train_names_the_flag_that_was_meant(capsys):
    for wrong, meant in (
        ("--peset", "--preset"),
        ("--resume-if-exist", "--resume-if-exists"),
        ("--dryrun", "--dry-run"),
    ):
        assert main(["train", wrong]) == 2
        assert f"unknown flag '{wrong}'. Did you mean '{meant}'?" in capsys.readouterr().err


def test_errors_about_a_whole_command_line_name_the_command(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--seed", "-1"])
    assert "Error parsing the command line of gar train: seed: Input should be" in " ".join(
        capsys.readouterr().err.replace("│", "").split()
    )


def test_train_reads_the_names_of_trl_and_hugging_face(parse_train):
    short = ["--learning-rate", "1e-5", "--steps=3", "--model_name_or_path", "embedded", "--lora_r", "8", "--use_peft"]
    full = ["--trl.learning_rate", "1e-5", "--trl.max_steps", "3", "--model.path", "embedded", "--adapter.rank", "8"]
    assert parse_train(*short, "--lora_alpha=4") == parse_train(*full, "--adapter.alpha", "4")
    assert parse_train("--records.name", "mymodel").records.name == "mymodel"  # a value is no alias
    assert {setting.partition("=")[0] for setting in ALIASES.values()} <= ALL
    assert len(ALIASES) <= 24


def test_train_takes_its_settings_from_one_place_and_hands_over_what_was_asked_for(capsys, file, monkeypatch):
    for arguments, named in (
        (["--resume", "runs/one", "--trl.max_steps=3"], "--trl.max_steps=3"),
        (["--resume", "runs/one", "--preset", "demo"], "a second source"),
        ([str(file), "--resume", "runs/one"], "a second source"),
        ([str(file), "--preset", "demo"], "not both"),
        (["--preset", "demo", "--allow-config-change"], "--resume"),
        (["--preset", "demo", "--resume-if-exists"], "--resume-if-exists needs --records.name"),
        (["--resume", "runs/one", "--resume-if-exists"], "a second source"),
    ):
        assert named in rejected(capsys, *arguments)
    seen: list[Any] = []
    monkeypatch.setattr(gar.train.resume, "unfinished_run", lambda path: None)
    monkeypatch.setattr(gar.train.run, "resume", lambda path, *, interrupts, **options: seen.append((path, options)))
    for flags in ([], ["--allow-config-change"]):
        assert main(["train", "--resume", "runs/one", *flags]) == 0
    assert seen == [("runs/one", {"allow_config_change": allowed}) for allowed in (False, True)]
    monkeypatch.setattr(
        gar.train.run, "train", lambda config, *, command, checked, **_: seen.append((command, checked))
    )
    monkeypatch.setattr(gar.train.run, "dry_run", lambda config, *, checked: seen.append((config.seed, checked)))
    assert main(["train", "--preset", "demo", "--dry-run", "--seed", "4"]) == 0
    main(["train", "--preset", "demo", "--trl.max_steps=1"])
    assert seen[2:] == [(4, True), (["gar", "train", "--preset", "demo", "--trl.max_steps=1"], True)]


def test_train_names_bfloat16_without_a_gpu_before_it_loads_trl(capsys, monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    monkeypatch.setattr("gar.cli.train._train", lambda *_: pytest.fail("TRL was loaded"))
    assert main(["train", "--preset", "demo", "--trl.bf16", "true", "--trl.use_cpu", "false"]) == 1
    assert "trl.bf16 is True and trl.use_cpu is False" in capsys.readouterr().err


def test_train_names_the_file_of_a_wrong_setting(capsys, file):
    file.write_text("reward: {bonus_wait: 1}")
    words = "unknown key 'reward.bonus_wait'. Did you mean 'bonus_weight'?"
    assert rejected(capsys, str(file), "--trl.max_steps", "1").startswith(f"gar train: {file}: {words}")
    file.write_text("[1, 2]")
    assert "expected a mapping of settings, got list" in rejected(capsys, str(file), "--variant", "paper")


def test_train_rejects_a_wrong_flag_as_wrong_usage(capsys):
    for arguments, words in (
        (["--reward.bonus_wait", "1"], "--reward.bonus_weight FLOAT"),
        (["--lerning_rate", "1"], "--trl.learning_rate YAML"),
        (["--trl.reward_weights=[1, 2"], "Error parsing --trl.reward_weights: YAML: not valid YAML: expected ','"),
        (["--reward.bonus_weight", "-1"], "bonus_weight: Input should be greater than or equal to 0"),
        (["--reward.clip", "maybe"], "invalid choice 'maybe' for argument '--reward.clip'."),
        (["--trl.warmup_ratio", "0.1"], "has no field warmup_ratio. Use trl.warmup_steps, which below 1 is a share"),
        (["--max-prompt-length=512"], "has no field max_prompt_length. Use data.max_prompt_tokens."),
        (["--dry-run", "run.yaml"], "Unrecognized options: run.yaml"),
    ):
        try:
            status = main(["train", *arguments])
        except SystemExit as ended:  # of tyro
            status = ended.code
        captured = capsys.readouterr()
        assert (status, captured.out) == (2, "")
        assert words in " ".join(captured.err.replace("│", " ").split())


def test_train_help_names_settings_that_exist_and_help_all_explains_every_one(monkeypatch, capsys):
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    named = set(re.findall(r"--[\w.]+", shown.partition("common settings:")[2].partition("presets:")[0]))
    assert len(named) == 30
    assert named <= ALL
    assert "presets: bench, demo, " in shown
    monkeypatch.setenv("COLUMNS", "110")  # more gives several columns of boxes
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help-all"])
    assert ended.value.code == 0
    explained: dict[str, str] = {}
    for line in capsys.readouterr().out.splitlines():
        words = line.strip(" │").split()
        if words and words[0].startswith("--"):
            explained[flag := words[0]] = ""
        elif explained:
            explained[flag] += " ".join(["", *words])
    for name in SETTINGS:
        assert not explained[name].startswith(" (default"), f"{name} is not explained"
        assert "(default: " in explained[name]
