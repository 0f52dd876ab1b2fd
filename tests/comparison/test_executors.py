"""Devices are dealt out evenly, and jobs of a cluster are the same cells: submitit's own executors."""

import sys

import pytest
import torch

from gar.comparison import executors
from gar.comparison.executors import Cluster, ClusterJobs, local_workers
from gar.comparison.run import finished_results, run_cells
from gar.errors import ConfigError
from tests.comparison.finished import result
from tests.comparison.test_run import PYTHONPATH, STAND_IN


@pytest.fixture
def machine(monkeypatch):
    """A machine with so many GPUs, of which CUDA_VISIBLE_DEVICES may name some; it has six cores."""

    def make(count: int, named: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(executors, "_num_cores", lambda: 6)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if named is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)

    return make


@pytest.mark.parametrize(
    ("count", "named", "options", "devices"),
    [
        (0, None, {}, [None] * 6),
        (0, "", {"number": 2}, [None, None]),
        (4, None, {}, ["0", "1", "2", "3"]),
        (4, None, {"gpus": 2}, ["0", "1"]),
        (2, "5,GPU-7", {}, ["5", "GPU-7"]),
        (8, None, {"number": 2}, ["0", "1"]),  # a process that sees several is rejected
        (8, None, {"launch": "torchrun", "number": 3}, ["0,1", "2,3", "4,5"]),
        (2, None, {"number": 3}, ["0", "1", "0"]),
        (8, None, {"launch": "accelerate launch"}, ["0,1,2,3,4,5,6,7"]),
        (8, None, {"launch": "torchrun", "number": 2, "gpus": 4}, ["0,1", "2,3"]),
    ],
)
def test_local_workers_deal_out_devices(machine, count, named, options, devices):
    machine(count, named)
    assert local_workers(**options).devices == devices


def test_local_workers_read_the_launcher_as_a_shell_does(machine):
    machine(0)
    made = local_workers(launch="accelerate launch --config_file 'my file.yaml'")
    assert made.launcher == ["accelerate", "launch", "--config_file", "my file.yaml"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"gpus": 3}, "--gpus 3: 2 are visible. CUDA_VISIBLE_DEVICES says which those are."),
        ({"launch": "torchrun 'a"}, "is no command: No closing quotation"),
    ],
)
def test_local_workers_refuse_and_say_why(machine, options, text):
    machine(2)
    with pytest.raises(ConfigError) as caught:
        local_workers(**options)
    assert text in str(caught.value)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # submitit's logs
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_job_of_the_debug_executor_runs_a_cell(plan, monkeypatch, tmp_path):
    monkeypatch.setattr(executors, "_CELL", STAND_IN)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    _, planned = plan(seeds=[0], runs=["grpo"])
    said: list[str] = []
    run_cells(planned, ClusterJobs(Cluster(executor="debug"), tmp_path / "jobs"), said.append)
    events = [line.partition("seed 0: ")[2].split(" ")[0] for line in said]
    assert events == ["job", "finished"], said
    assert [*finished_results(planned)] == [("grpo", 0)]


class Jobs:
    """A cluster that gives each job its fate once somebody asks for the second time."""

    has_room = True

    def __init__(self, *fates):
        self.fates = [*fates]

    def start(self, cell):
        return Job(f"job {len(self.fates)}", cell, self.fates.pop(0))

    def stop(self, jobs):
        return f"left {[job.name for job in jobs]}" if jobs else ""


class Job:
    def __init__(self, name, cell, fate):
        self.name, self._cell, self._fate, self._asked = name, cell, fate, 0

    def status(self):
        self._asked += 1
        if self._asked < 2:
            return None
        if self._fate == "interrupt":
            raise KeyboardInterrupt
        if self._fate == "ok":
            result(self._cell, {"test": [1, 2]})
        return 0 if self._fate == "ok" else 1


def test_a_job_that_died_is_submitted_once_more_and_ctrl_c_leaves_the_others(plan):
    _, planned = plan(seeds=[0])
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run_cells(planned, Jobs("died", "ok", "interrupt"), said.append)
    assert [line.partition("seed 0: ")[2][:25] for line in said[:-1]] == [
        "job 3", "job 2", "FAILED, exit status 1 (jo", "finished in 60 s; test pa", "job 1",
    ]  # fmt: skip
    assert said[-1] == "left ['job 1']"


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        (Cluster(executor="slurm"), r"^--executor slurm: .*srun"),
        (
            Cluster(executor="local", parameters={"partion": "gpu"}),
            r"^--executor local: Unknown argument 'partion' for",
        ),
        (Cluster(executor="local", parameters={"timeout_min": "ten"}), r'Parameter "timeout_min" expected type'),
    ],
)
def test_a_cluster_that_is_not_there_or_asked_for_too_much_is_explained(tmp_path, chosen, text):
    with pytest.raises(ConfigError, match=text):
        ClusterJobs(chosen, tmp_path)


def test_without_submitit_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match=r"--executor needs submitit, which is not installed: .*extra 'cluster'"):
        ClusterJobs(Cluster(executor="debug"), tmp_path)
