"""GARTrainer on two ranks gives what it gives on one: real processes, gloo, DDP."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accelerate import PartialState

from gar.core import group_standard_deviations
from gar.errors import ConfigError, LostRankError
from gar.integrations.trl.ranks import (
    check_ranks,
    check_saves_whole_model,
    leave_ranks,
    lost_rank_named,
    on_main,
    refuse_sharded_adapter,
    refuse_sharded_evaluation,
)  # fmt: skip
from gar.records import RunFolder, open_run
from tests.integrations.replay import GROUP, NUM_RESPONSES, PLAN, is_right, replay
from tests.support.errors import raises
from tests.support.processes import SECONDS, completed
from tests.support.ranks import FORKSERVER, join_group, run_ranks
from tests.support.runs import assert_equal_runs

pytestmark = pytest.mark.dist

SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "own passes": ({}, {}),
    "captured": ({"num_iterations": 2, "max_steps": 4}, {}),
    "g2rl": ({}, {"method": "g2rl"}),
    "function": ({}, {"reward_funcs": is_right}),
}
CLOSE = {"own passes": 1e-6, "captured": 1e-6, "g2rl": 1e-5, "function": 1e-6}
"""Tolerance of rewards. G2RL stretches the novelties of a group to [0, 1], and so their differences of 1e-7."""


def column(run: dict[str, Any], name: str) -> torch.Tensor:
    return torch.tensor([getattr(record, name) for record in run["records"]], dtype=torch.float64)


@pytest.mark.parametrize(
    "name", ["own passes", *(pytest.param(name, marks=pytest.mark.slow) for name in [*SETTINGS][1:])]
)
def test_two_ranks_give_what_one_gives(name, tmp_path):
    """Vectors, weights, rewards, advantages, records, metrics and the number of passes."""
    one, close = replay(tmp_path, *SETTINGS[name]), CLOSE[name]
    first, second = two = run_ranks(replay, 2, tmp_path, tmp_path, *SETTINGS[name])
    assert one["vectors"].norm(dim=-1).sum() >= 15
    for run in two:
        assert run["wrapper"] == "DistributedDataParallel"
        torch.testing.assert_close(run["vectors"], one["vectors"], rtol=0, atol=1e-6)
        for name, tensor in run["weights"].items():
            torch.testing.assert_close(tensor, one["weights"][name], rtol=0, atol=1e-6)
        for mine, expected in zip(run["metrics"], one["metrics"], strict=True):
            for name, value in expected.items():
                if name.startswith(("gar/", "verify/")):
                    assert mine[name] == pytest.approx(value, abs=1e-4, nan_ok=True), name
    assert first["num_forwards"] == second["num_forwards"]
    assert max(first["num_forwards"]) > 0  # the second rank has nothing right on step 2 and takes part

    rewards = column(one, "reward")
    assert len(set(rewards.tolist())) > 10
    torch.testing.assert_close(column(first, "reward"), rewards, rtol=0, atol=close)
    spread = group_standard_deviations(rewards, torch.arange(len(rewards)) // GROUP, ddof=1) + 1e-4
    advantages, expected = column(first, "advantage"), column(one, "advantage")
    assert ((advantages - expected).abs() <= close / spread + 1e-6).all()  # and float32's rounding
    all_right = slice(0, GROUP)
    assert expected[all_right].abs().max() > 0.5  # the all-correct group learns, which plain GRPO leaves at 0

    assert second["records"] == []  # written once, and in order
    assert len(first["records"]) == 2 * NUM_RESPONSES
    for mine, theirs in zip(first["records"], one["records"], strict=True):
        for name in ("step", "problem_id", "group_index", "response_index", "response", "eligible", "anchor"):
            assert getattr(mine, name) == getattr(theirs, name)
    right = "".join(str(int(record.verified)) for record in first["records"])
    assert right == "".join("".join(groups) for groups in PLAN)


# `gar train` under a launcher, as a user starts it.

TRAIN = [
    "--preset", "demo", "--trl.per_device_train_batch_size", "12", "--preflight.mode", "off", "--evaluate.sources",
    "--trl.max_steps", "6", "--trl.save_steps", "2",
]  # fmt: skip
KILLER = """
import os, pathlib, signal, threading, time

def watch(metrics=pathlib.Path(os.environ["METRICS"])):
    while not metrics.exists() or metrics.read_bytes().count(b"\\n") < 3:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)

if os.environ.get("RANK") == "1":
    threading.Thread(target=watch, daemon=True).start()
"""
"""Runs at the start of every Python process of the job: rank 1 dies after three steps."""


def launched(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`gar train` in two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "gar"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return completed([*command, "train", *words], env=env)


@pytest.mark.slow
def test_rank_that_dies_ends_the_job_with_a_sentence_and_the_run_resumes_equal(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(KILLER)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    cut, whole = (RunFolder(tmp_path / name) for name in ("cut", "whole"))
    under = ["--records.output_dir", str(tmp_path), "--records.name"]
    ended = launched(*TRAIN, *under, "whole")
    assert ended.returncode == 0, ended.stderr
    members = open_run(whole.path).rollouts(["group_index", "response_index"], [1]).to_pylist()
    assert [row["response_index"] for row in members] == [*range(8)] * 3  # the middle group lies on both ranks
    ended = launched(*TRAIN, *under, "cut", PYTHONPATH=path, METRICS=str(cut.path / "metrics.jsonl"))
    assert ended.returncode != 0
    assert "exitcode  : -9" in ended.stderr
    assert "rank      : 1" in ended.stderr
    assert "gar/train/run.py" not in ended.stderr  # no traceback but the launcher's own
    assert launched("--resume", str(cut.path)).returncode == 0
    assert_equal_runs(cut, whole)


def wait_for_the_other(rank: int, folder: Path) -> None:
    """Rank 1 dies, and rank 0 writes its error down."""
    join_group(rank, 2, folder)
    PartialState(cpu=True)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        with lost_rank_named(), lost_rank_named():  # nested as in `train`
            dist.barrier()
    except LostRankError as error:
        (folder / "said").write_text(str(error))


def test_rank_that_loses_another_says_so_without_a_launcher(tmp_path: Path):
    ranks = [FORKSERVER.Process(target=wait_for_the_other, args=(rank, tmp_path), daemon=True) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(SECONDS)
    assert [process.exitcode for process in ranks] == [0, -signal.SIGKILL]
    assert (tmp_path / "said").read_text().count("rank 0 of 2 has lost another rank, and ends: ") == 1


def gloo_threads_after_leaving() -> list[str]:
    """What is left of the process group that a trainer in a reference cycle has held, as DDP's reducer does."""
    PartialState(cpu=True)
    trainer = SimpleNamespace(model=torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2)))
    trainer.itself = trainer
    del trainer
    leave_ranks()
    names = (path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
    return [name for name in names if "gloo" in name]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_leave_ranks_ends_the_threads_of_the_group(tmp_path: Path):
    assert run_ranks(gloo_threads_after_leaving, 2, tmp_path) == [[], []]


def test_leave_ranks_leaves_a_group_of_somebody_else(tmp_path: Path):
    """A single process trains, and vLLM has made a group in it."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        leave_ranks()
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


def test_launches_that_train_something_else_are_errors(monkeypatch: pytest.MonkeyPatch):
    check_ranks(SimpleNamespace(n_gpu=0))
    with raises(ConfigError, "several-gpus"):
        check_ranks(SimpleNamespace(n_gpu=8))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with raises(ConfigError, "lost-processes"):
        check_ranks(SimpleNamespace(n_gpu=0))
    refuse_sharded_adapter(SimpleNamespace(fsdp=[]))
    with raises(ConfigError, "sharded"):
        refuse_sharded_adapter(SimpleNamespace(fsdp=["full_shard"]))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with raises(ConfigError, "sharded"):
        refuse_sharded_adapter(SimpleNamespace(fsdp=[]))
    with raises(ConfigError, "sharded", "evaluate.eval_steps"):
        refuse_sharded_evaluation(SimpleNamespace(fsdp=[], use_vllm=True, vllm_mode="server"))
    refuse_sharded_evaluation(SimpleNamespace(fsdp=[], use_vllm=True, vllm_mode="colocate"))
    for saves in (True, False):
        known = {"zero_optimization.stage3_gather_16bit_weights_on_model_save": saves}
        plugin = SimpleNamespace(zero_stage=3, hf_ds_config=SimpleNamespace(is_true=known.__getitem__))
        with contextlib.nullcontext() if saves else raises(ConfigError, "sharded"):
            check_saves_whole_model(SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=plugin)))


def fail_on_main() -> tuple[str, str]:
    """On each rank, the result of work that succeeds on the main process, and of work that fails there."""
    PartialState(cpu=True)
    found = on_main(lambda: f"from rank {dist.get_rank()}")
    try:
        on_main(lambda: [][1])
    except BaseException as error:
        return found, repr(error)
    return found, "nothing"


def test_on_main_gives_its_result_to_all_and_ends_all_where_it_fails(tmp_path: Path):
    assert run_ranks(fail_on_main, 2, tmp_path) == [
        ("from rank 0", "IndexError('list index out of range')"),
        ("from rank 0", "SystemExit(1)"),
    ]
