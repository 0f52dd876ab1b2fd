"""Cells side by side, with a stand-in for training that ends in every way a run can end."""

import os
import re
import sys
import time
from pathlib import Path

import psutil
import pytest

from gar.comparison import cell, executors, run
from gar.comparison.executors import LocalPool
from gar.comparison.plan import planned_runs
from gar.comparison.result import finished_result, finished_results
from gar.comparison.run import run_cells
from gar.comparison.settings import read_comparison
from gar.comparison.tables import missing_note
from gar.config import dump_config, make_config, read_config
from gar.errors import RecordError
from tests.comparison import stand_in
from tests.comparison.finished import prepare, write_run
from tests.support.errors import raises
from tests.support.ranks import FORKSERVER, SECONDS

STAND_IN = (sys.executable, str(Path(stand_in.__file__)))
PYTHONPATH = os.pathsep.join(str(Path(__file__).parents[2] / name) for name in ("", "src"))
ORDER = Path("runs/compare/order.txt")


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(executors, "_CELL", STAND_IN)
    monkeypatch.setattr(run, "_POLL_SECONDS", 0.02)
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)


def run_here(planned, *, devices=(None,), say=None) -> list[str]:
    """What is said, without times and counts."""
    seen: list[str] = []
    run_cells(planned, LocalPool(devices), say or seen.append)
    return [re.sub(r"^\S+ +\S+ ", "", text) for text in seen]


def started() -> list[str]:
    """Seeds of the processes that were started, with threads and devices."""
    return [re.sub(r"-[0-9a-f]{12}", "", line) for line in ORDER.read_text().splitlines()]


def test_cells_start_seed_by_seed_and_a_failed_one_is_tried_once_more(plan):
    _, planned = plan(seeds=[0, 13])
    prepare(planned)
    said = run_here(planned)
    assert started() == [f"{name} 1 None" for name in (
        "grpo-seed-0", "gar-grpo-seed-0", "grpo-seed-13", "gar-grpo-seed-13", "grpo-seed-13",
    )]  # fmt: skip
    assert said[0] == "grpo, seed 0: started"
    assert re.match("grpo, seed 0: finished in 60 s.* test pass@1 0.375", said[1])
    tried = [line.splitlines() for line in said if "FAILED" in line]
    assert [lines[0] for lines in tried] == [
        "grpo, seed 13: FAILED, exit status 3; tried once more", "grpo, seed 13: FAILED, exit status 3",
    ]  # fmt: skip
    assert tried[0][1:] == ["    this line and", "    the next one"]
    results = finished_results(planned)
    assert [*results] == [("grpo", 0), ("gar-grpo", 0), ("gar-grpo", 13)]
    assert missing_note(planned, results) == ["No result yet: grpo, seed 13."]
    _, planned = plan(seeds=[14], runs=["grpo"])
    assert "grpo, seed 14: FAILED, killed by signal 9: was the machine out of memory?" in run_here(planned)


class Interrupted(LocalPool):
    """Ctrl-C comes once two cells sleep."""

    @property
    def has_room(self) -> bool:
        if len(list(ORDER.parent.glob("*.asleep"))) == 2:
            raise KeyboardInterrupt
        return super().has_room


def test_ctrl_c_interrupts_the_runs_that_are_under_way_each_on_its_devices(plan):
    _, planned = plan(seeds=[15, 16])
    with pytest.raises(KeyboardInterrupt):
        run_cells(planned, Interrupted(["0,1", "2,3"]), print)
    assert sorted(line.split()[2] for line in started()) == ["0,1", "2,3"]
    assert len(list(ORDER.parent.glob("*.interrupted"))) == 2
    assert finished_results(planned) == {}


def test_results_that_are_not_paired_stop_the_comparison(plan):
    _, planned = plan(seeds=[16, 18])
    prepare(planned)
    with raises(RecordError, "other-prompts"):
        run_here(planned)
    assert "seed-18" not in ORDER.read_text()


def compare_in(folder: Path, said: str) -> None:
    """A `gar compare` in a process of its own."""
    os.chdir(folder)
    executors._CELL, run._POLL_SECONDS = STAND_IN, 0.02
    os.environ["PYTHONPATH"] = PYTHONPATH
    planned = planned_runs(read_comparison("tiny.yaml"), "tiny.yaml")
    Path(said).write_text("\n".join(run_here(planned)))


def test_two_comparisons_share_the_cells(plan):
    _, planned = plan(seeds=[0])
    prepare(planned)
    calls = [FORKSERVER.Process(target=compare_in, args=(Path.cwd(), said)) for said in ("one", "two")]
    for call in calls:
        call.start()
    for call in calls:
        call.join(SECONDS)
    assert [call.exitcode for call in calls] == [0, 0]
    assert cell.LOCKED == stand_in.LOCKED
    trained = [line.split()[0] for line in ORDER.read_text().splitlines()]
    assert sorted(trained) == sorted(each.folder.name for each in planned)
    for said in ("one", "two"):
        assert {each.title for each in planned} == set(re.findall("^(.*): finished", Path(said).read_text(), re.M))
    _, others = plan(name="other", seeds=[0, 1], runs=["gar-grpo", {"label": "mine", "method": "grpo"}])
    assert [*finished_results(others)] == [("gar-grpo", 0), ("mine", 0)]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends a cell with its parent")
def test_a_cell_ends_with_its_comparison(plan):
    _, (planned,) = plan(seeds=[17], runs=["grpo"])
    comparison = FORKSERVER.Process(target=compare_in, args=(Path.cwd(), "said"))
    comparison.start()
    asleep = planned.folder.with_name(f"{planned.folder.name}.asleep")
    while not asleep.exists() or not asleep.read_text():
        assert comparison.is_alive(), Path("said").read_text()
        time.sleep(0.01)
    process = psutil.Process(int(asleep.read_text()))
    comparison.kill()
    comparison.join()
    deadline = time.monotonic() + SECONDS
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the cell still runs"
        time.sleep(0.02)


@pytest.fixture
def finished(plan, monkeypatch):
    """A run that was trained to its end and has no result yet; training it again is noted."""
    _, (planned,) = plan(seeds=[0], runs=["grpo"])
    write_run(planned.config)
    planned.config_path.write_text(dump_config(planned.config))
    trained = []

    def train(mode, target):
        trained.append(mode)
        write_run(make_config(read_config(target)))

    monkeypatch.setattr(cell, "_train", train)
    return planned, trained


def test_a_finished_run_gets_its_result_without_its_cost_and_is_not_trained_again(finished):
    planned, trained = finished
    for _ in range(2):
        cell.run_cell(str(planned.config_path), [], 0.0)
        made = finished_result(planned)
        assert (trained, made.resumed, made.wall_seconds, made.steps) == ([], True, 0.0, 4)


def test_a_finished_run_that_has_lost_what_the_result_needs_is_trained_again(finished):
    planned, trained = finished
    for lost in ("evaluation/after.json", "rollouts/step-000003.parquet", "config.yaml"):
        (planned.folder / lost).unlink()
        (planned.folder / "result.json").unlink(missing_ok=True)
        assert finished_result(planned) is None
        cell.run_cell(str(planned.config_path), [], time.perf_counter())
        assert trained.pop() == "train"
        assert not finished_result(planned).resumed
