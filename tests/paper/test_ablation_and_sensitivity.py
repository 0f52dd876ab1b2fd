"""Ablation and sensitivity from a results folder made by hand."""

from dataclasses import replace

import pytest

from gar.comparison import RunResult
from paper.analyses.ablation import ablation
from paper.analyses.ablation import main as ablation_main
from paper.analyses.sensitivity import main as sensitivity_main
from paper.analyses.sensitivity import sensitivity
from paper.comparisons.results import finished_runs

pytestmark = pytest.mark.paper
COMMITTED = finished_runs("rate")[0]


def write(folder: list, label: str, seed: int, score: float, **reward: object) -> None:
    settings = {"method": "gar-grpo", "seed": seed, "reward": {"bonus_weight": 0.5, "clip": True} | reward}
    result = replace(COMMITTED, label=label, seed=seed, settings=settings, pass_at={"test": {"1": score, "4": 1.0}})
    folder.append(result)


@pytest.fixture
def results(monkeypatch):
    """Results by hand, which every comparison has."""
    made: list[RunResult] = []
    for seed, shift in ((0, -0.1), (1, 0.1)):
        write(made, "gar-grpo", seed, 0.8 + shift)
        write(made, "beta-2", seed, 0.4 + shift, bonus_weight=2.0)
        write(made, "two", seed, 0.6 + shift, bonus_weight=1.0, clip=False)
    for study in ("ablation", "sensitivity"):
        monkeypatch.setattr(f"paper.analyses.{study}.finished_runs", lambda name: sorted(made, key=lambda r: r.label))
    return made


@pytest.mark.usefixtures("results")
def test_ablation_is_in_per_cent_below_the_best_row():
    found = ablation("hand")
    assert [(loss.label, round(loss.mean, 6)) for loss in found.losses] == [
        ("gar-grpo", 0), ("two", -25), ("beta-2", -50),
    ]  # fmt: skip
    assert found.losses[0].seeds == pytest.approx([-12.5, 12.5])


@pytest.mark.usefixtures("results")
def test_sensitivity_takes_rows_that_change_one_number():
    found = sensitivity("hand")
    (curve,) = found.curves
    assert (found.base, curve.setting, list(curve.values)) == ("gar-grpo", "reward.bonus_weight", [0.5, 2.0])
    assert curve.percent_below_peak == pytest.approx([0, -50])
    assert "two is in no curve: it changes reward.bonus_weight, reward.clip." in found.notes


@pytest.mark.parametrize(
    ("main", "results"), [(ablation_main, "main"), (sensitivity_main, "rate")], ids=["ablation", "sensitivity"]
)
def test_studies_write_data_and_figure_of_committed_results(main, results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["study", results, "--out", str(tmp_path)])
    main()
    assert {path.suffix for path in tmp_path.iterdir()} == {".parquet", ".svg", ".png"}
    printed = capsys.readouterr().out.replace("\n", "")
    assert all(str(path) in printed for path in tmp_path.iterdir())
