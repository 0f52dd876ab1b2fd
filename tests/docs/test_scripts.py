"""Launchers with stand-ins for programs that are not here, and `scripts/test_gpu.py` without a GPU."""

import hashlib
import itertools
import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from accelerate.commands.launch import launch_command_parser
from trl.scripts.vllm_serve import ScriptArguments, build_command

import gar.train.run
from gar.cli.main import main
from gar.config import make_config, read_preset
from gar.integrations.slime.settings import SLIME_HOOKS, read_shaping
from gar.models.embedded import load_embedded
from tests.docs.pages import ROOT
from tests.engines.rollouts import make_arguments
from tests.support.processes import completed, wait_until


def started(
    script: str, *arguments: str, folder: Path, programs: dict[str, str], **variables: str
) -> dict[str, list[str]]:
    """By stand-in: the GPUs that it sees and its arguments, when the launcher runs."""
    (folder / "bin").mkdir()
    for name, line in programs.items():
        note = f'printf "%s\\n" "$CUDA_VISIBLE_DEVICES" "$@" > {folder}/{name}.txt'
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{line.format(folder)}\n{note}\n")
        (folder / "bin" / name).chmod(0o755)
    environment = os.environ | variables | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    command = ["bash", str(ROOT / "scripts" / script), *arguments]
    done = completed(command, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {path.stem: path.read_text().splitlines() for path in folder.glob("*.txt")}


@pytest.mark.parametrize(("mode", "size", "num_gpus"), [("colocate", "8B", 8), ("server", "4B", 4)])
def test_trl_vllm_script_trains_the_preset_in_shards_and_serves_as_trl_would(
    tmp_path, monkeypatch, mode, size, num_gpus
):
    waits = 'case "$*" in *vllm_server_port*) until [ -s {0}/vllm.txt ]; do sleep 0.01; done ;; esac'
    programs = {"vllm": "", "accelerate": waits}
    extra = ("--trl.max_steps", "3")
    found = started("trl_vllm_qwen3.sh", mode, *extra, folder=tmp_path, programs=programs, SIZE=size)
    gpus, *words = found["accelerate"]
    launch = launch_command_parser().parse_args(words[1:])
    assert (launch.module, launch.training_script) == (True, "gar")
    assert launch.num_processes == num_gpus == len(gpus.split(","))
    assert (launch.use_deepspeed, launch.zero_stage, launch.mixed_precision) == (True, 3, "bf16")
    assert launch.zero3_save_16bit_model == "true"
    told = []
    monkeypatch.setattr(gar.train.run, "train", lambda config, **_: told.append(config))
    monkeypatch.setattr("gar.train.checks.check_before_loading", lambda config: None)  # its data are not here
    assert main(launch.training_script_args) == 0

    name = f"paper-qwen3-{size.lower()}"
    preset = make_config(read_preset(name), source=name)
    in_float32 = {"trl": {}, "model": preset.model.model_copy(update={"dtype": "auto"})}
    assert told[0].model_copy(update={"trl": {}}) == preset.model_copy(update=in_float32)
    changed = {name: value for name, value in told[0].trl.items() if preset.trl.get(name) != value}
    assert (changed.pop("optim"), changed.pop("optim_args")) == ("adamw_torch_fused", None)
    assert (changed.pop("max_steps"), changed.pop("gradient_accumulation_steps")) == (3, 256 // num_gpus)
    assert all(name.startswith("vllm_") for name in changed)
    assert (told[0].trl["use_vllm"], told[0].trl["vllm_mode"]) == (True, mode)

    assert ("vllm" in found) == (mode == "server")
    if mode == "server":
        gpus, *words = found["vllm"]
        command = build_command(
            ScriptArguments(model=f"Qwen/Qwen3-{size}-Base", tensor_parallel_size=4, max_model_len=5120)
        )
        assert (gpus, words[:2]) == ("4,5,6,7", ["serve", "Qwen/Qwen3-4B-Base"])
        pairs = set(itertools.pairwise(command))  # of TRL's own deprecated launcher, with its defaults
        assert set(zip(words[2::2], words[3::2], strict=True)) <= pairs
        assert {"--weight-transfer-config", "--logprobs-mode", "--max-logprobs"} <= set(command) & set(words)


def test_the_wheel_is_tried_on_no_interpreter_if_one_does_not_start(tmp_path):
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho 'version 3.12 is not chosen' >&2\nexit 127\n")
    shim.chmod(0o755)
    done = completed(["bash", str(ROOT / "scripts/test_install.sh"), sys.executable, str(shim)])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"{shim}: expected a Python from 3.11 that starts"


def slime_arguments(folder: Path, size: str) -> list[str]:
    """The arguments with which slime's launcher starts `train.py`. Its files are in `folder`."""
    for name in ("slime/scripts/models", "Qwen", "Qwen_dist", "Megatron"):
        (folder / name).mkdir(parents=True)
    (folder / f"slime/scripts/models/qwen3-{size}.sh").write_text("MODEL_ARGS=(--num-layers 36)\n")
    for name in ("slime/train.py", "rows.jsonl", "held-out.jsonl"):
        (folder / name).touch()
    programs = {  # Ray starts a job in the folder where `ray start` ran
        "ray": 'case $1 in start) pwd > {0}/cwd ;; job) cd "$(cat {0}/cwd)"; '
        'while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;; esac',
        "python3": '[ -f "$1" ] || {{ echo "no $1 in $PWD" >&2; exit 2; }}',
    }
    given = {
        "SLIME": "slime", "MODEL": "Qwen", "MODEL_DIST": "Qwen_dist", "MEGATRON": "Megatron", "DATA": "rows.jsonl",
        "EVAL": "held-out.jsonl", "SAVE": "saved", "SIZE": size,
    }  # fmt: skip
    return started("slime_qwen3.sh", folder=folder, programs=programs, **given)["python3"]


@pytest.mark.parametrize("size", ["4B", "8B"])
def test_slime_script_starts_a_job_that_finds_its_files_and_that_gar_takes(tmp_path, size):
    words = slime_arguments(tmp_path, size)
    flags = dict(itertools.pairwise(words))
    assert words[words.index("math-500") + 1] == str(tmp_path / "held-out.jsonl")
    files = {"hf-checkpoint": "Qwen", "ref-load": "Qwen_dist", "prompt-data": "rows.jsonl", "load": "saved"}
    for flag, name in (files | {"save": "saved", "custom-config-path": "saved/gar.yaml"}).items():
        assert flags[f"--{flag}"] == str(tmp_path / name)
    assert flags["--num-layers"] == "36"
    hooks = {name: flags["--" + name.replace("_", "-")] for name in SLIME_HOOKS}
    settings = yaml.safe_load(Path(flags["--custom-config-path"]).read_text())
    read_shaping(make_arguments(**hooks, **settings))


SCRIPT = ROOT / "scripts" / "test_gpu.py"
PARTS = ("packages", "core", "training", "model", "demo", "smollm2", "step-8b", "step-4b", "head", "scale")


def make_wheel(folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "nothing-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("nothing.py", "")
        wheel.writestr("nothing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: nothing\nVersion: 1.0\n")
        wheel.writestr("nothing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("nothing-1.0.dist-info/RECORD", "")


def make_parts(folder: Path) -> None:
    """As `scripts/gpu_wheels.sh`, of the embedded model."""
    model, tokenizer = load_embedded()
    model.save_pretrained(folder / "whole")
    tokenizer.save_pretrained(folder / "whole")
    with zipfile.ZipFile(folder / "model.whl", "w") as archive:
        for path in (folder / "whole").iterdir():
            archive.write(path, path.name)
    whole = (folder / "model.whl").read_bytes()
    for number, start in enumerate(range(0, len(whole), 2**20)):
        (folder / f"part-{number:02}").write_bytes(whole[start : start + 2**20])
    (folder / "SHA256").write_text(f"{hashlib.sha256(whole).hexdigest()}  model.whl\n")
    (folder / "model.whl").unlink()


@pytest.mark.slow
def test_the_whole_script_is_rehearsed(tmp_path):
    make_wheel(tmp_path / "wheels")
    make_parts(tmp_path / "model")
    told = {"DEVICE": "cpu", "OUT": tmp_path / "out", "WHEELS": tmp_path / "wheels", "MODEL_PARTS": tmp_path / "model"}
    environment = os.environ | {name: str(value) for name, value in told.items()}
    done = completed([sys.executable, SCRIPT], env=environment, cwd=tmp_path, seconds=4800)
    found = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert done.returncode == 0, (done.stdout, [log.read_text()[-3000:] for log in (tmp_path / "out").glob("*.log")])
    assert {part["name"]: part["status"] for part in found["parts"]} == dict.fromkeys(PARTS, "ok")
    assert all(part["rows"] and part["found"] for part in found["parts"])
    by_name = {part["name"]: part["found"] for part in found["parts"]}
    for name, number in (("core", 40), ("training", 10)):
        assert {test["status"] for test in by_name[name]} == {"passed"}
        assert len(by_name[name]) >= number
    assert [len(by_name[name]) for name in ("demo", "smollm2")] == [2, 2]
    assert {"torch", "transformers"} < set(found["versions"])
    table = (tmp_path / "out" / "gpu.md").read_text()
    assert [line.split("**")[1] for line in table.splitlines() if line.startswith("| **")] == list(PARTS)
    assert all(text in table for text in ("time/update_seconds", "GAR's share", "beside the arguments", "1 - cos"))


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setenv("DEVICE", "cpu")
    import test_gpu

    return test_gpu


def alive(pid: int) -> bool:
    """Whether a process runs, which one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_part_ends_at_its_limit_and_counts_if_it_has_done_enough(script, tmp_path):
    """Its children end with it. A command that fails leaves out the next."""
    started = tmp_path / "started"
    waits = ["bash", "-c", f"sleep 600 & echo $! > {started}; wait"]
    with open(tmp_path / "log", "w") as log:

        def ended(*commands, seconds=600.0, **options):
            part = script.Part("part", seconds, list(commands), lambda: 3, list, **options)
            return script.run(part, tmp_path, seconds, log)

        assert ended(["true"], ["true"]) == ("ok", "")
        assert ended(waits, seconds=2) == ("timeout", "ended after 2 s")
        assert wait_until(lambda: not alive(int(started.read_text())))
        assert ended(waits, seconds=2, enough=lambda found: found == 3) == ("ok", "")
        status, reason = ended(["bash", "-c", "exit 3"], ["touch", "reached"])
        assert (status, reason.partition(" ended ")[2]) == ("failed", "with 3: see its log")
        assert not (tmp_path / "reached").exists()
        assert ended(["touch", "reached"], seconds=0) == ("timeout", "no time was left")
        assert ended(["true"], needs=tmp_path / "absent")[0] == "skipped"
