"""`gar analyze`: files, table, notes and errors."""

import pytest

from gar.cli.analyze import _parser, _settings
from gar.cli.main import main
from gar.records import RunFolder


def test_analyze_explains_what_it_cannot_read(tmp_path, capsys):
    assert main(["analyze", "silent-groups", str(tmp_path / "none")]) == 1
    assert "gar analyze: " in (error := capsys.readouterr().err)
    assert "no such folder" in error
    RunFolder.create(tmp_path, "empty")
    assert main(["analyze", "alignment", str(tmp_path / "empty")]) == 1
    assert "no run.json, metrics.jsonl or rollouts" in capsys.readouterr().err


def test_analyze_help_names_every_analysis(capsys):
    with pytest.raises(SystemExit):
        main(["analyze", "--help"])
    shown = capsys.readouterr().out
    for name in ("signals", "alignment", "gradient-space", "silent-groups", "tokens", "theory"):
        assert f"    {name}" in shown


@pytest.mark.parametrize("name", ["gradient-space", "tokens", "signals", "theory"])
def test_analyze_takes_settings_for_a_model_without_a_run(name):
    given = ["--template", "boxed", "--format", "none", "--max-tokens", "9", "--dtype", "bfloat16"]
    assert _settings(_parser().parse_args([name, "model", *given])) == {
        "data": {"template": "boxed"},
        "verify": {"format": "none"},
        "trl": {"max_completion_length": 9},
        "model": {"dtype": "bfloat16"},
    }
    assert _settings(_parser().parse_args([name, "model"])) == {}


@pytest.mark.parametrize(
    ("name", "number", "words"),
    [
        ("theory", "0", "--samples: must be at least 1, got 0"),
        ("signals", "0", "--samples: must be at least 1, got 0"),
        ("tokens", "-1", "--samples: must be at least 0, got -1"),
        ("gradient-space", "-1", "--samples: must be at least 0, got -1"),
    ],
)
def test_analyze_refuses_to_sample_too_few(name, number, words, capsys):
    assert main(["analyze", name, "embedded", "--samples", number]) == 2
    assert words in capsys.readouterr().err


def test_analyze_method_study_is_signals_by_its_old_name(tmp_path, capsys):
    few = ["--problems", "2", "--sampled-problems", "0", "--out", str(tmp_path)]
    assert main(["analyze", "method-study", "embedded", *few]) == 0
    assert "method-study is part of: gar analyze signals" in capsys.readouterr().err
    assert (tmp_path / "signals.json").exists()
