"""The benchmark of grading runs and writes what the docs quote. Never how fast it was."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)  # as for a script that is started by its path
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [f"{module.__name__}.py", *arguments])
    module.main()


@pytest.mark.slow
def test_grading_writes_what_it_measured(monkeypatch, tmp_path, capsys):
    grading = load("grading", monkeypatch)
    monkeypatch.setattr(grading, "NUM_ENDLESS", 2)
    monkeypatch.setattr(grading, "TIMEOUT_SECONDS", 4.0)
    out = tmp_path / "grading.json"
    run(grading, monkeypatch, "--answers", "16", "--rounds", "1", "--out", str(out))
    result = json.loads(out.read_text())
    ours = {"ours, 1 worker", "ours, 2 workers"}
    assert result["settings"]["num_answers"] == {"as in training": 16, "expressions": 4}
    for which, num_answers in result["settings"]["num_answers"].items():
        assert min(clock["wall"] for clock in result["seconds"][which].values()) > 0
        assert result["times_as_fast_as_math_verify"][which].keys() == ours
        assert {result["right_verdicts"][which][name] for name in ours} == {num_answers}
    assert result["endless_limit_seconds"] == 4.0
    assert result["with_endless_seconds"]["min"] >= 4.0
    assert "With 2 endless answers among them" in capsys.readouterr().out


def test_grading_draws_the_same_answers_half_of_them_right(monkeypatch):
    grading = load("grading", monkeypatch)
    answers = grading.draw_answers("expressions", 400)
    assert answers == grading.draw_answers("expressions", 400)
    assert 150 < sum(answer.right for answer in answers) < 250
    assert len({answer.gold for answer in answers}) > 350
