"""Launchers whose programs are not here: stand-ins note what they are given."""

import itertools
import os
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from accelerate.commands.launch import launch_command_parser
from trl import GRPOConfig
from trl.scripts.vllm_serve import ScriptArguments, build_command

import gar.train.run
from gar.cli.main import main
from gar.config import RunConfig, make_config, read_preset
from gar.integrations.slime.settings import read_shaping
from gar.rules import SLIME_HOOKS
from tests.docs.pages import ROOT
from tests.engines.rollouts import make_arguments


def put_program(folder: Path, name: str, script: str) -> None:
    """A stand-in for a program."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def run_script(name: str, *arguments: str, programs: Path, cwd: Path, **variables: str) -> None:
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    command, environment = ["bash", str(ROOT / "scripts" / name), *arguments], os.environ | variables | path
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def started(folder: Path, *arguments: str, **variables: str) -> dict[str, tuple[str, list[str]]]:
    """What the launcher for TRL and vLLM starts: by program, the GPUs it sees and its arguments."""
    waits = f"until [ -s {folder}/vllm.txt ]; do sleep 0.01; done" if "server" in arguments else ""
    for program, line in (("vllm", ""), ("accelerate", waits)):
        note = f'printf "%s\\n" "$CUDA_VISIBLE_DEVICES" "$@" > {folder}/{program}.txt'
        put_program(folder, program, f"{line}\n{note}")
    run_script("trl_vllm_qwen3_4b.sh", *arguments, programs=folder, cwd=ROOT, **variables)
    notes = {path.stem: path.read_text().splitlines() for path in folder.glob("*.txt")}
    return {program: (gpus, words) for program, (gpus, *words) in notes.items()}


def trained(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, RunConfig]:
    """The number of processes, and what each is told, after the parsers of accelerate and of `gar train`."""
    launch = launch_command_parser().parse_args(words[1:])
    told: list[RunConfig] = []
    monkeypatch.setattr(gar.train.run, "train", lambda config, **_: told.append(config))
    monkeypatch.setattr("gar.train.checks.check_before_loading", lambda config: None)  # its data are not here
    assert launch.module
    assert launch.training_script == "gar"
    assert main(launch.training_script_args) == 0
    assert set(told[0].trl) <= {field.name for field in fields(GRPOConfig)}
    return launch.num_processes, told[0]


@pytest.mark.parametrize(("mode", "num_gpus"), [("colocate", 8), ("server", 4)])
def test_trl_vllm_script_trains_the_preset_with_that_many_responses_a_step(tmp_path, monkeypatch, mode, num_gpus):
    gpus, words = started(tmp_path, mode, "--trl.max_steps", "3")["accelerate"]
    num_processes, config = trained(words, monkeypatch)
    preset = make_config(read_preset("paper-qwen3-4b"), source="paper-qwen3-4b")
    assert config.model_copy(update={"trl": {}}) == preset.model_copy(update={"trl": {}})
    changed = {name: value for name, value in config.trl.items() if preset.trl.get(name) != value}
    assert changed.pop("max_steps") == 3
    assert changed.pop("gradient_accumulation_steps") == 256 // num_gpus
    assert all(name.startswith("vllm_") for name in changed)
    assert config.trl["use_vllm"] is True
    assert config.trl["vllm_mode"] == mode
    assert num_processes == num_gpus == len(gpus.split(","))


def test_trl_vllm_script_serves_as_trl_would(tmp_path):
    found = started(tmp_path, "server", SERVER_GPUS="5,7", TRAIN_GPUS="0,1")
    gpus, words = found["vllm"]
    assert (gpus, found["accelerate"][0]) == ("5,7", "0,1")
    command = build_command(ScriptArguments(model="Qwen/Qwen3-4B-Base", tensor_parallel_size=2, max_model_len=5120))
    pairs = set(itertools.pairwise(command))  # of TRL's own deprecated launcher, with its defaults
    assert words[:2] == ["serve", "Qwen/Qwen3-4B-Base"]
    assert set(zip(words[2::2], words[3::2], strict=True)) <= pairs
    imposed = {"--weight-transfer-config", "--logprobs-mode", "--max-logprobs"}
    assert imposed <= set(command)
    assert imposed <= set(words)


def ran_by_slime(folder: Path) -> list[str]:
    """The arguments of train.py, as Ray starts it: in the folder where `ray start` ran."""
    for name in ("slime/scripts/models", "bin", "Qwen", "Qwen_dist", "Megatron"):
        (folder / name).mkdir(parents=True)
    (folder / "slime/scripts/models/qwen3-4B.sh").write_text("MODEL_ARGS=(--num-layers 36)\n")
    for name in ("slime/train.py", "rows.jsonl"):
        (folder / name).touch()
    programs = {
        "ray": 'case $1 in start) pwd > {0}/started ;; job) cd "$(cat {0}/started)"; '
        'while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;; esac',
        "python3": '[ -f "$1" ] || {{ echo "no $1 in $PWD" >&2; exit 2; }}; printf "%s\\n" "$@" > {0}/arguments',
    }
    for program, line in programs.items():
        put_program(folder / "bin", program, line.format(folder))
    given = {"SLIME": "slime", "MODEL": "Qwen", "MODEL_DIST": "Qwen_dist", "MEGATRON": "Megatron", "DATA": "rows.jsonl"}
    run_script("slime_qwen3_4b.sh", programs=folder / "bin", cwd=folder, **given, SAVE="saved")
    return (folder / "arguments").read_text().splitlines()


def test_slime_script_starts_a_job_that_finds_its_files_and_that_gar_takes(tmp_path):
    words = ran_by_slime(tmp_path)
    flags = dict(itertools.pairwise(words))
    for flag, name in {
        "--hf-checkpoint": "Qwen", "--ref-load": "Qwen_dist", "--prompt-data": "rows.jsonl", "--load": "saved",
        "--save": "saved", "--custom-config-path": "saved/gar.yaml",
    }.items():  # fmt: skip
        assert flags[flag] == str(tmp_path / name)
    assert flags["--num-layers"] == "36"
    hooks = {name: flags["--" + name.replace("_", "-")] for name in SLIME_HOOKS}
    settings = yaml.safe_load(Path(flags["--custom-config-path"]).read_text())
    read_shaping(make_arguments(**hooks, **settings))
