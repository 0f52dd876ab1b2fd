"""paper/analyses/solution_methods.py counts the right responses of finished runs by method."""

from pathlib import Path

import pytest

from paper.analyses import solution_methods
from tests.support.rows import rollout, run_folder

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


@pytest.mark.parametrize("last", [1, 10])
def test_shares_are_those_of_right_responses_of_the_last_generations(tmp_path, last, monkeypatch):
    monkeypatch.setattr(solution_methods, "LAST", last)
    write_step(tmp_path, 1, (RUNNING, True), (RUNNING, True))
    write_step(tmp_path, 2, (STEPWISE, True), (GUESS, True), (RUNNING, False))
    # The stepwise response mixes its wordings, and counts for none.
    expert, habit, guess, words = (0.5, 0.0, 0.5, 0.5) if last == 1 else (0.25, 0.5, 0.25, 0.75)
    found = solution_methods.method_shares(tmp_path)
    assert found == {"expert": expert, "habit": habit, "guess": guess, "words": words}
