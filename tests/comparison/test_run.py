"""Cells side by side, with a stand-in for training that ends in every way a run can end."""

import contextlib
import os
import re
import sys
from pathlib import Path

import psutil
import pytest

from gar.cli.main import main
from gar.comparison import compare, pool
from gar.comparison.compare import Comparison
from gar.comparison.pool import LocalPool
from gar.comparison.result import finished_result, finished_results
from gar.errors import RecordError
from gar.interrupts import end_with_parent
from tests.comparison import stand_in
from tests.comparison.finished import prepare, result, write_run
from tests.support.damage import flip
from tests.support.errors import raises
from tests.support.files import full_disk
from tests.support.processes import SECONDS, wait_until
from tests.support.ranks import FORKSERVER
from tests.support.runs import contents

ORDER = Path("runs/compare/order.txt")


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(pool, "_GAR", (stand_in.__file__,))
    monkeypatch.setattr(compare, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(compare, "save_figure", lambda figure, stem: [])  # takes seconds
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def run_here(capsys, *, pool=None) -> list[str]:
    """What is said, without times and counts. The notes of the report are the last lines."""
    Comparison("tiny.yaml").run(pool or LocalPool([None]))
    return [re.sub(r"^\d\S+ +\S+ ", "", text) for text in re.split(r"\n(?=\d\d:|- |#)", capsys.readouterr().out)]


def started() -> list[str]:
    """The processes that were started, with threads and devices."""
    return [re.sub(r"-[0-9a-f]{12}", "", line) for line in ORDER.read_text().splitlines()]


def test_cells_start_seed_by_seed_and_failures_are_told_and_left(plan, capsys):
    _, planned = plan(seeds=[0, 13])
    prepare(planned)
    said = run_here(capsys)
    names = [f"{method}-seed-{seed}" for seed in (0, 13) for method in ("grpo", "gar-grpo")]
    assert started() == [f"{name} 1 None" for name in names]
    assert said[0] == "grpo, seed 0: started"
    assert re.match("grpo, seed 0: finished in . s.* test pass@1 0.375", said[1])
    (failed,) = [line.splitlines() for line in said if "FAILED" in line]
    assert failed[:-1] == ["grpo, seed 13: FAILED: exit status 3", "    this line and", "    the next one"]
    assert "| grpo | 1 of 2 |" in said[-1] + said[-2] + said[-3]
    results = finished_results(planned)
    assert len(results) == 3
    made = results["grpo", 0]
    assert (made.resumed, made.cpu_seconds > 0, made.peak_memory_bytes > 2**20) == (False, True, True)
    _, planned = plan(seeds=[14], runs=["grpo"])
    assert "grpo, seed 14: FAILED: killed by signal 9: was the machine out of memory?" in "".join(run_here(capsys))


class Interrupted(LocalPool):
    """Ctrl-C comes once two cells sleep."""

    def ended(self):
        if len(list(ORDER.parent.glob("*.asleep"))) == 2:
            raise KeyboardInterrupt
        return super().ended()


def test_ctrl_c_interrupts_the_runs_that_are_under_way_each_on_its_devices(plan):
    _, planned = plan(seeds=[15, 16])
    with pytest.raises(KeyboardInterrupt):
        Comparison("tiny.yaml").run(Interrupted(["0,1", "2,3"]))
    assert sorted(line.split()[2] for line in started()) == ["0,1", "2,3"]
    assert len(list(ORDER.parent.glob("*.interrupted"))) == 2
    assert finished_results(planned) == {}


def test_results_that_are_not_paired_stop_the_comparison(plan, capsys):
    _, planned = plan(seeds=[16, 18])
    prepare(planned)
    with raises(RecordError, "other-prompts"):
        run_here(capsys)
    assert "seed-18" not in ORDER.read_text()


def compare_in(folder: Path, said: str) -> None:
    """A `gar compare` in a process of its own."""
    end_with_parent()
    os.chdir(folder)
    pool._GAR, compare._POLL_SECONDS, compare.save_figure = (stand_in.__file__,), 0.02, lambda figure, stem: []
    with open(said, "w") as file, contextlib.redirect_stdout(file):
        Comparison("tiny.yaml").run(LocalPool([None]))


@pytest.mark.slow
def test_two_comparisons_share_the_cells(plan):
    _, planned = plan(seeds=[0])
    prepare(planned)
    calls = [FORKSERVER.Process(target=compare_in, args=(Path.cwd(), said), daemon=True) for said in ("one", "two")]
    for call in calls:
        call.start()
    for call in calls:
        call.join(SECONDS)
    assert [call.exitcode for call in calls] == [0, 0]
    trained = [line.split()[0] for line in ORDER.read_text().splitlines()]
    assert sorted(trained) == sorted(each.folder.name for each in planned)
    for said in ("one", "two"):
        assert Path(said).read_text().count(" | 1 of 1 | ") == 2  # both end with the whole table
    _, others = plan(name="other", seeds=[0, 1], runs=["gar-grpo", {"label": "mine", "method": "grpo"}])
    assert [*finished_results(others)] == [("gar-grpo", 0), ("mine", 0)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends a cell with its parent")
def test_a_cell_ends_with_its_comparison(plan):
    _, (planned,) = plan(seeds=[15], runs=["grpo"])
    comparison = FORKSERVER.Process(target=compare_in, args=(Path.cwd(), "said"), daemon=True)
    comparison.start()
    asleep = planned.folder.with_name(f"{planned.folder.name}.asleep")
    assert wait_until(lambda: asleep.exists() and asleep.read_text())
    process = psutil.Process(int(asleep.read_text()))
    comparison.kill()
    comparison.join(SECONDS)
    assert wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


def test_a_finished_run_gets_its_result_without_its_cost_and_is_not_trained_again(plan, capsys):
    _, (planned,) = plan(seeds=[0], runs=["grpo"])
    write_run(planned.config)
    run_here(capsys)
    made = finished_result(planned)
    assert (made.resumed, made.wall_seconds, made.steps) == (True, 0.0, 4)
    whole = result(planned, {"test": [1, 2]})  # as another comparison leaves it
    run_here(capsys)
    assert finished_result(planned) == whole
    assert not ORDER.exists()  # nothing was started


def files(folder: Path) -> dict[str, bytes]:
    """Less locks and the checksums, which a result is added to."""
    return contents(folder, ".lock", "SHA256SUMS")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("evaluation/after/test/metrics.json", flip),
        ("rollouts/steps-000001-000003.parquet", Path.unlink),
        ("run.json", flip),
        ("result.json", flip),
    ],
)
def test_a_damaged_run_fails_its_cell_and_is_left_as_it_is(plan, capsys, name, damage):
    _, (damaged, other) = plan(seeds=[0])
    prepare([other])
    result(damaged, {"test": [1, 2]})
    if name != "result.json":
        (damaged.folder / "result.json").unlink()
    damage(damaged.folder / name)
    before = files(damaged.folder)
    said = run_here(capsys)
    assert files(damaged.folder) == before
    (failed,) = [text for text in said if "FAILED" in text]
    assert failed.startswith("grpo, seed 0: FAILED: ")
    assert name in failed
    assert [*finished_results([other])] == [("gar-grpo", 0)]  # the other went on
    assert main(["compare", "tiny.yaml", "--report"]) == (name == "result.json")
    assert main(["compare", "tiny.yaml", "--workers", "1"]) == 1


def test_a_full_disk_under_the_result_fails_its_cell_and_the_next_command_goes_on(plan, capsys):
    _, planned = plan(seeds=[0])
    prepare(planned)

    class Full(LocalPool):
        """The disk is full when the first cell ends."""

        def ended(self):
            with full_disk(0) if not finished_results(planned[1:]) else contextlib.nullcontext():
                yield from super().ended()

    said = run_here(capsys, pool=Full([None]))
    assert "FAILED" in "".join(text for text in said if text.startswith("grpo, seed 0"))
    assert (planned[0].folder / "evaluation/after/test/metrics.json").exists()
    assert [*finished_results(planned)] == []
    said = run_here(capsys)
    assert [*finished_results(planned)] == [("grpo", 0), ("gar-grpo", 0)]
    assert len(started()) == 2  # neither is trained again
