"""Devices are dealt out evenly, and jobs of a cluster are the same cells: submitit's own executors."""

import sys

import pytest
import torch

from gar.comparison import executors
from gar.comparison.executors import ClusterJobs, launcher_words, local_devices
from gar.comparison.result import finished_results
from gar.comparison.run import run_cells
from gar.errors import ConfigError
from tests.comparison.test_run import PYTHONPATH, STAND_IN


@pytest.mark.parametrize(
    ("count", "named", "options", "devices"),
    [
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
        (2, None, {"gpus": 3}, None),
    ],
)
def test_devices_are_dealt_out(monkeypatch, count, named, options, devices):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(executors, "_num_cores", lambda: 6)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    if devices is None:
        with pytest.raises(ConfigError):
            local_devices(**options)
    else:
        assert local_devices(**options) == devices


def test_the_launcher_is_read_as_a_shell_does():
    assert launcher_words("accelerate launch --config 'my file.yaml'")[-1] == "my file.yaml"
    with pytest.raises(ConfigError):
        launcher_words("torchrun 'a")


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # submitit's logs
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_jobs_run_cells_and_a_failed_one_is_submitted_once_more(plan, monkeypatch, tmp_path):
    monkeypatch.setattr(executors, "_CELL", STAND_IN)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    _, planned = plan(seeds=[12], runs=["grpo"])
    said: list[str] = []
    jobs = ClusterJobs("debug", {}, tmp_path / "jobs", parallel=1)
    run_cells(planned, jobs, said.append)
    events = [line.partition("seed 12: ")[2].split(" ")[0] for line in said]
    assert events == ["job", "FAILED,", "job", "finished"], said
    assert [*finished_results(planned)] == [("grpo", 12)]
    jobs.start(planned[0])
    assert not jobs.has_room
    assert jobs.stop().startswith("Jobs still running: ")


@pytest.mark.parametrize(
    ("executor", "parameters", "text"),
    [
        ("slurm", {}, r"^--executor slurm: .*srun"),
        ("local", {"partion": "gpu"}, r"^--executor local: Unknown argument 'partion' for"),
        ("local", {"timeout_min": "ten"}, r'Parameter "timeout_min" expected type'),
    ],
)
def test_a_cluster_that_is_not_there_or_asked_for_too_much_is_explained(tmp_path, executor, parameters, text):
    with pytest.raises(ConfigError, match=text):
        ClusterJobs(executor, parameters, tmp_path)


def test_without_submitit_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match="extra 'cluster'"):
        ClusterJobs("debug", {}, tmp_path)
