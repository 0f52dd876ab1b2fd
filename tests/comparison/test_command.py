"""`gar compare` as it is called: its exit status, its flags, its words on a plain stream."""

import shutil
from pathlib import Path

import pytest

from gar.cli.main import main
from gar.comparison import compare
from gar.comparison.executors import LocalPool
from tests.comparison.finished import result


@pytest.fixture
def started(plan, monkeypatch):
    """A comparison of which no run is ever started; what would be."""
    started = []
    monkeypatch.setattr(
        compare, "run_cells", lambda cells, *_: started.extend(cell for cell in cells if not cell.folder.exists())
    )
    monkeypatch.setattr(compare, "save_figure", lambda figure, stem: [])  # takes seconds
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


def test_compare_only_and_seed_run_their_cells_and_write_no_tables(started, capsys):
    for flags, titles in (
        (["--only", "gar-grpo", "--seed", "1"], ["gar-grpo, seed 1"]),
        (["--only", "gar-grpo"], ["gar-grpo, seed 0", "gar-grpo, seed 1"]),
        (["--seed", "1"], ["grpo, seed 1", "gar-grpo, seed 1"]),
    ):
        assert main(["compare", "tiny.yaml", *flags]) == 1
        assert [run.title for run in started] == titles
        for run in started:
            result(run, {"test": [1, 2]})
        assert main(["compare", "tiny.yaml", *flags]) == 0
        counts = f"{len(titles)} of {len(titles)} runs have a result."
        assert f"{counts} Tables: gar compare tiny.yaml --report" in capsys.readouterr().out
        started.clear()
        shutil.rmtree("runs")
    assert not Path("results/tiny/table.md").exists()


@pytest.mark.usefixtures("started")
def test_compare_flags_reach_the_pool_and_the_cluster(monkeypatch):
    made = []
    monkeypatch.setattr("gar.comparison.executors.LocalPool", lambda *values: made.append(values) or LocalPool([None]))
    monkeypatch.setattr("gar.comparison.executors.ClusterJobs", lambda *values, **named: made.append((values, named)))
    assert main(["compare", "tiny.yaml", "--workers", "2", "--launch", "torchrun x"]) == 1
    assert made.pop() == ([None, None], 1, ["torchrun", "x"])
    flags = ["--executor", "slurm", "--slurm", "partition=gpu", "gpus_per_node=8", "--workers", "4"]
    assert main(["compare", "tiny.yaml", *flags]) == 1
    values, named = made.pop()
    assert values == ("slurm", {"partition": "gpu", "gpus_per_node": 8}, Path("runs/compare/jobs"))
    assert named == {"threads": 1, "launcher": [], "parallel": 4}


@pytest.mark.usefixtures("started")
def test_compare_rejects_wrong_usage(capsys):
    for flags, status, text in (
        (["--only", "gar-gpro"], 1, "tiny has no row 'gar-gpro'. Did you mean 'gar-grpo'?"),
        (["--seed", "7"], 1, "tiny has no seed 7. Its seeds: 0, 1."),
        (["--executor", "slurm", "--slurm", "gpu"], 1, "expected NAME=VALUE"),
        (["--slurm", "partition=gpu"], 2, "add --executor slurm"),
        (["--executor", "slurm", "--gpus", "8"], 2, "--slurm gpus_per_node=N"),
        (["--report", "--seed", "1"], 2, "leave out --only and --seed"),
        (["--report", "--dry-run"], 2, "choose one of --report and --dry-run."),
        (["--workers", "0"], 2, "workers"),
    ):
        try:
            ended = main(["compare", "tiny.yaml", *flags])
        except SystemExit as exited:  # of tyro
            ended = exited.code
        assert (ended, text in capsys.readouterr().err) == (status, True)
