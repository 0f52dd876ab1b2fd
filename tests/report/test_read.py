"""A run folder in any state is read as far as it goes, and the page says what is missing."""

import json
import shutil
from functools import reduce
from pathlib import Path

import pytest

from gar.errors import ConfigError, RecordError
from gar.records import Manifest, open_run
from gar.records.rollouts import read_prompt, record_table
from gar.report import ReportOptions
from gar.report.build import make_report
from gar.report.runs import find_runs, missing, read_run
from gar.report.tables import runs_table
from tests.report.runs import make_run
from tests.support.damage import damages, edit
from tests.support.errors import raises
from tests.support.rows import rollout


def test_the_page_says_what_is_missing(tmp_path):
    assert missing(read_run(make_run(tmp_path))) == []
    run = read_run(make_run(tmp_path, "r", status="running", evaluations={"before": [1, 2]}))
    assert "still running (or it was killed): shown is what was written up to step 6" in missing(run)[0]
    assert "no evaluation/after.json" in missing(run)[1]


def last_lines(run):
    """Those of the end: the metrics grow no more, and `run.json`, before and after it is written."""
    return "".join((run / "manifest.jsonl").read_text().splitlines(True)[-3:])


def rollouts(run, steps):
    return run / f"rollouts/steps-00000{steps}.parquet"


DAMAGE = {
    "one more right": lambda run: edit(run / "evaluation/after.json", '"num_correct": 3', '"num_correct": 4'),
    "before for after": lambda run: shutil.copy(run / "evaluation/before.json", run / "evaluation/after.json"),
    "no evaluation": lambda run: (run / "evaluation/after.json").unlink(),
    "a metric": lambda run: edit(run / "metrics.jsonl", '"reward": 0.02', '"reward": 0.03'),
    "a lost line": lambda run: (run / "metrics.jsonl").write_text(""),
    "other steps": lambda run: shutil.copy(rollouts(run, "1-000002"), rollouts(run, "3-000004")),
    "steps too much": lambda run: shutil.copy(rollouts(run, "1-000002"), rollouts(run, "7-000008")),
    "lost steps": lambda run: rollouts(run, "3-000004").unlink(),
    "a folder of steps": lambda run: (rollouts(run, "3-000004").unlink(), rollouts(run, "3-000004").mkdir()),
    "run.json": lambda run: edit(run / "run.json", '"seed": 0', '"seed": 1'),
    "no manifest": lambda run: (run / "manifest.jsonl").unlink(),
    "a manifest as before the end": lambda run: edit(run / "manifest.jsonl", last_lines(run), ""),
    "half a manifest": lambda run: (run / "manifest.jsonl").write_bytes((run / "manifest.jsonl").read_bytes()[:700]),
}


def test_no_damage_becomes_a_number(tmp_path):
    original, path = make_run(tmp_path, "original"), tmp_path / "run"
    whole = read_run(original)
    for how, damage in DAMAGE.items():
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(original, path)
        damage(path)
        run = read_run(path)
        assert run.faults, how
        assert missing(run), how
        assert all(row in whole.metrics for row in run.metrics), how
        assert all(sets in ({}, whole.evaluations[moment]) for moment, sets in run.evaluations.items()), how
        assert set(run.num_rows.items()) <= set(whole.num_rows.items()), how
        with raises(RecordError, "damage"):
            open_run(path).rollouts()


@pytest.mark.parametrize(("file", "key"), [
    ("run.json", "seed"), ("run.json", "settings"), ("run.json", "versions"), ("run.json", "start_time"),
    ("run.json", "summary"), ("evaluation/after.json", "sets"),
    ("evaluation/after.json", "sets.test.pass_at"), ("evaluation/after.json", "sets.test.num_samples"),
    ("evaluation/after.json", "sets.test.problems"),
])  # fmt: skip
def test_a_key_that_is_missing_or_of_another_type_is_a_fault_that_names_it(tmp_path, file, key):
    path = make_run(tmp_path)
    *parents, name = key.split(".")
    for broken in ({}, {name: [[7]]}):
        values = json.loads((path / file).read_text())
        inside = reduce(dict.__getitem__, parents, values)
        inside.pop(name, None)
        inside |= broken
        (path / file).write_text(json.dumps(values))
        Manifest(path).add(file)
        with raises(RecordError, "damage", file, name, "Was the file changed by hand?"):
            open_run(path)
        report = make_report([read_run(path)], ReportOptions())
        assert any(f"{file} cannot be read" in note for note in report.notes)


def test_rollouts_of_another_seed_are_foreign(tmp_path):
    path, other = make_run(tmp_path), make_run(tmp_path, "other", seed=1)
    for name in ("manifest.jsonl", "rollouts/steps-000001-000002.parquet"):
        shutil.copy(other / name, path / name)
    run = read_run(path)
    assert run.num_rows == {}
    assert "foreign" in {fault.kind for fault in run.faults}


def test_a_column_is_read_once(tmp_path, monkeypatch):
    run = open_run(make_run(tmp_path))
    run.rollouts(["step", "reward"])
    monkeypatch.setattr("gar.records.run.read_parquet", lambda path, columns, **_: pytest.fail(f"read {columns} again"))
    assert run.rollouts(["reward"]).num_rows == 24


def test_a_damaged_run_json_is_named(tmp_path):
    """A change of the others, which the manifest lists, is never parsed."""
    whole, folder = make_run(tmp_path, steps=2), tmp_path / "damaged" / "run"
    for name, damage in damages(whole / "run.json").items():
        shutil.rmtree(folder, ignore_errors=True)
        damage(Path(shutil.copytree(whole, folder)) / "run.json")
        try:
            said = missing(read_run(folder))
        except RecordError as error:
            said = [str(error)]
        assert any("run.json" in clause for clause in said), name


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
        "alignment": "0.05 → 0.30", "zero-std groups": "50.0% by outcome, 25.0% with the bonus",
        "seconds per step": "2.00", "GAR’s share": "25.0%", "test pass@1": "0.375 → –", "start": "",
    }  # fmt: skip
    assert [bare[name] for name in ("method", "steps", "right", "test pass@1")] == ["–", "0", "–", "–"]


def test_a_recorded_prompt_is_read_back_as_it_was():
    messages = [{"role": "user", "content": "3+4=\n'"}]
    for prompt in (messages, "3+4=", str(messages), json.dumps(messages), ""):
        (row,) = record_table([rollout(prompt=prompt)]).to_pylist()
        assert read_prompt(row["prompt"]) == prompt
