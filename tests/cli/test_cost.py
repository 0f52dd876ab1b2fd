"""`gar cost`: numbers from shapes, in words."""

import pytest

from gar.cli.main import main


def test_cost_prints_the_routes_of_a_model_without_a_network(capsys):
    assert (
        main(["cost", "--model", "Qwen/Qwen3-8B", "--responses", "16", "--tokens", "1024", "--pass-rate", "0.4"]) == 0
    )
    printed = capsys.readouterr().out
    assert "6.95 billion parameters in 36 layers" in printed
    assert [line.split()[3] for line in printed.splitlines() if "│ captured" in line] == ["1.45%"]


def test_cost_tells_seconds_and_memory_of_a_step(capsys):
    group = ["--responses", "16", "--tokens", "8192"]
    assert (
        main(["cost", "--model", "Qwen/Qwen3-8B", *group, "--problems", "100", "--gpus", "8", "--tflops", "500"]) == 0
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert "Training state: 131 GB for 8.19 billion parameters in all (16 bytes each)" in printed
    assert "256 MiB for the closed form, and 1.07 GB of hidden states for a group" in printed  # 2 * 4096 * 16 * 8192
    tera = float(printed.partition("without generation: ")[2].partition(" TFLOP")[0].replace(",", ""))
    step = float(printed.partition("500 TFLOP/s each: ")[2].partition(" seconds")[0].replace(",", ""))
    assert step == pytest.approx(100 * tera / 8 / 500, rel=0.01)


def test_cost_leaves_out_what_needs_a_log_prob_pass(capsys):
    assert main(["cost", "--model", "embedded", "--no-log-prob-pass"]) == 0
    printed = capsys.readouterr().out
    assert "captured" in printed
    assert "logits" not in printed


def test_cost_refuses_numbers_out_of_range(capsys):
    assert main(["cost", "--model", "embedded", "--pass-rate", "2"]) == 1
    assert capsys.readouterr().err == "gar cost: pass_rate must be at most 1, got 2.0\n"


def test_cost_refuses_a_machine_without_gpus(capsys):
    assert main(["cost", "--model", "embedded", "--gpus", "0"]) == 1
    assert "--problems, --gpus and --tflops must be above 0" in capsys.readouterr().err
