"""studies/signal_comparison.py: one family of tests over three tasks, and the page says what the results say."""

from dataclasses import replace
from pathlib import Path

import pytest

from gar.comparison.result import RunResult
from gar.evaluation.statistics import holm_adjusted
from gar.evaluation.text_tables import markdown_text
from gar.records.files import read_json
from studies.signal_comparison import (
    METHODS,
    all_tables,
    one_family,
    read_tasks,
    steps_to_end,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tasks():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return read_tasks()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0] * 40 + [1.0] * 60, 49),  # nine of ten steps from 40 on
        ([0.5] * 100, 1),
        ([1.0] * 50 + [0.0] * 10 + [1.0] * 40, 69),  # it stays there only after the gap
    ],
)
def test_steps_to_end_is_where_the_mean_of_ten_steps_stays_high(tasks, values, expected):
    run: RunResult = next(iter(tasks[0].results.values()))
    curve = {"gar/eligible_fraction": {"step": list(range(1, 101)), "value": values}}
    assert steps_to_end(replace(run, curves=curve)) == expected
    assert steps_to_end(replace(run, curves={})) is None


def test_all_tests_of_the_three_tasks_are_one_family(tasks):
    family = one_family(tasks)
    assert len(family) == 93
    p_values = [test.t_p_value for test in family.values()]
    assert [test.holm_p_value for test in family.values()] == holm_adjusted(p_values, 93)


def test_the_page_has_the_tables_of_the_committed_results(tasks):
    page = (ROOT / "docs" / "signal-comparison.md").read_text()
    assert markdown_text(all_tables(tasks, read_json(ROOT / METHODS)), []).strip() in page
