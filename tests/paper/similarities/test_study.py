"""The bench on the embedded model, its command, and its committed results."""

import pytest

from paper.analyses.similarities import committed
from paper.analyses.similarities.__main__ import main
from paper.analyses.similarities.forms import CONTROLS, SIMILARITIES
from paper.analyses.similarities.study import Scope, signal_study

pytestmark = pytest.mark.paper


def test_signal_study_of_the_embedded_policy_finds_what_is_known(embedded):
    """On the base policy the raw gradient sees the method past the words, and a text's similarity only the words."""
    shares = signal_study(embedded, Scope(num_problems=6, sampled_problems=4)).bench.shares
    assert [shares[name]["over-wording: running"].share for name in ("gradient", "text")] == [1.0, 0.0]
    assert shares["length"]["sound: wrong value"].share == 0.5
    assert shares["ordered, scaled"]["sound: wrong value"].share == 1.0
    assert set(shares) == {*SIMILARITIES, *CONTROLS}


def test_the_bench_runs_by_its_command(tmp_path, capsys):
    main(["embedded", "--problems", "2", "--sampled-problems", "0", "--out", str(tmp_path)])
    assert {path.suffix for path in tmp_path.iterdir()} == {".parquet", ".json", ".md", ".svg", ".png"}
    assert "as printed" in capsys.readouterr().out


def test_committed_results_are_written_read_and_shown(tmp_path, capsys):
    benches = committed.read_benches()
    committed.write_benches(benches, tmp_path / "signals.parquet")
    assert committed.read_benches(tmp_path / "signals.parquet") == benches
    committed.main(["which-way"])
    assert "| text | 1.00 | 0.00 | 1.00 | 1.00 |" in capsys.readouterr().out
