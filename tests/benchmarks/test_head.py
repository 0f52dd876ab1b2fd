"""benchmarks/head.py measures ways to one and the same result."""

from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_all_ways_of_the_head_agree(dtype, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)  # as for a script that is started by its path
    import head

    case = head.make_case("64x300", dtype, "cpu", 32)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2  # 1 - cos; autograd in bfloat16 rounds every probability
    ways = {name: way for name, way in head.all_ways(case).items() if not name.startswith(head.BARE)}
    assert {"ours", "autograd", "autograd with dW"} <= set(ways)
    for name, way in ways.items():
        assert head.disagreement(way, case) <= (1e-2 if name in head.APPROXIMATE else tolerance), name
