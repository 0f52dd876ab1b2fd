"""The bench by hand and on the embedded model, its command, and its committed results."""

import math

import numpy as np
import pytest
import torch

from paper.analyses.similarities import committed
from paper.analyses.similarities.__main__ import main
from paper.analyses.similarities.bench import rank_share, run_bench
from paper.analyses.similarities.forms import CONTROLS, SIMILARITIES
from paper.analyses.similarities.questions import Triple
from paper.analyses.similarities.study import Scope, signal_study
from paper.analyses.similarities.tokens import SolutionTokens

pytestmark = pytest.mark.paper


def tokens(count: int, text: str = "") -> SolutionTokens:
    rows, sizes = torch.ones(count, 2), torch.ones(2)
    return SolutionTokens(gradients=rows, hidden=rows, log_probs=torch.zeros(count), text=text, sizes=sizes)


def triple(better: int, worse: int, *, kind: str = "x", problem: str = "p") -> Triple:
    return Triple(question="sound", kind=kind, problem_id=problem, better=(better, 0), worse=(worse, 0))


SOLUTIONS = [tokens(5, "anchor"), tokens(20, "3"), tokens(21, "1"), tokens(30, "3"), tokens(0, "9")]


def score(response: SolutionTokens, anchor: SolutionTokens) -> float:
    assert anchor.text == "anchor"
    return float(response.text)


def test_run_bench_by_hand():
    triples = [triple(1, 2), triple(2, 1, problem="q"), triple(1, 3), triple(1, 4), triple(1, 2, kind="y")]
    bench = run_bench(triples, SOLUTIONS, {"score": score})
    share = bench.shares["score"]["sound: x"]  # right, wrong, a tie, and one without a token
    assert (share.share, share.num_triples, share.num_problems) == (0.5, 3, 2)
    assert bench.shares["score"]["sound: y"].share == 1
    equal = bench.equal_lengths["score"]["sound: x"]  # 20 and 21 tokens, but not 20 and 30
    assert (equal.share, equal.num_triples) == (0.5, 2)
    assert bench.data.column_names[-2:] == ["score, better", "score, worse"]
    assert math.isnan(bench.data["score, worse"].to_pylist()[3])
    assert bench.data["tokens_worse"].to_pylist() == [21, 20, 30, 0, 21]


def test_rank_share_resamples_problems():
    # two problems of 50 equal triples each: a resample has two, one or none of the good one
    wins, problems = np.repeat([1.0, 0.0], 50), np.repeat(["p", "q"], 50)
    share = rank_share(np.stack([wins, wins, 1 - wins]), problems)
    assert (share.share, share.low, share.high) == (0.5, 0.0, 1.0)
    many = rank_share(np.tile([1.0, 0.0], (3, 50)), np.arange(100))
    # sd of a share of 100 is 0.05, so that a 95% interval is 0.4 to 0.6
    assert (many.low, many.high) == pytest.approx((0.4, 0.6), abs=0.02)


@pytest.mark.slow
def test_signal_study_of_the_embedded_policy_finds_what_is_known(embedded):
    """On the base policy the raw gradient sees the method past the words, and a text's similarity only the words."""
    shares = signal_study(embedded, Scope(num_problems=6, sampled_problems=4)).bench.shares
    assert [shares[name]["over-wording: running"].share for name in ("gradient", "text")] == [1.0, 0.0]
    assert shares["length"]["sound: wrong value"].share == 0.5
    assert shares["ordered, scaled"]["sound: wrong value"].share == 1.0
    assert set(shares) == {*SIMILARITIES, *CONTROLS}


@pytest.mark.slow
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
