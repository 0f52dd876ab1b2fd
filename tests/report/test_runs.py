"""Runs below a folder, the table of them, and recorded prompts."""

import json

from gar.errors import ConfigError, RecordError
from gar.records import open_run
from gar.records.rollouts import read_prompt, record_table
from gar.report.runs import find_runs
from gar.report.tables import runs_table
from tests.report.runs import make_run
from tests.support.errors import raises
from tests.support.rows import rollout


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
    (runs["bare"] / "run.json").write_text("")
    read = {name: open_run(path, strict=False) for name, path in runs.items()}
    new, bare = runs_table([*read.values()]).to_dict("records")
    assert new | {"start": ""} == {
        "run": "new", "status": "running", "method": "gar-grpo", "model": "embedded",
        "data": "arithmetic", "seed": "0", "steps": "6", "rollouts": "24", "right": "1% → 6%",
        "alignment": "0.05 → 0.30", "zero-std groups": "50.0% → 25.0%", "seconds per step": "2.00",
        "GAR’s share": "25.0%", "test pass@1": "0.375 → –", "start": "",
    }  # fmt: skip
    assert [bare[name] for name in ("method", "steps", "right", "test pass@1")] == ["–", "0", "–", "–"]


def test_a_recorded_prompt_is_read_back_as_it_was():
    messages = [{"role": "user", "content": "3+4=\n'"}]
    for prompt in (messages, "3+4=", str(messages), json.dumps(messages), ""):
        (row,) = record_table([rollout(prompt=prompt)]).to_pylist()
        assert read_prompt(row["prompt"]) == prompt
