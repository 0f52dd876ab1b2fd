"""paper/analyses/solution_methods.py counts the right responses of finished runs by method."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paper.analyses import solution_methods

pytestmark = pytest.mark.paper

STEPWISE = "<think> 3 + 4 = 7 then 7 + 2 = 9 </think> <answer> 9 </answer>"
RUNNING = "<think> ok is 7 then is 9 so </think> <answer> 9 </answer>"
GUESS = "<think> ok maybe is 9 so </think> <answer> 9 </answer>"


def write_step(run: Path, step: int, *rows: tuple[str, bool], source: str = "arithmetic") -> None:
    (run / "rollouts").mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text(f"data: {{source: {source}}}")
    columns = {
        "step": [step] * len(rows),
        "group_index": [0] * len(rows),
        "response_index": list(range(len(rows))),
        "prompt": ["3+4+2="] * len(rows),
        "response": [text for text, _ in rows],
        "verified": [right for _, right in rows],
    }
    pq.write_table(pa.table(columns), run / "rollouts" / f"step-{step:06d}.parquet")


def finish(run: Path) -> None:
    (run / "evaluation").mkdir()
    (run / "evaluation" / "after.json").write_text("{}")


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
    for seed, text in enumerate((STEPWISE, GUESS)):
        write_step(tmp_path / f"gar-grpo-seed-{seed}", 1, (text, True))
        finish(tmp_path / f"gar-grpo-seed-{seed}")
    write_step(tmp_path / "grpo-seed-0", 1, (RUNNING, True))
    monkeypatch.setattr("sys.argv", ["solution_methods.py", str(tmp_path)])
    solution_methods.main()
    shown = capsys.readouterr().out
    assert "gar-grpo" in shown
    assert "0.00 to 1.00" in shown
    assert "grpo " not in shown.replace("gar-grpo", "")
