"""paper/analyses/solution_methods.py counts the right responses of finished runs by method."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from gar.records import RunFolder
from paper.analyses import solution_methods
from tests.rows import rollout, run_folder

pytestmark = pytest.mark.paper

STEPWISE = "<think> 3 + 4 = 7 then 7 + 2 = 9 </think> <answer> 9 </answer>"
RUNNING = "<think> ok is 7 then is 9 so </think> <answer> 9 </answer>"
GUESS = "<think> ok maybe is 9 so </think> <answer> 9 </answer>"


def write_step(run: Path, step: int, *rows: tuple[str, bool], source: str = "arithmetic") -> None:
    records = [
        rollout(step, index=index, prompt="3+4+2=", response=text, verified=right)
        for index, (text, right) in enumerate(rows)
    ]
    run_folder(run, source=source).write_rollouts(step, records)


def finish(run: Path) -> None:
    RunFolder(run).write_json("evaluation/after.json", {"sets": {}})


@pytest.mark.parametrize("last", [1, 10])
def test_shares_are_those_of_right_responses_of_the_last_generations(tmp_path, last, monkeypatch):
    monkeypatch.setattr(solution_methods, "LAST", last)
    write_step(tmp_path, 1, (RUNNING, True), (RUNNING, True))
    write_step(tmp_path, 2, (STEPWISE, True), (GUESS, True), (RUNNING, False))
    # The stepwise response mixes its wordings, and counts for none.
    expert, habit, guess, words = (0.5, 0.0, 0.5, 0.5) if last == 1 else (0.25, 0.5, 0.25, 0.75)
    found = solution_methods.method_shares(tmp_path)
    assert found == {"expert": expert, "habit": habit, "guess": guess, "words": words}


def test_roles_are_those_of_the_task_and_the_problem(tmp_path):
    prefix = "<think> [ + 3 4 = 7 ; + 7 2 = 9 ] </think> <answer> 9 </answer>"
    write_step(tmp_path, 1, (prefix, True), (STEPWISE, True), (RUNNING, False), source="which-way")
    # 3 is odd: stepwise is the expert's method
    assert solution_methods.method_shares(tmp_path) == {"expert": 0.5, "habit": 0.5, "guess": 0.0, "words": 0.0}


def test_only_finished_runs_are_shown(tmp_path, monkeypatch, capsys):
    cells = [
        SimpleNamespace(label=label, folder=tmp_path / str(i)) for i, label in enumerate(["gar-grpo"] * 2 + ["grpo"])
    ]
    for cell, text in zip(cells, (STEPWISE, GUESS, RUNNING), strict=True):
        write_step(cell.folder, 1, (text, True))
    finish(cells[0].folder)
    finish(cells[1].folder)
    monkeypatch.setattr(solution_methods, "read_comparison", lambda source: None)
    monkeypatch.setattr(solution_methods, "planned_runs", lambda comparison, source: cells)
    monkeypatch.setattr("sys.argv", ["solution_methods.py", "tiny.yaml"])
    solution_methods.main()
    shown = capsys.readouterr().out
    assert "gar-grpo" in shown
    assert "0.00 to 1.00" in shown
    assert "grpo " not in shown.replace("gar-grpo", "")
