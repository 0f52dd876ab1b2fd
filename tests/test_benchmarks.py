"""Every benchmark starts, and those of the head and of a step run at the smallest sizes. Never how fast they were."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def as_scripts(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)  # as for a script that is started by its path


def test_every_benchmark_with_options_shows_them(monkeypatch, capsys):
    for path in sorted(BENCHMARKS.glob("*.py")):
        if "ArgumentParser(" in path.read_text():
            monkeypatch.setattr(sys, "argv", [path.name, "--help"])
            with pytest.raises(SystemExit, match=r"^0$"):
                runpy.run_path(str(path), run_name="__main__")
            assert "usage: " in capsys.readouterr().out, path.name


def test_all_ways_of_the_head_agree():
    import head

    case = head.make_case("64x300", torch.float32, "cpu", 32)
    ways = head.all_ways(case)
    assert {"ours", "autograd"} <= set(ways)
    for name, way in ways.items():
        if not name.startswith(head.BARE) and "span" not in name:
            assert head.disagreement(way, case) <= 1e-6, name


def test_a_step_is_measured_in_every_way(monkeypatch):
    import step

    tiny = step.MODELS["tiny"] | dict(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=2, head_dim=8
    )
    monkeypatch.setitem(step.MODELS, "tiny", tiny)
    group = step.GROUP._replace(responses=4, prompt_tokens=3, response_tokens=8, span_tokens=4, anchor_tokens=6)
    result = step.run("tiny", group, "cpu", rounds=1)
    assert set(result["share_of_the_step"]) == {"released", "forward", "captured", "g2rl", "grad2reward"}
    assert result["predicted_share"]["released"] > result["predicted_share"]["captured"] > 0
