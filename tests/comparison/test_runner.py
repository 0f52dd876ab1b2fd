"""Processes side by side, with a stand-in for training that ends in every way a run can end."""

import os
import shutil
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from gar.comparison import child, runner
from gar.comparison.plan import planned_runs
from gar.comparison.report import write_report
from gar.comparison.result import result_of
from gar.comparison.runner import run_side_by_side
from gar.comparison.settings import read_comparison
from gar.comparison.store import failures, finished_results, write_result
from gar.comparison.workers import Workers
from gar.config import dump_config
from gar.errors import LockedError, RecordError
from gar.records import lock
from gar.records.lock import writer_lock
from tests.comparison.finished import result, write_run
from tests.ranks import FORKSERVER, SECONDS

STAND_IN = (sys.executable, str(Path(__file__).with_name("finished.py")))
PYTHONPATH = os.pathsep.join(str(Path(__file__).parents[2] / name) for name in ("", "src"))
ORDER = Path("runs/compare/tiny/order.txt")


class Events:
    """Notes what it is told; raises KeyboardInterrupt once told to."""

    def __init__(self, interrupt: bool = False) -> None:
        self.seen: list[str] = []
        self.most_running = 0
        self.interrupt = interrupt

    def started(self, run):
        self.seen.append(f"started {run.title}")

    def elsewhere(self, run, reason):
        self.seen.append(f"elsewhere {run.title}")

    def finished(self, run, result):
        self.seen.append(f"finished {run.title}")

    def failed(self, run, failure, *, again):
        self.seen.append(f"failed{' once' if again else ''} {run.title}: {failure.reason}")

    def tick(self, running):
        self.most_running = max(self.most_running, len(running))
        if self.interrupt and ORDER.exists() and len(ORDER.read_text().splitlines()) == 2:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(runner, "_CHILD", STAND_IN)
    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(runner, "_LOOK_SECONDS", 0.05)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)


def run(planned, events, *, workers: int = 2, devices=None) -> None:
    run_side_by_side(planned, {}, workers=Workers(devices=devices or [None] * workers), progress=events)


@pytest.mark.slow  # several processes that import torch, one after the other
def test_runs_start_seed_by_seed_with_as_many_threads_as_told(plan):
    _, planned = plan(seeds=[0, 1])
    events = Events()
    run(planned, events, workers=1)
    assert ORDER.read_text().split("\n")[:-1] == [f"{run.folder.name} 1 None" for run in planned]
    assert events.seen[:4] == [
        "started grpo, seed 0", "finished grpo, seed 0", "started gar-grpo, seed 0", "finished gar-grpo, seed 0",
    ]  # fmt: skip
    assert len(finished_results(planned)) == 4
    assert len({result.prompts_hash for result in finished_results(planned).values()}) == 1


def test_a_failed_run_is_tried_once_more_and_recorded_and_the_others_go_on(plan):
    _, planned = plan(seeds=[13])
    events = Events()
    run(planned, events, workers=1)
    assert events.seen == [
        "started grpo, seed 13", "failed once grpo, seed 13: exit status 3",
        "started gar-grpo, seed 13", "finished gar-grpo, seed 13",
        "started grpo, seed 13", "failed grpo, seed 13: exit status 3",
    ]  # fmt: skip
    assert list(finished_results(planned)) == [("gar-grpo", 13)]
    (failure,) = failures(planned).values()
    assert failure.last_lines == ["this line and", "the next one"]


def test_a_killed_run_is_recorded_with_its_signal(plan):
    _, planned = plan(seeds=[14], runs=["grpo"])
    events = Events()
    run(planned, events)
    assert events.seen[-1] == "failed grpo, seed 14: killed by signal 9: was the machine out of memory?"


def test_ctrl_c_interrupts_the_runs_that_are_under_way_each_on_its_devices(plan):
    _, planned = plan(seeds=[15])
    events = Events(interrupt=True)
    with pytest.raises(KeyboardInterrupt):
        run(planned, events, devices=["0,1", "2,3"])
    assert sorted(line.split()[2] for line in ORDER.read_text().splitlines()) == ["0,1", "2,3"]
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


def compare_in(folder: Path, said: str, machine: str = "", silent_seconds: float = 90.0) -> None:
    """A `gar compare` in a process of its own, on a machine of its own if that has a name."""
    os.chdir(folder)
    lock._machine, lock._SILENT_SECONDS = (lambda: machine), silent_seconds
    runner._CHILD, runner._POLL_SECONDS, runner._LOOK_SECONDS = STAND_IN, 0.02, 0.05
    os.environ["PYTHONPATH"] = PYTHONPATH
    events = Events()
    run(planned_runs(read_comparison("tiny.yaml"), "tiny.yaml"), events, workers=1)
    Path(said).write_text("\n".join(events.seen))


def test_two_comparisons_of_one_name_share_the_runs(plan):
    comparison, planned = plan(seeds=[0])
    calls = [FORKSERVER.Process(target=compare_in, args=(Path.cwd(), said)) for said in ("one", "two")]
    for call in calls:
        call.start()
    for call in calls:
        call.join(SECONDS)
    assert [call.exitcode for call in calls] == [0, 0]
    assert sorted(line.split()[0] for line in ORDER.read_text().splitlines()) == sorted(r.folder.name for r in planned)
    seen = [Path(said).read_text().splitlines() for said in ("one", "two")]
    finished = [sorted(line for line in lines if line.startswith("finished")) for lines in seen]
    assert finished == [sorted(f"finished {r.title}" for r in planned)] * 2
    assert any(line.startswith("elsewhere") for lines in seen for line in lines)
    assert [path.name for path in comparison.results_folder.iterdir() if "lock" in path.name] == []


def test_a_comparison_whose_machine_died_goes_on_on_another_to_the_same_table(plan, tmp_path):
    here, there, whole = (tmp_path / name for name in ("here", "there", "whole"))
    here.mkdir()
    os.chdir(here)
    comparison, planned = plan(seeds=[15])
    write_result(planned[0], result(planned[0], {"test": [1, 2]}))
    first = FORKSERVER.Process(target=compare_in, args=(here, "said", "a"))
    first.start()
    asleep = planned[1].folder.with_suffix(".asleep")
    while not asleep.exists() or not asleep.read_text():
        time.sleep(0.01)
    for process in (first.pid, int(asleep.read_text())):  # the whole machine: nobody ends anybody's run
        os.kill(process, signal.SIGKILL)
    first.join()
    shutil.copytree(here, there, dirs_exist_ok=True)
    assert (there / "results/tiny/.gar-grpo-seed-15.json.lock").exists()
    second = FORKSERVER.Process(target=compare_in, args=(there, "said", "b", 0.5))
    second.start()
    second.join(SECONDS)
    assert (second.exitcode, (there / "said").read_text().splitlines()[-1]) == (0, "finished gar-grpo, seed 15")

    os.chdir(there)
    write_report(comparison, planned, finished_results(planned), [])
    kept = "".join(path.read_text() for path in comparison.results_folder.glob("*.json"))
    assert not [word for word in (str(tmp_path), socket.gethostname()) if word in kept]
    whole.mkdir()
    os.chdir(whole)
    write_report(comparison, planned, {(r.label, r.seed): result(r, {"test": [1, 2]}) for r in planned}, [])
    for name in ("table.md",):
        paths = [folder / comparison.results_folder / name for folder in (there, whole)]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_run_that_failed_elsewhere_is_tried_here(plan):
    _, planned = plan(seeds=[0], runs=["grpo"])
    events = Events()
    with writer_lock(planned[0].result_path):
        thread = threading.Thread(target=run, args=(planned, events))
        thread.start()
        while not events.seen:
            time.sleep(0.01)
    thread.join()
    assert set(events.seen) == {"elsewhere grpo, seed 0", "started grpo, seed 0", "finished grpo, seed 0"}


def test_the_child_waits_for_the_run_of_a_comparison_that_was_killed(plan, monkeypatch, capsys):
    _, planned = plan(seeds=[0], runs=["grpo"])
    config_path = planned[0].folder.with_suffix(".yaml")
    monkeypatch.setattr(child, "_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(child, "_end_with_the_comparison", lambda: None)
    monkeypatch.setattr(child.signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(child, "_run", lambda *arguments: None)
    with writer_lock(config_path):
        assert child.main([str(config_path)]) == 1
    assert "grpo-seed-0.yaml is being written by another process" in capsys.readouterr().err
    assert child.main([str(config_path)]) == 0


@pytest.fixture
def finished(plan, monkeypatch):
    """A run that was trained to its end and has no result yet; training it again is noted."""
    _, planned = plan(seeds=[0], runs=["grpo"])
    write_run(planned[0].config)
    config_path = planned[0].folder.with_suffix(".yaml")
    config_path.write_text(dump_config(planned[0].config))
    trained = []

    def train(config, **options):
        trained.append(config.records.name)
        return write_run(config)

    monkeypatch.setattr("gar.train.run.train", train)
    return planned[0], str(config_path), trained


def test_the_child_waits_for_what_a_hand_resumed(finished, monkeypatch):
    planned, source, trained = finished
    (planned.folder / "evaluation" / "after.json").unlink()
    monkeypatch.setattr(child, "_WAIT_SECONDS", 0.0)
    with writer_lock(planned.folder), pytest.raises(LockedError, match="grpo-seed-0 is being written"):
        child._run(source, [], time.perf_counter())
    assert trained == []
    monkeypatch.setattr(child, "_WAIT_SECONDS", 30.0)
    with ExitStack() as held:
        held.enter_context(writer_lock(planned.folder))
        threading.Timer(0.1, held.close).start()
        child._run(source, [], time.perf_counter())
    assert trained == ["grpo-seed-0"]


def test_the_child_does_not_train_a_finished_run_again(finished):
    planned, source, trained = finished
    expected = result_of(planned)
    child._run(source, [], time.perf_counter())
    assert trained == []
    assert result_of(planned) == expected


def test_the_child_writes_the_usage_that_a_kill_has_left_out(finished):
    planned, source, trained = finished
    expected = result_of(planned)
    (planned.folder / "usage.json").unlink()
    child._run(source, [], time.perf_counter())
    assert trained == []
    made = result_of(planned)
    assert made.resumed  # these times are not those of the training
    assert made.wall_seconds < 30
    assert (
        replace(made, resumed=False, wall_seconds=60.0, cpu_seconds=50.0, peak_memory_bytes=expected.peak_memory_bytes)
        == expected
    )


@pytest.mark.parametrize("lost", ["evaluation/after.json", "rollouts/step-000003.parquet", "config.yaml"])
def test_the_child_trains_a_finished_run_again_that_has_lost_what_the_result_needs(finished, lost):
    planned, source, trained = finished
    expected = result_of(planned)
    (planned.folder / lost).unlink()
    child._run(source, [], time.perf_counter())
    assert trained == ["grpo-seed-0"]
    assert result_of(planned).sets == expected.sets
