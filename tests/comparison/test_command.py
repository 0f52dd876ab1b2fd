"""`gar compare` as it is called: its exit status, its flags, its words on a plain stream."""

from pathlib import Path

import pytest
import torch

from gar.cli.main import main
from gar.comparison import compare, pool
from gar.comparison.compare import Comparison
from gar.comparison.pool import LocalPool
from tests.comparison.finished import result


@pytest.fixture
def started(plan, monkeypatch):
    """A comparison of which no run is ever started; what would be."""
    started = []
    monkeypatch.setattr(Comparison, "_start", lambda _, cell, pool: started.append(cell) or True)
    monkeypatch.setattr(compare, "save_figure", lambda figure, stem: [])  # takes seconds
    monkeypatch.setattr(compare, "_POLL_SECONDS", 0.0)
    plan(seeds=[0, 1])
    return started


def test_compare_runs_what_has_no_result_and_ends_with_1_until_all_have(started, capsys):
    assert main(["compare", "tiny.yaml", "--dry-run"]) == 0
    assert "4 of 4 runs to do." in capsys.readouterr().out
    assert (started, Path("results/tiny/table.md").exists()) == ([], False)
    assert main(["compare", "tiny.yaml"]) == 1
    for run in started[:3]:
        result(run, {"test": [1, 2]})
    (last,) = started[3:]
    assert main(["compare", "tiny.yaml", "--report"]) == 0
    assert main(["compare", "tiny.yaml"]) == 1
    assert [run.title for run in started[4:]] == [last.title] == ["gar-grpo, seed 1"]
    result(last, {"test": [1, 2]})
    assert main(["compare", "tiny.yaml"]) == 0
    assert "results/tiny/table.md" in capsys.readouterr().out


@pytest.mark.usefixtures("started")
def test_compare_flags_reach_the_pool(monkeypatch):
    made = []
    monkeypatch.setattr("gar.comparison.pool.LocalPool", lambda *values: made.append(values) or LocalPool([None]))
    assert main(["compare", "tiny.yaml", "--workers", "2", "--launch", "env x"]) == 1
    assert made.pop() == ([None, None], ["env", "x"])


@pytest.mark.usefixtures("started")
def test_compare_rejects_wrong_usage(capsys):
    for flags, status, text in (
        (["--launch", "torchrun 'a"], 1, "is no command"),
        (["--launch", "nowhere"], 1, "there is no command 'nowhere'"),
        (["--gpus", "9"], 1, "--gpus 9: "),
        (["--report", "--dry-run"], 2, "choose one of --report and --dry-run."),
        (["--workers", "0"], 2, "workers"),
    ):
        try:
            ended = main(["compare", "tiny.yaml", *flags])
        except SystemExit as exited:  # of tyro
            ended = exited.code
        assert (ended, text in capsys.readouterr().err) == (status, True)


def test_devices_are_dealt_out(monkeypatch):
    monkeypatch.setattr(pool, "_num_cores", lambda: 6)
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
        assert pool.local_devices(**options) == devices
