"""paper/comparisons/word_problems.py counts training responses of finished runs."""

import re
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from gar.analysis.style import COLORS, INK
from gar.records.samples import SampleRecord
from paper.comparisons.results import read_results
from paper.comparisons.word_problems import after, draw, quarters
from tests.rows import rollout, run_folder

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


def test_after_counts_the_responses_to_the_test_problems(tmp_path):
    rows = [("test", STEPS, True), ("test", STEPS, False), ("test", REDUCTION, True), ("harder", STEPS, True)]
    names = {field.name for field in fields(SampleRecord)} - {"set_name"}
    row = {name: value for name, value in asdict(rollout()).items() if name in names}
    samples = [SampleRecord(**row | {"set_name": s, "response": text, "verified": right}) for s, text, right in rows]
    run_folder(tmp_path).write_samples("after", samples)
    assert list(after(tmp_path).values()) == [pytest.approx(2 / 3), 0.5, 1.0]


def test_draw_has_a_line_for_each_seed_in_the_color_of_its_row(tmp_path):
    _, svg = draw(read_results("word-methods").measured, tmp_path / "drawn")
    colors = re.findall(r"fill: none; stroke: (#[0-9a-f]{6}); stroke-width: 1.5", svg.read_text())
    assert colors == [color.lower() for color in (INK, *COLORS[:2]) for _ in range(2)]
