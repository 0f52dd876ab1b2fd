"""A result or a failure of a run that is no longer what was written: read as it was, or rejected by name."""

from pathlib import Path

import pytest

from gar.comparison.result import RunResult, result_of
from gar.comparison.store import failures, write_failure
from gar.errors import RecordError
from tests.comparison.finished import result, write_run
from tests.damage import damages

RUN_FILES = ("run.json", "metrics.jsonl", "evaluation/after.json", "usage.json", "rollouts/step-000003.parquet")


def fault_of(read, expected) -> str:
    """Why it cannot be read; empty where it is read as it was."""
    try:
        values = read()
    except RecordError as error:
        return str(error)
    assert values == expected
    return ""


@pytest.mark.parametrize("name", [name for name in damages(Path("a.json")) if name != "gone"])
def test_a_damaged_result_is_refused_by_name(plan, name):
    _, planned = plan()
    made = result(planned[0], {"test": [1, 2]})
    made.write(planned[0].result_path)
    damages(planned[0].result_path)[name](planned[0].result_path)
    assert planned[0].result_path.name in fault_of(lambda: RunResult.read(planned[0].result_path), made)


@pytest.mark.parametrize("name", [name for name in damages(Path("a.json")) if name not in ("gone", "a dangling link")])
def test_a_damaged_failure_is_refused_by_name(plan, name):
    _, planned = plan()
    failure = write_failure(planned[0], "exit status 1", ["a line"])
    (path,) = planned[0].result_path.parent.glob("*.failed.json")
    damages(path)[name](path)
    expected = {("grpo", 0): failure}
    said = fault_of(lambda: failures(planned), expected)
    assert path.name in said


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (file, name)
        for file in RUN_FILES
        for name in damages(Path(file))
        if file != "usage.json" or "numbers" not in name  # another number is a number
    ],
)
def test_a_damaged_run_gives_the_same_result_or_none(plan, file, name):
    _, planned = plan()
    expected = result_of(planned[0]) if write_run(planned[0].config) else None
    assert expected is not None
    path = planned[0].folder / file
    damages(path)[name](path)
    fault_of(lambda: result_of(planned[0]), expected)
