"""The benchmark of the start measures first lines, and finds what a command leaves behind. Never how fast it was."""

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "startup.py"
spec = importlib.util.spec_from_file_location("startup", PATH)
assert spec is not None
assert spec.loader is not None
startup = importlib.util.module_from_spec(spec)
spec.loader.exec_module(startup)


def test_startup_measures_the_first_line_and_finds_what_is_left_behind(monkeypatch):
    monkeypatch.setattr(startup, "GAR", [sys.executable, "-c"])
    monkeypatch.setattr(startup, "BARE", [sys.executable, "-c", "pass"])
    late = "import time; print('first'); time.sleep(60)"
    monkeypatch.setattr(startup, "COMMANDS", {"late": [late]})
    result = startup.measure(1)
    assert result["bare import of TRL"]["ratio"] == 1.0
    assert result["late"]["seconds"] < 30
    monkeypatch.setattr(startup, "COMMANDS", {"litter": ["open('left', 'w')"]})
    with pytest.raises(SystemExit, match="left behind: left"):
        startup.measure(1)
