"""paper/analyses/similarities/sums.py ranks weighted sums of similarities by their smallest share."""

import pandas as pd
import pytest

from paper.analyses.similarities import sums

pytestmark = pytest.mark.paper


def test_the_sum_that_sees_every_kind_is_the_best(tmp_path, monkeypatch, capsys):
    blind = {f"{term}, {side}": [0.0] * 5 for term in sums.TERMS for side in ("better", "worse")}
    values = blind | {"gradient, better": [2.0, 2.0, -1.0, 0.0, 0.0], "unit, better": [-1.0, -1.0, 2.0, 0.0, 0.0]}
    pairs = pd.DataFrame({"question": ["own", "own", "sound", "sampled", "natural"], "kind": "any", **values})
    pairs.to_parquet(tmp_path / "signals.parquet")
    monkeypatch.setattr("sys.argv", ["sums.py", str(tmp_path)])
    sums.main()
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("1.00   ")
    assert "gradient" in first
    assert "unit" in first
    kinds = sums.read_gaps(tmp_path)
    assert sums.least_share(kinds, {"gradient": 1.0}) == 0.0
    assert sums.least_share(kinds, {"kernel": 1.0}) == 0.5
