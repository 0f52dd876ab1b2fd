"""Ablation and sensitivity from a results folder made by hand."""

import pytest

from paper.analyses.ablation import main as ablation_main
from paper.analyses.sensitivity import main as sensitivity_main

pytestmark = pytest.mark.paper


@pytest.mark.parametrize(
    ("main", "results"), [(ablation_main, "main"), (sensitivity_main, "rate")], ids=["ablation", "sensitivity"]
)
def test_studies_write_data_and_figure_of_committed_results(main, results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["study", results, "--out", str(tmp_path)])
    main()
    assert {path.suffix for path in tmp_path.iterdir()} == {".parquet", ".svg", ".png"}
    printed = capsys.readouterr().out.replace("\n", "")
    assert all(str(path) in printed for path in tmp_path.iterdir())
