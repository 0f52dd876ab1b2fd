"""The command's output on the embedded model, and on two policies."""

import pytest

from paper.analyses.similarities.__main__ import main
from paper.analyses.similarities.forms import CONTROLS, SIMILARITIES
from paper.analyses.similarities.study import Scope, SignalStudy, signal_study

pytestmark = pytest.mark.paper

SMALL = Scope(num_problems=6, sampled_problems=4)


@pytest.fixture(scope="module")
def study(embedded) -> SignalStudy:
    return signal_study(embedded, SMALL)


def test_signal_study_of_the_embedded_policy_finds_what_is_known(study):
    """On the base policy the raw gradient sees the method past the words, and a text's similarity only the words."""
    shares = study.bench.shares
    assert [shares[name]["over-wording: running"].share for name in ("gradient", "text")] == [1.0, 0.0]
    assert shares["length"]["sound: wrong value"].share == 0.5
    assert shares["ordered, scaled"]["sound: wrong value"].share == 1.0
    assert set(shares) == {*SIMILARITIES, *CONTROLS}


def test_the_bench_runs_by_its_command(tmp_path, capsys):
    main(["embedded", "--problems", "2", "--sampled-problems", "0", "--out", str(tmp_path)])
    assert {path.suffix for path in tmp_path.iterdir()} == {".parquet", ".json", ".md", ".svg", ".png"}
    assert "as printed" in capsys.readouterr().out
