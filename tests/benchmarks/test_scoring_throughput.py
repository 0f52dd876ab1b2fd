"""The benchmark runs, its three ways agree, and its JSON holds what the docs quote. Never how fast it was."""

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SIZES = ["1024", "4096", "16384", "65536"]
WAYS = ["one by one, autograd", "one by one", *SIZES]


@pytest.fixture
def benchmark(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)  # as for a script that is started by its path
    spec = importlib.util.spec_from_file_location("scoring_throughput", BENCHMARKS / "scoring_throughput.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["scoring_throughput.py", *arguments])
    benchmark.main()


def test_scoring_throughput_writes_what_it_measured(benchmark, monkeypatch, tmp_path, capsys):
    out = tmp_path / "new" / "scoring.json"
    run(benchmark, monkeypatch, "--responses", "16", "--rounds", "1", "--out", str(out))
    result = json.loads(out.read_text())
    assert list(result["tokens_per_second"]) == list(result["ratio_to_one_by_one"]) == WAYS
    assert result["ratio_to_one_by_one"]["one by one"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    assert min(result["tokens_per_second"].values()) > 0
    assert list(result["padded_fraction"]) == SIZES
    assert 0 <= result["padded_fraction"]["1024"] < result["padded_fraction"]["65536"] < 1
    assert set(result["peak_bytes"]) in (set(), set(WAYS))  # empty where the kernel does not say
    assert 0 < result["largest_alignment_difference"] < 1e-4
    assert result["machine"].keys() == {"platform", "cpus", "torch", "threads", "device"}
    settings = result["settings"]
    assert (settings["responses"], settings["problems"], settings["rounds"]) == (16, 2, 1)
    assert 16 * 16 <= settings["response_tokens"] <= 16 * 768
    assert "batched, 4096, default" in capsys.readouterr().out


def test_scoring_throughput_stops_where_the_ways_disagree(benchmark, monkeypatch, tmp_path):
    exact = benchmark.autograd_mean
    monkeypatch.setattr(benchmark, "autograd_mean", lambda *arguments: exact(*arguments).abs())
    out = tmp_path / "scoring.json"
    with pytest.raises(SystemExit, match="The ways disagree by up to"):
        run(benchmark, monkeypatch, "--responses", "16", "--rounds", "1", "--out", str(out))
    assert not out.exists()


def test_scoring_throughput_compares_nan_as_a_difference(benchmark):
    assert benchmark.largest_difference([0.5, 0.25], [0.5, 0.0]) == 0.25
    assert benchmark.largest_difference([0.5, 0.25], [0.5, math.nan]) == math.inf


def test_scoring_throughput_compares_every_tenth_group(benchmark):
    expected = [float(i) for i in range(11 * 8)]
    assert benchmark.largest_difference(expected, expected[:8] + expected[80:]) == 0.0
    assert benchmark.largest_difference(expected, expected[:8] + expected[79:87]) == 1.0


def test_scoring_throughput_needs_whole_groups(benchmark, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(benchmark, monkeypatch, "--responses", "12")
    assert "--responses must be a positive multiple of 8, got 12" in capsys.readouterr().err
