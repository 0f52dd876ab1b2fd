"""A result that is no longer what was written is a named fault, and a damaged run gives no other result."""

import contextlib
import json
from pathlib import Path

import pytest

from gar.comparison.result import finished_result, result_of
from gar.errors import RecordError
from tests.comparison.finished import result, write_run
from tests.damage import damages

RUN_FILES = ("run.json", "metrics.jsonl", "evaluation/after.json", "rollouts/step-000003.parquet")


@pytest.mark.parametrize("name", [*(name for name in damages(Path("a.json")) if name != "gone"), "count", "key"])
def test_a_damaged_or_edited_result_is_refused_by_name(plan, name):
    _, planned = plan()
    made = result(planned[0], {"test": [1, 2]})
    path = planned[0].folder / "result.json"
    values = json.loads(path.read_text())
    if name == "count":
        values["sets"]["test"]["num_correct"] = [1, 3]
        path.write_text(json.dumps(values))
    elif name == "key":
        path.write_text(path.read_text().replace('"num_samples"', '"num_sampler"'))
    else:
        damages(path)[name](path)
    with pytest.raises(RecordError, match=r"result\.json"):
        finished_result(planned[0])
    assert made.sets["test"].num_correct == [1, 2]


def test_a_result_of_other_settings_is_refused(plan):
    _, planned = plan()
    result(planned[0], {"test": [1, 2]})
    planned[0].folder.rename(planned[1].folder)
    with pytest.raises(RecordError, match=r"result\.json: made under other settings than gar-grpo, seed 0"):
        finished_result(planned[1])


@pytest.mark.parametrize(("file", "name"), [(file, name) for file in RUN_FILES for name in damages(Path(file))])
def test_a_damaged_run_gives_the_same_result_or_none(plan, file, name):
    _, planned = plan()
    write_run(planned[0].config)
    expected = result_of(planned[0])
    path = planned[0].folder / file
    damages(path)[name](path)
    with contextlib.suppress(RecordError):
        assert result_of(planned[0]) == expected
