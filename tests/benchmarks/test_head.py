"""benchmarks/head.py measures ways to one and the same result."""

import json
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
    ways = {
        name: way for name, way in head.all_ways(case).items() if not name.startswith(head.BARE) and "span" not in name
    }
    assert {"ours", "autograd", "autograd with dW"} <= set(ways)
    for name, way in ways.items():
        assert head.disagreement(way, case) <= tolerance, name


def test_results_of_other_shapes_stay_and_those_of_other_machines_go(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import head

    out = tmp_path / "head-cpu.json"
    for shape, dtype, tokens in (
        ("1024x151936", "float32", 1),
        ("256x4096", "bfloat16", 2),
        ("1024x151936", "float32", 3),
    ):
        head.keep({"shape": shape, "dtype": dtype, "tokens": tokens}, out)
    assert [one["tokens"] for one in json.loads(out.read_text())["results"]] == [2, 3]
    monkeypatch.setattr(head, "machine", lambda: {"device": "another"})
    head.keep({"shape": "256x4096", "dtype": "float32", "tokens": 4}, out)
    assert [one["tokens"] for one in json.loads(out.read_text())["results"]] == [4]
