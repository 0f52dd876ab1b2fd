"""The notebooks run from top to bottom, every cell, and show what their text promises."""

import ast
import contextlib
import io
import json
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PNG = b"\x89PNG\r\n"


def run_notebook(path: Path) -> tuple[str, int]:
    """Run the code cells in one namespace.

    Returns:
        What they print, and how many pictures their last lines show.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    printed, num_pictures = io.StringIO(), 0
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"]), f"{path.name}, cell {number}").body
        shown = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.Module(body, []), f"{path.name}, cell {number}", "exec"), names)
            value = eval(compile(shown, f"{path.name}, cell {number}", "eval"), names) if shown else None
        if hasattr(value, "_repr_png_"):
            assert value._repr_png_().startswith(PNG)
            num_pictures += 1
    return printed.getvalue(), num_pictures


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_committed_without_outputs(path):
    for cell in json.loads(path.read_text())["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None)


def test_quick_start_scores_and_trains(tmp_path):
    printed, _ = run_notebook(EXAMPLES / "quick_start.ipynb")
    verdicts = re.findall(r"^(ok|wrong|unparsed) +<think>", printed, re.MULTILINE)
    table = re.findall(r"^(ok|wrong|unparsed) +(-|-?\d\.\d\d)  +(\d\.\d\d)  +(-?\d\.\d\d) ", printed, re.MULTILINE)
    assert len(verdicts) == len(table) == 8
    assert [row[0] for row in table] == verdicts
    right = [(float(alignment), float(bonus)) for verdict, alignment, bonus, _ in table if verdict == "ok"]
    mean = sum(alignment for alignment, _ in right) / len(right)
    assert max(bonus for _, bonus in right) > 0.1
    assert all(bonus == pytest.approx(0.5 * max(0, alignment - mean), abs=0.01) for alignment, bonus in right)
    total, alignment = re.findall(r"^sum +(\S+)  alignment (\S+)$", printed, re.MULTILINE)[0]
    assert float(total) == pytest.approx(float(alignment), abs=2e-3)
    assert re.findall(r"^(\d) \{'reward'", printed, re.MULTILINE) == ["1", "2", "3"]
    assert list(tmp_path.iterdir()) == []


def test_analysis_shows_four_figures_of_a_run(tmp_path):
    printed, num_pictures = run_notebook(EXAMPLES / "analysis.ipynb")
    assert num_pictures == 4
    counts = re.findall(r"^(all correct|all wrong|equal otherwise|mixed) +(\d+) groups, +(\d+) woken", printed, re.M)
    assert sum(int(count) for _, count, _ in counts) == 8 * 4  # steps x problems
    assert len(re.findall(r"^steps \d to \d: -?\d\.\d\d \[", printed, re.MULTILINE)) == 4
    assert re.search(r"^\d+ of 32 responses are correct$", printed, re.MULTILINE)
    assert re.search(r"^gradient +1\.00 +1\.00$", printed, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []
