"""Processes side by side, with a stand-in for training that ends in every way a run can end."""

import fcntl
import sys
import threading
import time
from pathlib import Path

import pytest

from gar.comparison import runner
from gar.comparison.runner import run_side_by_side
from gar.comparison.store import failures, finished_results
from gar.errors import RecordError

ORDER = Path("runs/compare/tiny/order.txt")


class Events:
    """Notes what it is told; raises KeyboardInterrupt once told to."""

    def __init__(self, interrupt: bool = False) -> None:
        self.seen: list[str] = []
        self.most_running = 0
        self.interrupt = interrupt

    def started(self, run):
        self.seen.append(f"started {run.title}")

    def finished(self, run, result):
        self.seen.append(f"finished {run.title}")

    def failed(self, run, failure):
        self.seen.append(f"failed {run.title}: {failure.reason}")

    def tick(self, running):
        self.most_running = max(self.most_running, len(running))
        if self.interrupt and ORDER.exists() and len(ORDER.read_text().splitlines()) == 2:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(runner, "_CHILD", (sys.executable, str(Path(__file__).with_name("finished.py"))))
    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.02)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def run(planned, events, *, workers: int = 2, finished=None) -> None:
    run_side_by_side(planned, finished or {}, workers=workers, threads=1, progress=events)


@pytest.mark.slow  # several processes that import torch, one after the other
def test_runs_start_seed_by_seed_with_as_many_threads_as_told(plan):
    _, planned = plan(seeds=[0, 1])
    events = Events()
    run(planned, events, workers=1)
    assert ORDER.read_text().split("\n")[:-1] == [f"{run.folder.name} 1" for run in planned]
    assert events.seen[:4] == [
        "started grpo, seed 0", "finished grpo, seed 0", "started gar-grpo, seed 0", "finished gar-grpo, seed 0",
    ]  # fmt: skip
    assert len(finished_results(planned)) == 4
    assert len({result.prompts_hash for result in finished_results(planned).values()}) == 1


def test_a_failed_run_is_recorded_and_the_others_go_on(plan):
    _, planned = plan(seeds=[13])
    events = Events()
    run(planned, events)
    assert "failed grpo, seed 13: exit status 3" in events.seen
    assert list(finished_results(planned)) == [("gar-grpo", 13)]
    (failure,) = failures(planned).values()
    assert failure.last_lines == ["this line and", "the next one"]


def test_a_killed_run_is_recorded_with_its_signal(plan):
    _, planned = plan(seeds=[14], runs=["grpo"])
    events = Events()
    run(planned, events)
    assert events.seen[-1] == "failed grpo, seed 14: killed by signal 9: was the machine out of memory?"


def test_ctrl_c_interrupts_the_runs_that_are_under_way(plan):
    _, planned = plan(seeds=[15])
    events = Events(interrupt=True)
    with pytest.raises(KeyboardInterrupt):
        run(planned, events)
    assert {file.name for file in ORDER.parent.glob("*.interrupted")} == {
        "grpo-seed-15.interrupted", "gar-grpo-seed-15.interrupted",
    }  # fmt: skip
    assert (finished_results(planned), failures(planned), events.most_running) == ({}, {}, 2)


@pytest.mark.slow  # several processes that import torch, one after the other
def test_results_that_are_not_paired_stop_the_comparison(plan):
    _, planned = plan(seeds=[16, 17])
    with pytest.raises(RecordError, match="of seed 16 were not trained on the same problems"):
        run(planned, Events(), workers=1)
    assert "seed-17" not in ORDER.read_text()


def test_a_second_comparison_of_that_name_waits_and_then_refuses(plan, monkeypatch):
    monkeypatch.setattr(runner, "_STOP_SECONDS", 0.1)
    _, planned = plan(seeds=[0], runs=["grpo"])
    ORDER.parent.mkdir(parents=True)
    with (ORDER.parent / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(
            RecordError, match=r"compare/tiny: another gar compare, or a run that one has started, is at"
        ):
            run(planned, Events())
    monkeypatch.setattr(runner, "_STOP_SECONDS", 10.0)
    with (ORDER.parent / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        threading.Timer(0.3, fcntl.flock, (other, fcntl.LOCK_UN)).start()
        start = time.monotonic()
        run(planned, Events())
    assert time.monotonic() - start >= 0.3
    assert len(finished_results(planned)) == 1
