"""`gar compare` as a command that trains on two ranks, killed and started again, with a run that has failed."""

import json
import shlex
import subprocess
import sys

import pytest
import yaml

from gar.records import RunFolder
from gar.records.lock import writer_lock
from tests.faults.jobs import COMPARE
from tests.support.processes import completed, running, wait_until

pytestmark = pytest.mark.slow  # in processes that import TRL
ACCELERATE = (
    f"{shlex.quote(sys.executable)} -m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 "
    "--main_process_port 0 --mixed_precision no --dynamo_backend no"
)


def test_a_run_of_two_ranks_is_killed_with_its_comparison_and_goes_on_though_it_failed(tmp_path):
    COMPARE.prepare(tmp_path)
    values = yaml.safe_load((tmp_path / "tiny.yaml").read_text()) | {"runs": ["gar-grpo"]}
    values["base"]["trl"] |= {"max_steps": 6, "per_device_train_batch_size": 8, "use_cpu": True}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values))
    command = [sys.executable, "-m", "gar", "compare", "tiny.yaml", "--launch", ACCELERATE]
    sealed = "runs/compare/gar-grpo-seed-0-*/checkpoints/checkpoint-1/SHA256SUMS"

    def is_saved() -> bool:
        assert process.poll() is None, "".join(path.read_text() for path in tmp_path.glob("runs/compare/*.log"))
        return any(tmp_path.glob(sealed))

    with running(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        assert wait_until(is_saved)
        (run,) = (path for path in tmp_path.glob("runs/compare/gar-grpo-seed-0-*") if path.is_dir())
        process.kill()
    with writer_lock(run, wait_seconds=60):  # until both ranks are gone
        RunFolder(run).update_run(status="failed")  # as after a full disk
    done = completed(command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    log = run.with_name(f"{run.name}.log").read_text()
    assert "finished in" in done.stdout
    assert "Resuming" in log
    assert {file.name for file in (run / "checkpoints/checkpoint-6").glob("rng_state*")} == {
        "rng_state_0.pth", "rng_state_1.pth",
    }  # fmt: skip
    result = json.loads((run / "result.json").read_text())
    assert (result["resumed"], result["cpu_seconds"] > 0) == (True, True)
