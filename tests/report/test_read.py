"""A run folder in any state is read as far as it goes, and what is missing is said."""

import json

import pyarrow as pa
import pytest

from gar.errors import RecordError
from gar.records import RunFolder, shards
from gar.records.files import read_parquet, write_parquet
from gar.report.read import read_run
from tests.report.runs import make_run, wrong

DAMAGED = '{"x":\n'


def without_columns(path, *names: str) -> None:
    table: pa.Table = read_parquet(path)
    write_parquet(path, table.drop_columns(list(names)))


def test_read_run_of_a_whole_folder_misses_nothing(tmp_path):
    run = read_run(make_run(tmp_path))
    assert run.missing == []
    assert (run.name, run.seed, run.last_step, run.num_rollouts) == ("run", 0, 6, 24)
    assert run.evaluations["after"]["test"].rates(1) == [0.75, 1, 0.5, 1, 0.75, 1, 0.25, 0.75]


def test_read_run_of_one_still_going_on_says_how_far_it_came(tmp_path):
    run = read_run(make_run(tmp_path, status="running", evaluations={"before": [1, 2]}))
    assert "still running (or it was killed): shown is what was written up to step 6" in run.missing[0]
    assert "no evaluation/after.json" in run.missing[1]


def test_read_run_of_a_failed_one_says_so(tmp_path):
    assert "the run was failed and has no end" in read_run(make_run(tmp_path, status="failed")).missing[0]


def test_read_run_takes_a_torn_last_line_of_metrics(tmp_path):
    path = make_run(tmp_path)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "rew')
    run = read_run(path)
    assert len(run.metrics) == 6
    assert run.missing == []


def test_read_run_of_an_older_version_shows_what_is_there(tmp_path):
    path = make_run(tmp_path)
    record = json.loads((path / "run.json").read_text())
    del record["versions"]
    (path / "run.json").write_text(json.dumps(record | {"gpu": "none"}))
    (path / "config.yaml").write_text("method: gar-grpo\nseed: 3\nold_setting: 1\n")
    for step in range(1, 7):
        without_columns(RunFolder(path).rollouts_path(step), "signal_norm", "prompt_tokens")
    run = read_run(path)
    assert (run.config, run.settings["old_setting"], run.seed) == (None, 1, 3)
    assert run.rollouts(1)[0]["signal_norm"] is None
    assert run.rollouts(1)[0]["alignment"] == 0.125
    for words in (
        "run.json lacks versions",
        "unknown key 'old_setting'",
        "the rollouts have no prompt_tokens, signal_norm",
    ):
        assert sum(words in note for note in run.missing) == 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("run.json", None, "run.json cannot be read, so versions, machine and status are unknown"),
        ("config.yaml", None, "config.yaml cannot be read, so the settings are unknown"),
        ("metrics.jsonl", None, "no step was logged yet, so there are no curves"),
        ("evaluation/before.json", None, "there is no evaluation/before.json"),
        ("rollouts", None, "no rollouts were recorded"),
        ("run.json", DAMAGED, "run.json cannot be read"),
        ("metrics.jsonl", DAMAGED, "lines or values of metrics.jsonl left out: 1, the first: "),
        ("evaluation/after.json", DAMAGED, "evaluation/after.json is not what this version writes"),
        ("rollouts/step-000002.parquet", DAMAGED, "the rollouts of 1 steps are left out, the first of them: step 2"),
    ],
)
def test_read_run_says_which_file_is_not_there_or_damaged(tmp_path, name, content, words):
    path = make_run(tmp_path, rollouts={} if name == "rollouts" else None)
    if content is not None:
        (path / name).write_text(content)
    elif name != "rollouts":
        (path / name).unlink()
    assert [words in note for note in read_run(path).missing] == [True]


def test_read_run_says_of_a_rollout_file_without_texts_that_it_cannot_be_shown(tmp_path):
    path = make_run(tmp_path)
    without_columns(RunFolder(path).rollouts_path(3), "response")
    run = read_run(path)
    assert "step-000003.parquet: no column 'response'" in run.missing[0]
    assert 3 not in run.num_rows


def test_read_run_keeps_means_without_counts(tmp_path):
    path = make_run(tmp_path)
    (path / "evaluation/after.json").write_text('{"sets": {"test": {"pass_at": {"1": 0.5, "4": null}}}}')
    result = read_run(path).evaluations["after"]["test"]
    assert (result.num_correct, result.pass_at) == (None, {1: 0.5})


def test_rollouts_of_a_step_that_a_resume_has_dropped_are_none(tmp_path):
    path = make_run(tmp_path, rollouts={1: [wrong(1, 0, 0)], 2: [wrong(2, 0, 0)]})
    run = read_run(path)
    RunFolder(path).delete_rollouts(1)
    assert run.rollouts(2) == []


def test_read_run_refuses_what_is_no_run(tmp_path):
    with pytest.raises(RecordError, match="no such folder"):
        read_run(tmp_path / "nothing")
    with pytest.raises(RecordError, match=r"not a run folder: it has no run\.json, metrics\.jsonl or rollouts"):
        read_run(tmp_path)


def test_merged_rollouts_are_read_like_those_of_single_steps(tmp_path, monkeypatch):
    single = read_run(make_run(tmp_path / "single"))
    monkeypatch.setattr(shards, "BLOCK_STEPS", (2,))
    path = make_run(tmp_path / "merged")
    merged = read_run(path)
    assert len(list((path / "rollouts").iterdir())) == 3
    assert merged.num_rows == single.num_rows
    columns = ["response", "alignment"]
    assert list(merged.every_rollout(columns)) == list(single.every_rollout(columns))
    assert merged.missing == single.missing

    (path / "rollouts" / "steps-000003-000004.parquet").write_bytes(b"PAR1")
    damaged = read_run(path)
    assert list(damaged.num_rows) == [1, 2, 5, 6]
    assert "the rollouts of 2 steps are left out, the first of them: step 3" in damaged.missing[0]
