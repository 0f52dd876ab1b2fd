"""A run folder in any state is read as far as it goes, and the page says what is missing."""

import json
import shutil

import pytest

from gar.errors import RecordError
from gar.records import RunFolder, open_run
from gar.report.build import missing, read_run
from tests.report.runs import make_run, wrong


def test_whole_run_misses_nothing_and_counts_by_problem(tmp_path):
    run = read_run(make_run(tmp_path))
    assert missing(run) == []
    assert (run.name, run.seed, run.last_step, sum(run.num_rows.values())) == ("run", 0, 6, 24)
    counts = run.counts()
    assert counts[counts.moment == "after"].num_correct.tolist() == [3, 4, 2, 4, 3, 4, 1, 3]
    assert set(counts.num_samples) == {4}
    assert set(counts.set) == {"test"}


def test_unfinished_runs_say_how_far_they_came(tmp_path):
    run = read_run(make_run(tmp_path, status="running", evaluations={"before": [1, 2]}))
    assert "still running (or it was killed): shown is what was written up to step 6" in missing(run)[0]
    assert "no evaluation/after.json" in missing(run)[1]
    failed = read_run(make_run(tmp_path, "failed", status="failed"))
    assert "the run was failed and has no end" in missing(failed)[0]


def edit(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


DAMAGE = {
    "one more right": lambda run: edit(run / "evaluation/after.json", '"num_correct": 3', '"num_correct": 4'),
    "before for after": lambda run: shutil.copy(run / "evaluation/before.json", run / "evaluation/after.json"),
    "no evaluation": lambda run: (run / "evaluation/after.json").unlink(),
    "a metric": lambda run: edit(run / "metrics.jsonl", '"reward": 0.2', '"reward": 0.3'),
    "a lost line": lambda run: (run / "metrics.jsonl").write_text(""),
    "another step": lambda run: shutil.copy(RunFolder(run).rollouts_path(1), RunFolder(run).rollouts_path(2)),
    "a step too much": lambda run: shutil.copy(RunFolder(run).rollouts_path(1), RunFolder(run).rollouts_path(9)),
    "a lost step": lambda run: RunFolder(run).rollouts_path(3).unlink(),
    "run.json": lambda run: edit(run / "run.json", '"seed": 0', '"seed": 1'),
    "config.yaml": lambda run: edit(run / "config.yaml", "seed: 0", "seed: 1"),
    "no manifest": lambda run: (run / "manifest.jsonl").unlink(),
    "half a manifest": lambda run: (run / "manifest.jsonl").write_bytes((run / "manifest.jsonl").read_bytes()[:700]),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_no_damage_becomes_a_number(tmp_path, how):
    path = make_run(tmp_path)
    whole = read_run(path)
    DAMAGE[how](path)
    run = read_run(path)
    assert run.faults
    assert missing(run)
    assert all(row in whole.metrics for row in run.metrics)
    assert all(sets in ({}, whole.evaluations[moment]) for moment, sets in run.evaluations.items())
    assert set(run.num_rows.items()) <= set(whole.num_rows.items())
    with pytest.raises(RecordError, match="run"):
        open_run(path).rollouts()


def test_rollouts_of_another_seed_are_foreign(tmp_path):
    path, other = make_run(tmp_path), make_run(tmp_path, "other", seed=1)
    for name in ("manifest.jsonl", "rollouts/step-000002.parquet"):
        shutil.copy(other / name, path / name)
    run = read_run(path)
    assert run.num_rows == {}
    assert "foreign" in {fault.kind for fault in run.faults}


def test_torn_last_line_of_metrics_does_not_count(tmp_path):
    path = make_run(tmp_path, status="running")
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "rew')
    assert len(open_run(path).metrics) == 6


def test_rollouts_take_steps_and_columns_in_order(tmp_path):
    run = open_run(make_run(tmp_path, rollouts={1: [wrong(1, 0, 0)], 2: [wrong(2, 0, 0), wrong(2, 0, 1)]}))
    assert run.steps == [1, 2]
    assert run.rollouts(["response_index", "step"], [2, 1]).to_pydict() == {
        "response_index": [0, 1, 0],
        "step": [2, 2, 1],
    }
    assert run.rollouts().num_rows == 3
    with pytest.raises(RecordError, match="no rollouts of step 3; there are steps 1 to 2"):
        run.rollouts(steps=[3])


def test_a_column_is_read_once(tmp_path, monkeypatch):
    run = open_run(make_run(tmp_path))
    run.rollouts(["step", "reward"])
    monkeypatch.setattr("gar.records.run.read_parquet", lambda path, columns, **_: pytest.fail(f"read {columns} again"))
    assert run.rollouts(["reward"]).num_rows == 24


def test_cut_goes_back_to_a_state_and_can_be_repeated(tmp_path):
    path = make_run(tmp_path, steps=3, status="running")
    folder = RunFolder(path)
    folder.manifest().add("metrics.jsonl", grows=True)
    state, metrics = folder.manifest().state(), folder.metrics_path.read_bytes()
    folder.append_metrics({"step": 4})
    folder.write_rollouts(4, [wrong(4, 0, 0)])
    for _ in range(2):
        folder.cut(state)
        run = open_run(path)
        assert (run.steps, folder.metrics_path.read_bytes()) == ([1, 2, 3], metrics)
        assert run.evaluations["after"]
    assert json.loads(folder.run_path.read_text())["status"] == "running"


def test_what_is_no_run_is_an_error(tmp_path):
    with pytest.raises(RecordError, match="no such folder"):
        read_run(tmp_path / "nothing")
    with pytest.raises(RecordError, match=r"not a run folder: it has no run\.json or metrics\.jsonl or rollouts"):
        read_run(tmp_path)
