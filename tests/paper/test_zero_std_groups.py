"""Zero-std groups of a run, by hand."""

import sys

import pytest

from gar import DataError
from gar.records import open_run
from paper.analyses.zero_std_groups import main, output, zero_std_groups
from tests.report.runs import make_run
from tests.support.errors import raises
from tests.support.rows import rollout

pytestmark = pytest.mark.paper


def test_zero_std_groups_by_hand(tmp_path, monkeypatch, capsys):
    bonus = [rollout(1, 0, 0, bonus=0.1, reward=1.1), rollout(1, 0, 1)]
    equal = [rollout(1, 1, i) for i in range(2)]
    wrong = [rollout(2, 0, i, eligible=False, reward=0.0) for i in range(2)]
    mixed = [rollout(2, 3, 0), rollout(2, 3, 1, eligible=False, reward=0.0)]
    penalty = [rollout(2, 4, i, eligible=False, reward=-0.6 * i, penalty=-0.6 * i) for i in range(2)]
    run = make_run(tmp_path, rollouts={1: [*bonus, *equal], 2: [*wrong, *mixed, *penalty]})
    groups = zero_std_groups(open_run(run))
    assert groups.to_numpy().tolist() == [[i == j for j in range(3)] for i in (0, 1, 2, 3, 3)]
    monkeypatch.setattr(sys, "argv", ["zero_std_groups", str(run), "--out", str(tmp_path / "out")])
    main()
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".parquet", ".svg", ".png"}
    assert "all correct, rescued" in capsys.readouterr().out
    with raises(DataError):
        output(open_run(make_run(tmp_path, "bare", rollouts={})))
