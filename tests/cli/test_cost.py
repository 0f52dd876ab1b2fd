"""`gar cost`: numbers from shapes, in words."""

import pytest

from gar.cli.main import main


def test_cost_prints_the_routes_of_a_model_without_a_network(capsys):
    assert (
        main(["cost", "--model", "Qwen/Qwen3-8B", "--responses", "16", "--tokens", "1024", "--pass-rate", "0.4"]) == 0
    )
    printed = capsys.readouterr().out
    assert "6.95 billion parameters in 36 layers" in printed
    assert [line.split()[3] for line in printed.splitlines() if "captured" in line] == ["1.45%"]


def test_cost_leaves_out_what_needs_a_log_prob_pass(capsys):
    assert main(["cost", "--model", "embedded", "--no-log-prob-pass"]) == 0
    printed = capsys.readouterr().out
    assert "captured" in printed
    assert "logits" not in printed


def test_cost_refuses_numbers_out_of_range(capsys):
    assert main(["cost", "--model", "embedded", "--pass-rate", "2"]) == 1
    assert capsys.readouterr().err == "gar cost: pass_rate must be at most 1, got 2.0\n"


def test_cost_help_fits_80_columns(capsys):
    with pytest.raises(SystemExit):
        main(["cost", "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
