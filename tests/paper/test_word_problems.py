"""paper/comparisons/word_problems.py counts training responses of finished runs."""

from pathlib import Path

import pytest

from paper.comparisons.word_problems import quarters
from tests.support.rows import rollout, run_folder

pytestmark = pytest.mark.paper
STEPS = "<think>4 * 6 = 24. 24 - 5 = 19.</think><answer>19</answer>"
EXPRESSION = "<think>4 * 6 - 5 = 19 pens.</think><answer>19</answer>"
REDUCTION = "<think>4 * 6 - 5 = 24 - 5 = 19 pens.</think><answer>19</answer>"


def write_step(run: Path, step: int, rows: list[tuple[str, bool, float | None]]) -> None:
    records = [
        rollout(step, index=index, response=text, verified=verified, alignment=alignment)
        for index, (text, verified, alignment) in enumerate(rows)
    ]
    run_folder(run).write_rollouts(step, records)


def test_quarters_are_means_over_correct_responses(tmp_path):
    write_step(tmp_path, 1, [(STEPS, True, 0.5), (REDUCTION, True, 0.3), (REDUCTION, False, 0.9)])
    for step in (2, 3):
        write_step(tmp_path, step, [(EXPRESSION, True, 0.25)])
    write_step(tmp_path, 4, [(STEPS, False, None)])
    first, second, _, last = quarters(tmp_path)
    assert list(first.values()) == [pytest.approx(2 / 3), 0.5, 0.5, 0.4, pytest.approx(0.2)]
    assert list(second.values()) == [1.0, 0.0, 1.0, 0.25, None]
    assert list(last.values()) == [0.0, None, None, None, None]
