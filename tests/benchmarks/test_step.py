"""benchmarks/step.py and scale.py run every way they measure, at the smallest sizes."""

import json
from pathlib import Path

import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_step_measures_every_way(monkeypatch, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import step

    tiny = dict(
        step.MODELS["tiny"], vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=2, head_dim=8
    )
    monkeypatch.setitem(step.MODELS, "tiny", tiny)
    group = step.GROUP._replace(responses=4, prompt_tokens=3, response_tokens=8, span_tokens=4, anchor_tokens=6)
    result = step.run("tiny", group, "cpu", rounds=1)
    ways = {"released", "forward", "captured", "g2rl", "grad2reward"}
    assert set(result["share_of_the_step"]) == ways
    assert result["predicted_share"]["released"] > result["predicted_share"]["captured"] > 0
    step.print_table(result)
    assert "a plain step of" in capsys.readouterr().out
    result = step.run("embedded", group, "cpu", rounds=1, dtype=torch.bfloat16, wanted={"released", "captured"})
    assert set(result["share_of_the_step"]) == set(result["predicted_share"]) == {"released", "captured"}


def test_scale_writes_lines_of_every_quantity(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import scale

    monkeypatch.setattr(scale, "BASE", {"tokens": 16, "vocab": 64, "width": 8, "pieces": 2})
    monkeypatch.setattr(scale, "VARIED", {"tokens": [8, 16], "vocab": [32, 64], "width": [4, 8], "pieces": [1, 2]})
    monkeypatch.setattr(scale, "GROUP", {"responses": 2, "pass_percent": 50, "span": 4})
    monkeypatch.setattr(scale, "VARIED_IN_GROUP", {"responses": [2, 4], "pass_percent": [50, 100], "span": [2, 4]})
    monkeypatch.setattr(scale, "RESPONSE_TOKENS", 8)
    monkeypatch.setattr(scale, "ANCHORS", [1, 2])
    monkeypatch.setattr("sys.argv", ["scale.py", "--rounds", "1", "--out", str(tmp_path / "scale.json")])
    scale.main()
    assert list(json.loads((tmp_path / "scale.json").read_text())["varied"]) == [
        *scale.VARIED,
        *scale.VARIED_IN_GROUP,
        "anchors",
    ]
    assert "proportional part" in capsys.readouterr().out


def test_line_says_how_straight_and_how_proportional(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import scale

    found = scale.line([1, 2, 4], [3.0, 5.0, 9.0])  # 1 + 2 x
    assert found["slope"] == 2.0
    assert found["intercept"] == 1.0
    assert found["r_squared"] == 1.0
    assert found["proportional_part_at_the_largest"] == 8 / 9
    assert scale.line([1, 2, 3], [1.0, 2.0, 1.0])["r_squared"] == 0.0
