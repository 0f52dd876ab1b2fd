"""Mistakes are told before anything is loaded: which sentence, how soon, and without a folder left behind."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gar.before_loading import check_before_loading
from gar.cli.main import main
from gar.config import make_config, read_preset
from gar.errors import GarError
from gar.integrations.trl.fields import unread_fields

HEAVY = {"torch", "transformers", "trl", "datasets"}


def mistakes(values: dict[str, Any]) -> str:
    with pytest.raises(GarError) as caught:
        check_before_loading(make_config(values))
    return str(caught.value)


@pytest.fixture
def rows(tmp_path: Path) -> str:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "3+4", "solution": "7", "answer": "7"}) + "\n")
    return str(tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    ("trl", "message"),
    [
        ({"max_steps": "abc"}, "trl.max_steps must be a whole number, got 'abc'"),
        ({"max_steps": 10.5}, "trl.max_steps must be a whole number, got 10.5"),
        ({"max_steps": True}, "trl.max_steps must be a whole number, got True"),
        ({"learning_rate": -1}, "trl.learning_rate must be >= 0, got -1"),
        ({"learning_rate": None}, "trl.learning_rate must be a number, got None"),
        ({"top_p": 1.5}, "trl.top_p must be > 0 and <= 1, got 1.5"),
        ({"num_generations": 1}, "trl.num_generations must be >= 2, got 1"),
        ({"bf16": "no"}, "trl.bf16 must be true or false, got 'no'"),  # a word, so true, in YAML 1.2
        ({"loss_type": "dr-grpo"}, "got 'dr-grpo'. Did you mean 'dr_grpo'?"),
        ({"report_to": "wandbb"}, "got 'wandbb'. Did you mean 'wandb'?"),
        ({"report_to": ["none", "nix"]}, "trl.report_to must be none or some of azure_ml, "),
        ({"lerning_rate": 1}, "trl.GRPOConfig has no such field. Did you mean 'trl.learning_rate'?"),
        ({"seed": 1}, "trl.seed is decided by another setting: use seed"),
    ],
)
def test_check_before_loading_refuses_fields_of_trl(trl, message):
    assert message in mistakes({"trl": trl})


@pytest.mark.parametrize(
    ("method", "trl", "message"),
    [
        ("grpo", {"teacher_update_rate": 0.1}, "trl.teacher_update_rate belongs to sdft and sdpo, but method is grpo"),
        ("sdft", {"reprompt_template": "x"}, "trl.reprompt_template belongs to sdpo, but method is sdft. Leave it out"),
        (
            "sdpo",
            {"teacher_update_rat": 1},
            "trl.SDPOConfig has no such field. Did you mean 'trl.teacher_update_rate'?",
        ),
        ("sdpo", {"teacher_update_rate": "x"}, "trl.teacher_update_rate must be a number, got 'x'"),
    ],
)
def test_check_before_loading_knows_the_fields_of_a_methods_own_trainer(method, trl, message):
    assert message in mistakes({"method": method, "trl": trl})


def test_fields_that_only_grpo_has_are_not_read_by_another_trainer():
    trl = {"learning_rate": 1e-4, "epsilon": 0.1, "vllm_gpu_memory_utilization": 0.5, "top_entropy_quantile": 0.5}
    check_before_loading(make_config({"method": "sdft", "trl": trl}))
    assert unread_fields(trl, "sdft") == ["trl.epsilon", "trl.top_entropy_quantile"]
    assert unread_fields(trl, "sdpo") == ["trl.top_entropy_quantile"]
    assert unread_fields(trl, "gar-grpo") == []


def test_check_before_loading_accepts_what_trl_does():
    numbers = {"max_steps": -1, "learning_rate": 0, "top_k": -1, "num_generations": None, "save_steps": 0.5}
    check_before_loading(make_config({"trl": {**numbers, "scale_rewards": True, "report_to": "none", "bf16": None}}))


def test_check_before_loading_names_packages_that_are_missing(monkeypatch):
    find, there = importlib.util.find_spec, ("trl", "transformers")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: find(name) if name in there else None)
    text = mistakes({"trl": {"report_to": "wandb", "use_vllm": True}, "adapter": {"rank": 8}})
    assert "trl.report_to wandb needs the package wandb, which is not installed: pip install wandb" in text
    assert "- adapter.rank needs the package peft, which is not installed: pip install peft" in text
    assert "pip install 'trl[vllm]'" in mistakes({"trl": {"use_vllm": True}})


def test_check_before_loading_compares_ks_with_samples_only_where_something_is_measured():
    check_before_loading(make_config({"evaluate": {"num_samples": 2}}))
    assert "evaluate.ks asks for pass@4" in mistakes({"evaluate": {"num_samples": 2, "sources": ["test"]}})


def test_check_before_loading_reads_the_first_row_of_a_file(rows):
    check_before_loading(make_config({"data": {"source": rows, "prompt_field": "question"}}))
    text = mistakes({"data": {"source": rows, "prompt_field": "qestion"}})
    assert "no column 'qestion', did you mean 'question'?" in text


def test_check_before_loading_tells_every_missing_thing_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = mistakes(read_preset("paper-qwen3-4b") | {"model": {"path": "no/such/model"}, "records": {"name": "a/b"}})
    lines = text.splitlines()
    command = "gar data prepare AI-MO/NuminaMath-CoT numina-10k.jsonl --num-problems 10000 --seed 0"
    assert f"- numina-10k.jsonl: no such file. Make it with: {command}" in lines
    assert "- there is no folder 'no/such/model', and this is not the form of a Hub id." in lines
    assert "- the name of a run must be one plain folder name, got 'a/b' in 'runs'" in lines
    assert lines[0] == ""


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("runs/warm-start", "python examples/warm_start.py --out runs/warm-start"),
        (
            "runs/warm-start-reduction",
            "python examples/warm_start.py --examples 1600 --other-method reduction --out runs/warm-start-reduction",
        ),
    ],
)
def test_check_before_loading_tells_how_a_warm_start_is_made(tmp_path, monkeypatch, path, command):
    monkeypatch.chdir(tmp_path)
    text = mistakes(read_preset("word-problems") | {"model": {"path": path}})
    assert text.startswith(f"no model '{path}' on this machine")
    assert text.endswith(f" Make it with: {command}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trl.max_steps", "abc"], "trl.max_steps must be a whole number, got 'abc'"),
        (["--data.source", "nix.jsonl"], "nix.jsonl: no such file."),
        (["--model.path", "embeded"], "no model 'embeded' on this machine"),
        (["--evaluate.ks", "32", "--evaluate.sources", "test"], "evaluate.ks asks for pass@32"),
        (["--resume", "nix"], "nix: no such folder."),
    ],
)
def test_train_says_it_in_one_line_and_leaves_no_folder(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"gar train: {message}")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


def test_train_refuses_before_it_imports_torch(tmp_path):
    code = (
        "import sys\nfrom gar.cli.main import main\n"
        "assert main(['train', '--preset', 'demo', '--records.name', 'a/b']) == 1\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=os.environ)
    assert found.stdout == "[]\n"
