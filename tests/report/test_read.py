"""A run folder in any state is read as far as it goes, and the page says what is missing."""

import json
import shutil
from pathlib import Path

import pytest

from gar.errors import ConfigError, RecordError
from gar.records import open_run
from gar.records.rollouts import read_prompt, record_table
from gar.records.sums import file_sum, read_sums, write_sums
from gar.report.runs import find_runs, missing
from gar.report.tables import runs_table
from tests.report.runs import make_run
from tests.support.damage import damages
from tests.support.errors import raises
from tests.support.rows import rollout


def test_the_page_says_what_is_missing(tmp_path):
    assert missing(open_run(make_run(tmp_path))) == []
    run = open_run(make_run(tmp_path, "r", status="running", evaluations={"before": [1, 2]}))
    assert "still running (or it was killed): shown is what was written up to step 6" in missing(run)[0]
    assert "no evaluation/after," in missing(run)[1]


@pytest.mark.parametrize("name", ["seed", "settings", "versions", "start_time", "summary"])
def test_a_key_that_is_missing_or_of_another_type_is_an_error_that_names_it(tmp_path, name):
    path = make_run(tmp_path)
    for broken in ({}, {name: [[7]]}):
        values = json.loads((path / "run.json").read_text())
        values.pop(name, None)
        (path / "run.json").write_text(json.dumps(values | broken))
        write_sums(path, read_sums(path) | {"run.json": file_sum(path / "run.json")})  # as if it was written so
        with raises(RecordError, "record", "run.json", name, "Was the file changed by hand?"):
            open_run(path)


def test_a_damaged_run_json_is_named(tmp_path):
    whole, folder = make_run(tmp_path, steps=2), tmp_path / "damaged" / "run"
    for damage in damages(whole / "run.json").values():
        shutil.rmtree(folder, ignore_errors=True)
        damage(Path(shutil.copytree(whole, folder)) / "run.json")
        with raises(RecordError, None, "run.json"):
            open_run(folder)


def test_find_runs_takes_runs_and_folders_of_them(tmp_path):
    one, deep = make_run(tmp_path / "a", "one", steps=0), make_run(tmp_path / "b" / "c" / "d", "deep", steps=0)
    make_run(tmp_path / ".hidden", "no", steps=0)
    make_run(one, "inside", steps=0)  # a checkpoint may look like a run
    assert find_runs([one, tmp_path / "b"]) == find_runs([tmp_path]) == [one, deep]
    with raises(ConfigError):
        find_runs([one, tmp_path / "a"])
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        with raises(RecordError):
            find_runs([tmp_path / name])


def test_runs_table_says_where_a_run_is_and_how_good_it_was(tmp_path):
    runs = {
        "new": make_run(tmp_path, "new", status="running", evaluations={"before": [1, 2]}),
        "bare": make_run(tmp_path, "bare", steps=0, evaluations={}),
    }
    read = {name: open_run(path) for name, path in runs.items()}
    new, bare = runs_table([*read.values()]).to_dict("records")
    assert new | {"start": ""} == {
        "run": "new", "status": "running", "method": "gar-grpo", "model": "embedded",
        "data": "arithmetic", "seed": "0", "steps": "6", "rollouts": "24", "right": "1% → 6%",
        "alignment": "0.05 → 0.30", "zero-std groups": "50.0% by outcome, 25.0% with the bonus",
        "seconds per step": "2.00", "GAR’s share": "25.0%", "test pass@1": "0.375 → –", "start": "",
    }  # fmt: skip
    assert [bare[name] for name in ("steps", "right", "test pass@1")] == ["0", "–", "–"]


def test_a_recorded_prompt_is_read_back_as_it_was():
    messages = [{"role": "user", "content": "3+4=\n'"}]
    for prompt in (messages, "3+4=", str(messages), json.dumps(messages), ""):
        (row,) = record_table([rollout(prompt=prompt)]).to_pylist()
        assert read_prompt(row["prompt"]) == prompt
