"""Devices are dealt out evenly, and jobs of a cluster are the same cells: submitit's own executors."""

import sys

import pytest
import torch

from gar.comparison import executors
from gar.comparison.executors import ClusterJobs, launcher_words, local_devices
from gar.comparison.result import finished_results
from gar.comparison.run import run_cells
from gar.errors import ConfigError
from tests.comparison.finished import prepare
from tests.comparison.test_run import PYTHONPATH, STAND_IN
from tests.support.errors import raises


def test_devices_are_dealt_out(monkeypatch):
    monkeypatch.setattr(executors, "_num_cores", lambda: 6)
    for count, named, options, devices in (
        (0, None, {}, [None] * 6),
        (0, "", {"number": 2}, [None, None]),
        (4, None, {}, ["0", "1", "2", "3"]),
        (4, None, {"gpus": 2}, ["0", "1"]),
        (2, "5,GPU-7", {}, ["5", "GPU-7"]),
        (8, None, {"number": 2}, ["0", "1"]),  # a process that sees several is rejected
        (8, None, {"launch": True, "number": 3}, ["0,1", "2,3", "4,5"]),
        (2, None, {"number": 3}, ["0", "1", "0"]),
        (8, None, {"launch": True}, ["0,1,2,3,4,5,6,7"]),
        (8, None, {"launch": True, "number": 2, "gpus": 4}, ["0,1", "2,3"]),
    ):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if named is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        assert local_devices(**options) == devices
    with raises(ConfigError):
        local_devices(gpus=9)


def test_the_launcher_is_read_as_a_shell_does():
    assert launcher_words("accelerate launch --config 'my file.yaml'")[-1] == "my file.yaml"
    with raises(ConfigError):
        launcher_words("torchrun 'a")


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # submitit's logs
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_jobs_run_cells_and_a_failed_one_is_submitted_once_more(plan, monkeypatch, tmp_path):
    monkeypatch.setattr(executors, "_CELL", STAND_IN)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    _, planned = plan(seeds=[12], runs=["grpo"])
    prepare(planned)
    said: list[str] = []
    jobs = ClusterJobs("debug", {}, tmp_path / "jobs", parallel=1)
    run_cells(planned, jobs, said.append)
    events = [line.partition("seed 12: ")[2].split(" ")[0] for line in said]
    assert events == ["job", "FAILED,", "job", "finished"], said
    assert [*finished_results(planned)] == [("grpo", 12)]
    jobs.start(planned[0])
    assert not jobs.has_room
    assert jobs.stop().startswith("Jobs still running: ")


def test_a_cluster_that_is_not_there_or_asked_for_too_much_is_explained(tmp_path, monkeypatch):
    for executor, parameters, text in (
        ("slurm", {}, "srun"),
        ("local", {"partion": "gpu"}, "Unknown argument 'partion' for"),
        ("local", {"timeout_min": "ten"}, 'Parameter "timeout_min" expected type'),
    ):
        with raises(ConfigError) as caught:
            ClusterJobs(executor, parameters, tmp_path)
        assert str(caught.value).startswith(f"--executor {executor}: ")
        assert text in str(caught.value)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with raises(ConfigError) as caught:
        ClusterJobs("debug", {}, tmp_path)
    assert "extra 'cluster'" in str(caught.value)
