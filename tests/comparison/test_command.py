"""`gar compare` as it is called: its help, its exit status, its words on a plain stream."""

from pathlib import Path

import pytest

from gar.cli.main import main
from gar.comparison import compare
from gar.comparison.executors import Cluster
from tests.comparison.finished import result, write_run


@pytest.fixture
def comparison(plan, monkeypatch):
    """A comparison of which no run is ever started."""
    started = []
    monkeypatch.setattr(
        compare, "run_cells", lambda cells, *_: started.extend(cell for cell in cells if not cell.folder.exists())
    )
    _, planned = plan(seeds=[0, 1])
    return planned, started


def test_compare_runs_what_has_no_result_and_ends_with_1_until_all_have(comparison, capsys):
    planned, started = comparison
    for run in planned[:3]:
        result(run, {"test": [1, 2]})
    assert main(["compare", "tiny.yaml"]) == 1
    assert [run.title for run in started] == ["gar-grpo, seed 1"]
    result(planned[3], {"test": [1, 2]})
    assert main(["compare", "tiny.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "results/tiny/table.md" in shown
    assert "test pass@4, against grpo\nrow       seeds   mean" in shown


@pytest.mark.usefixtures("comparison")
def test_compare_names_what_ctrl_c_leaves_open(monkeypatch, capsys):
    def interrupt(waiting, *_):
        result(waiting[2], {"test": [1, 2]})
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "run_cells", interrupt)
    assert main(["compare", "tiny.yaml"]) == 130
    printed = capsys.readouterr().out
    assert "Interrupted: 1 of 4 runs have a result.\nMissing: grpo, seed 0; gar-grpo, seeds 0, 1." in printed


def test_compare_report_runs_nothing(comparison, capsys):
    planned, started = comparison
    write_run(planned[0].config).update_run(status="failed")
    assert main(["compare", "tiny.yaml", "--report"]) == 0
    assert started == []
    assert "Failed: grpo, seed 0." in Path("results/tiny/table.md").read_text()


def test_compare_dry_run_counts_and_estimates(comparison, capsys):
    planned, started = comparison
    assert main(["compare", "tiny.yaml", "--dry-run", "--workers", "2"]) == 0
    assert "4 of 4 runs to do, 2 side by side: no estimate before one has finished." in capsys.readouterr().out
    result(planned[0], {"test": [1, 2]})
    assert main(["compare", "tiny.yaml", "--dry-run", "--workers", "2"]) == 0
    shown = capsys.readouterr().out
    assert "3 of 4 runs to do, 2 side by side: about 2 min." in shown  # two rounds of 60 s
    assert "num_samples: 4" in shown
    assert "1 of 2" in shown
    assert started == []
    assert not Path("results/tiny/table.md").exists()


@pytest.mark.parametrize(
    ("flags", "titles"),
    [
        (["--only", "gar-grpo", "--seed", "1"], ["gar-grpo, seed 1"]),
        (["--only", "gar-grpo"], ["gar-grpo, seed 0", "gar-grpo, seed 1"]),
        (["--seed", "1"], ["grpo, seed 1", "gar-grpo, seed 1"]),
    ],
)
def test_compare_only_and_seed_run_their_cells_and_write_no_tables(comparison, flags, titles, capsys):
    _, started = comparison
    assert main(["compare", "tiny.yaml", *flags]) == 1
    assert [run.title for run in started] == titles
    for run in started:
        result(run, {"test": [1, 2]})
    assert main(["compare", "tiny.yaml", *flags]) == 0
    counts = f"{len(titles)} of {len(titles)} runs have a result."
    assert f"{counts} Tables: gar compare tiny.yaml --report" in capsys.readouterr().out
    assert not Path("results/tiny/table.md").exists()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--only", "gar-gpro"], "tiny has no row 'gar-gpro'. Did you mean 'gar-grpo'?"),
        (["--seed", "7"], "tiny has no seed 7. Its seeds: 0, 1."),
    ],
)
def test_compare_refuses_a_cell_that_is_not_there(comparison, flags, text, capsys):
    assert main(["compare", "tiny.yaml", *flags]) == 1
    assert text in capsys.readouterr().err


def test_compare_executor_gives_its_parameters_to_the_cluster(comparison, monkeypatch):
    _, _ = comparison
    chosen = []
    monkeypatch.setattr(compare, "ClusterJobs", lambda cluster, folder: chosen.append(cluster))
    flags = [
        "--executor",
        "slurm",
        "--slurm",
        "partition=gpu",
        "gpus_per_node=8",
        "--workers",
        "4",
        "--launch",
        "torchrun",
    ]
    assert main(["compare", "tiny.yaml", *flags]) == 1
    assert chosen == [
        Cluster(executor="slurm", parameters={"partition": "gpu", "gpus_per_node": 8}, parallel=4, launch="torchrun")
    ]


def test_compare_refuses_a_parameter_without_value(comparison, capsys):
    assert main(["compare", "tiny.yaml", "--executor", "slurm", "--slurm", "gpu"]) == 1
    assert "--slurm gpu: expected NAME=VALUE, for example partition=gpu." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["tiny.yaml", "--slurm", "partition=gpu"], "--slurm is for jobs: add --executor slurm"),
        (["tiny.yaml", "--executor", "slurm", "--gpus", "8"], "Jobs ask for their own: --slurm gpus_per_node=N"),
        (["tiny.yaml", "--report", "--seed", "1"], "--report covers the whole comparison: leave out --only and --seed"),
        ([], "CONFIG.yaml"),
        (["tiny.yaml", "--workers", "0"], "workers"),
        (["tiny.yaml", "--report", "--dry-run"], "choose one of --report and --dry-run."),
    ],
)
def test_compare_refuses_wrong_usage(arguments, text, capsys):
    try:
        status = main(["compare", *arguments])
    except SystemExit as ended:  # of tyro
        status = ended.code
    assert status == 2
    assert text in capsys.readouterr().err


def test_compare_explains_a_comparison_that_is_not_there(capsys):
    assert main(["compare", "nosuch.yaml"]) == 1
    assert capsys.readouterr().err.startswith("gar compare: nosuch.yaml: cannot read the configuration: ")
