"""The notebooks run from top to bottom, every cell, and show what their text promises."""

import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
EXECUTE = SimpleNamespace(**runpy.run_path(str(EXAMPLES.parent / "scripts" / "execute_notebooks.py")))


def outputs_of(path: Path) -> list[Any]:
    """Run the code cells in one namespace. Returns what they print and show."""
    notebook = EXECUTE.execute(json.loads(path.read_text(encoding="utf-8")), path.name)
    return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]


def test_quick_start_scores_and_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = outputs_of(EXAMPLES / "quick_start.ipynb")
    printed = "".join(line for output in outputs for line in output.get("text", []))
    table = re.findall(r"^(ok|wrong|unparsed) +(-|-?\d\.\d\d)  +(\d\.\d\d)  +(-?\d\.\d\d) ", printed, re.MULTILINE)
    assert len(table) == 8
    right = [(float(alignment), float(bonus)) for verdict, alignment, bonus, _ in table if verdict == "ok"]
    mean = sum(alignment for alignment, _ in right) / len(right)
    assert max(bonus for _, bonus in right) > 0.1
    assert all(bonus == pytest.approx(0.5 * max(0, alignment - mean), abs=0.01) for alignment, bonus in right)
    assert re.findall(r"^(\d) \{'reward'", printed, re.MULTILINE) == ["1", "2", "3"]
    assert list(tmp_path.iterdir()) == []
