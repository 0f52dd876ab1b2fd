"""`gar compare` as a command that trains, killed, copied and started again."""

import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.faults.jobs import COMPARE

pytestmark = pytest.mark.slow  # each trains several models, in processes that import TRL
SECONDS = 300


def gar_compare(*flags: str) -> list[str]:
    return [sys.executable, "-m", "gar", "compare", "tiny.yaml", *flags]


def whole(folder: Path, *flags: str) -> str:
    """What a command says that runs to its end."""
    done = subprocess.run(gar_compare(*flags), cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(folder: Path) -> str:
    """The tables without that of the cost, which no two runs share."""
    return (folder / "results/tiny/table.md").read_text().partition("Cost: seconds per")[0]


def gar_run(folder: Path) -> Path | None:
    return next((path for path in folder.glob("runs/compare/gar-grpo-seed-0-*") if path.is_dir()), None)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "first"
    path.mkdir()
    COMPARE.prepare(path)
    return path


ACCELERATE = (
    f"{shlex.quote(sys.executable)} -m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 "
    "--main_process_port 0 --mixed_precision no --dynamo_backend no"
)


def test_a_run_of_two_ranks_is_killed_with_its_comparison_and_goes_on(folder):
    values = yaml.safe_load((folder / "tiny.yaml").read_text()) | {"runs": ["gar-grpo"]}
    values["base"]["trl"] |= {"max_steps": 6, "per_device_train_batch_size": 8, "use_cpu": True}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(values))
    command = gar_compare("--launch", ACCELERATE)
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL)
    while not [*folder.glob("runs/compare/gar-grpo-seed-0-*/checkpoints/checkpoint-1/manifest.jsonl")]:
        assert process.poll() is None, "".join(path.read_text() for path in folder.glob("runs/compare/*.log"))
        time.sleep(0.02)
    run = gar_run(folder)
    process.kill()
    process.wait()
    said = whole(folder, "--launch", ACCELERATE)
    log = run.with_name(f"{run.name}.log").read_text()
    assert "finished in" in said
    assert "Resuming" in log
    assert {file.name for file in (run / "checkpoints/checkpoint-6").glob("rng_state*")} == {
        "rng_state_0.pth", "rng_state_1.pth",
    }  # fmt: skip
    result = json.loads((run / "result.json").read_text())
    assert (result["resumed"], result["cpu_seconds"] > 0) == (True, True)


def test_jobs_of_a_cluster_give_the_table_of_one_machine(folder, tmp_path):
    here = tmp_path / "here"
    shutil.copytree(folder, here)
    said = whole(folder, "--executor", "local", "--slurm", "timeout_min=10", "partition=gpu")
    assert said.count(": job ") == 2
    whole(here)
    assert numbers(folder) == numbers(here)
