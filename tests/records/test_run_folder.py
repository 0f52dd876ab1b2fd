"""Run folders: what is written can be read. A full disk or a kill loses nothing."""

import errno
import json
import math
import os
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gar.config import make_config
from gar.errors import ConfigError, RecordError
from gar.records import (
    ROLLOUT_SCHEMA,
    RolloutRecord,
    RunFolder,
    canonical_hash,
    open_run,
)
from gar.records.rollouts import read_prompt, rollout_files
from gar.types import Status
from tests.support.damage import edit, flip
from tests.support.errors import raises
from tests.support.files import full_disk
from tests.support.rows import rollout
from tests.support.runs import contents, sha256sum, write_evaluation

RECORD = rollout(12, index=3, problem_id="train-17", bonus=0.0625, reward=1.0625, advantage=0.5, signal_norm=0.001)
NOT_SCORED = replace(RECORD, response_index=4, answer=None, alignment=None, signal_norm=None, status=Status.TIMEOUT)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run folder that has just begun."""
    folder = RunFolder.create(tmp_path, "run")
    folder.write_run(
        seed=7,
        command=["gar", "train", "my config.yaml"],
        config={"seed": 7, "reward": {"bonus_weight": 0.5}},
        data_hash="d1",
    )
    return folder


def test_a_run_folder_has_a_plain_name_and_a_record(tmp_path, run):
    paths = [RunFolder.create(tmp_path / "runs", "demo", numbered=True).path.name for _ in range(3)]
    assert paths == ["demo", "demo-2", "demo-3"]
    for leftover in ((), (".lock", ".run.json.partial")):  # of a run killed before its run.json
        for name in leftover:
            (tmp_path / "runs" / "demo" / name).touch()
        assert RunFolder.create(tmp_path / "runs", "demo").path.name == "demo"
    (tmp_path / "runs" / "demo-2" / "config.yaml").touch()  # a user's own
    (tmp_path / "runs" / "demo-3" / ".git").touch()
    (tmp_path / "runs" / "file").touch()
    for path in (*(tmp_path / "runs" / name for name in ("demo-2", "demo-3", "file")), run.path):
        with raises(RecordError, "taken"):
            RunFolder.create(path.parent, path.name)
    for name in ("", ".", "..", ".hidden", "a/b", "/a", "a\0b"):
        with raises(ConfigError):
            make_config({"records": {"name": name}})
    for path in (tmp_path / "nowhere", tmp_path):
        with raises(RecordError, None, str(path)):
            RunFolder.open(path)
    whole = (run.path / "run.json").read_text()
    for text, words in (
        ('{"status": ', "not valid JSON"),
        ('{"seed": 1}', "status"),
        (whole.replace("0.5", "0.6"), "config_hash"),
    ):
        (run.path / "run.json").write_text(text)
        with raises(RecordError, "record", words):
            RunFolder.open(run.path)


def test_run_json_records_how_the_run_came_about_and_changes_only_where_told(run):
    before = RunFolder.open(run.path).read_run()
    assert (before.status, before.seed, before.end_time, before.summary) == ("running", 7, None, {})
    assert before.command == "gar train 'my config.yaml'"
    assert before.config_hash == canonical_hash({"reward": {"bonus_weight": 0.5}, "seed": 7})
    assert before.data_hash == "d1"
    assert before.versions["numpy"] == np.__version__
    assert before.versions["python"] == sys.version.split()[0]
    assert (run.path / "config.yaml").read_text() == "seed: 7\nreward:\n  bonus_weight: 0.5\n"
    run.update_run(summary={"pass@1": 0.5, "odd": math.nan})
    assert run.read_run() == replace(before, summary={"pass@1": 0.5, "odd": None})
    run.update_run(status="interrupted")
    stopped = run.read_run()
    assert (stopped.status, stopped.summary["pass@1"]) == ("interrupted", 0.5)
    assert stopped.end_time is not None
    run.update_run(status="running")
    resumed = run.read_run()
    assert (resumed.status, resumed.end_time, len(resumed.resume_times)) == ("running", None, 1)
    assert resumed.start_time == before.start_time
    run.update_run(status="finished")  # nothing was logged, which is no damage
    assert open_run(run.path).metrics == []


def test_canonical_hash_is_the_sha256_of_sorted_json():
    # printf '{"a":[1,2],"b":null}' | sha256sum
    expected = "f25109c4111335e4a32d49373585e7a788ff5b10e70023f7004b170e7f84716a"
    value = {"b": None, "a": [1, 2]}
    assert canonical_hash(value) == canonical_hash(dict(reversed(value.items())))
    assert canonical_hash(value) != canonical_hash({"b": None, "a": [2, 1]})
    assert canonical_hash(value) == expected


def test_metrics_are_objects_with_null_for_what_is_no_number_wherever_a_kill_cuts_the_file(run):
    run.append_metrics({"step": 1, "loss": math.nan, "reward": np.float32(0.5), "n": np.int64(3)})
    run.append_metrics({"step": 2, "loss": -math.inf, "reward": 1.0, "sizes": [1, math.nan]})
    run.append_metrics({"step": 3, "eval/pass@1": 0.25, "text": "no number", "large": 2**70, "flag": True})
    whole = (run.path / "metrics.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    assert lines[0].decode() == '{"step": 1, "loss": null, "reward": 0.5, "n": 3}\n'
    assert json.loads(lines[1]) == {"step": 2, "loss": None, "reward": 1.0, "sizes": [1, None]}
    rows = [json.loads(lines[0]), {"step": 2, "loss": None, "reward": 1.0}, {"step": 3, "eval/pass@1": 0.25}]
    for size in range(len(whole) + 1):
        (run.path / "metrics.jsonl").write_bytes(whole[:size])
        num_whole = whole[:size].count(b"\n")
        assert open_run(run.path).metrics == rows[:num_whole]
        run.cut(2)
        assert (run.path / "metrics.jsonl").read_bytes() == b"".join(lines[: min(num_whole, 2)])
    for line in (b"{}\n", b'{"step": -1}\n', b'{"step": 2.5}\n', b'{"step": 1}\n', bytes(9) + b"\n", b"[2]\n"):
        (run.path / "metrics.jsonl").write_bytes(b"".join([*lines[:2], line]))
        with raises(RecordError, "record", "metrics.jsonl:3"):
            _ = open_run(run.path).metrics
        if line != b'{"step": 1}\n':
            run.cut(2)
            assert open_run(run.path).metrics == rows[:2]


BEFORE, AFTER = (f"evaluation/{moment}/test/metrics.json" for moment in ("before", "after"))
FINISHED_DAMAGE = {
    "an edited metric": lambda path: edit(path / "metrics.jsonl", "0.5", "0.6"),
    "a metric more": lambda path: edit(path / "metrics.jsonl", "\n", '\n{"step": 13}\n'),
    "a torn line": lambda path: edit(path / "metrics.jsonl", "\n", '\n{"st'),
    "no metrics": lambda path: (path / "metrics.jsonl").unlink(),
    "edited settings": lambda path: edit(path / "config.yaml", "7", "8"),
    "an edited record": lambda path: edit(path / "run.json", '"data_hash": "d1"', '"data_hash": "d2"'),
    "another status": lambda path: (
        edit(path / "run.json", '"finished"', '"running"'),
        edit(path / "metrics.jsonl", "0.5", "0.6"),
    ),
    "rollouts": lambda path: flip(path / "rollouts/steps-000012-000012.parquet"),
    "no rollouts": lambda path: (path / "rollouts/steps-000012-000012.parquet").unlink(),
    "rollouts too much": lambda path: shutil.copy(
        path / "rollouts/steps-000012-000012.parquet", path / "rollouts/steps-000013-000013.parquet"
    ),
    "a stream too much": lambda path: (path / "rollouts.arrows").write_bytes(b""),
    "another evaluation": lambda path: shutil.copy(path / BEFORE, path / AFTER),
    "an evaluation too much": lambda path: shutil.copy(path / BEFORE, path / "evaluation/before/numbers.json"),
    "no evaluation": lambda path: (path / AFTER).unlink(),
    "no checksums": lambda path: (path / "SHA256SUMS").unlink(),
    "empty checksums": lambda path: (path / "SHA256SUMS").write_bytes(b""),
    "half of the checksums": lambda path: edit(path / "SHA256SUMS", (path / "SHA256SUMS").read_text()[300:], ""),
    "no checksums of rollouts": lambda path: edit(
        path / "SHA256SUMS", (path / "SHA256SUMS").read_text().splitlines(keepends=True)[-2], ""
    ),
}


@pytest.mark.parametrize("name", FINISHED_DAMAGE)
def test_no_damage_of_a_finished_run_becomes_a_number(run, name):
    run.append_metrics({"step": 12, "reward": 0.5})
    run.write_rollouts([RECORD])
    for moment, correct in (("before", 1), ("after", 2)):
        counts = [{"id": "p", "num_correct": correct}]
        write_evaluation(run, moment, {"test": {"num_samples": 4, "pass_at": {}, "problems": counts}})
    with run.new_folder("model") as staged:
        (staged / "weights").write_text("1")
    run.update_run(status="finished")
    assert sha256sum(run.path) == ""
    assert "model/weights" in (run.path / "SHA256SUMS").read_text()
    assert open_run(run.path).rollouts().num_rows == 1
    FINISHED_DAMAGE[name](run.path)
    with raises(RecordError, "damage"):
        open_run(run.path).rollouts()


def test_a_kill_between_checksums_and_run_json_leaves_a_run_to_resume(run, monkeypatch):
    run.append_metrics({"step": 1})
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "_write_run", lambda *_: pytest.exit("killed"))
        with pytest.raises(pytest.exit.Exception):
            run.update_run(status="finished")
    assert (open_run(run.path).status, (run.path / "SHA256SUMS").exists()) == ("running", True)
    run.update_run(status="running")
    assert not (run.path / "SHA256SUMS").exists()


def test_a_result_of_a_finished_run_is_listed(run):
    run.update_run(status="finished")
    run.add_result("result.json", {"a": 1})
    assert sha256sum(run.path) == ""
    assert "result.json" in open_run(run.path).sums


def test_rollouts_come_back_whole_in_the_steps_asked_for(run):
    run.write_rollouts([RECORD, NOT_SCORED])
    table = open_run(run.path).rollouts()
    assert table.schema.equals(ROLLOUT_SCHEMA)
    decoded = [{"status": Status(row["status"]), "prompt": read_prompt(row["prompt"])} for row in table.to_pylist()]
    found = [RolloutRecord(**row | typed) for row, typed in zip(table.to_pylist(), decoded, strict=True)]
    assert found == [RECORD, NOT_SCORED]
    for step in (13, 15, 1_000_000):
        run.write_rollouts([replace(RECORD, step=step)])
        if step == 13:
            run.close_rollouts()
    read = open_run(run.path)
    run.close_rollouts()  # a reader goes on with what was there when it began
    assert [path.name for path in sorted(run.path.glob("rollouts*/*"))] == [
        "steps-000012-000013.parquet", "steps-000015-1000000.parquet",
    ]  # fmt: skip
    for each in (read, open_run(run.path)):
        assert each.num_rows == {12: 2, 13: 1, 15: 1, 1_000_000: 1}
        assert each.rollouts()["step"].to_pylist() == [12, 12, 13, 15, 1_000_000]
        assert each.rollouts(["step", "response_index"], [15, 12]).to_pydict() == {
            "step": [12, 12, 15], "response_index": [3, 4, 3],
        }  # fmt: skip
        assert each.rollouts(steps=[]).schema.equals(ROLLOUT_SCHEMA)
        assert each.rollouts().schema.equals(ROLLOUT_SCHEMA)
        assert [table["step"].to_pylist() for table in each.rollout_tables(steps=[1_000_000, 13, 15])] == [
            [13], [15, 1_000_000],
        ]  # fmt: skip
        with raises(RecordError, None, "step 14", "12 to 1000000"):
            each.rollouts(steps=[14])


def test_whole_batches_of_the_stream_count_wherever_a_kill_cuts_it(run):
    stream, ends = run.path / "rollouts.arrows", []
    for step in (12, 13, 14):
        run.write_rollouts([replace(RECORD, step=step)])
        ends.append(stream.stat().st_size)
    whole = stream.read_bytes()
    for size in range(0, len(whole) + 1, 7):
        stream.write_bytes(whole[:size])
        assert open_run(run.path).steps == [step for step, end in zip((12, 13, 14), ends, strict=True) if end <= size]
    with raises(RecordError, "record", "rollouts.arrows"):
        run.close_rollouts()  # what was written is there, or it is not closed
    for content in (b"no stream", b""):
        stream.write_bytes(content)
        assert open_run(run.path).steps == []
    stream.write_bytes(ROLLOUT_SCHEMA.remove(0).serialize().to_pybytes())
    with raises(RecordError, "record", "other columns"):
        open_run(run.path).rollouts()


def test_steps_of_a_file_count_once_if_a_kill_left_the_stream_too(run):
    run.write_rollouts([RECORD])
    stream = (run.path / "rollouts.arrows").read_bytes()
    run.close_rollouts()
    (run.path / "rollouts.arrows").write_bytes(stream)
    assert open_run(run.path).num_rows == {12: 1}


def test_rollouts_are_read_once_while_a_file_is_made_of_them(run, monkeypatch):
    for step in (1, 2):
        run.write_rollouts([replace(RECORD, step=step)])
    opened = open_run(run.path)

    def made_meanwhile(path):
        run.close_rollouts()
        return rollout_files(path)

    monkeypatch.setattr("gar.records.run.rollout_files", made_meanwhile)
    assert opened.num_rows == {1: 1, 2: 1}


def test_a_step_of_several_generations_lies_in_one_file(run, monkeypatch):
    monkeypatch.setattr("gar.records.rollouts.FILE_BYTES", 1)
    for step in (1, 1, 2, 2, 2):
        run.write_rollouts([replace(RECORD, step=step)])
    run.close_rollouts()
    assert open_run(run.path).num_rows == {1: 2, 2: 3}


def test_records_that_are_wrong_are_not_written(run):
    for change in ({"bonus": None}, {"num_tokens": "many"}, {"alignment": "high"}, {"response": 3}):
        with pytest.raises((ValueError, TypeError)):
            run.write_rollouts([NOT_SCORED, replace(RECORD, **change)])
    assert open_run(run.path).rollouts(["reward"]).to_pydict() == {"reward": []}


def test_run_folder_on_a_full_disk_keeps_what_was_written(run):
    run.append_metrics({"step": 1})
    noise = random.Random(0).randbytes(200_000).hex()
    run.write_rollouts([replace(RECORD, step=1, response=noise)])
    before = contents(run.path)
    for write, name in (
        (lambda: run.write_rollouts([replace(RECORD, step=2, response=noise)]), "rollouts.arrows"),
        (lambda: run.close_rollouts(), "000001-000001.parquet"),
        (lambda: run.update_run(summary={"text": noise}), "run.json"),
        (lambda: [run.append_metrics({"step": i, "text": noise[:3000]}) for i in range(2, 99)], "metrics.jsonl"),
    ):
        with raises(RecordError, "record", f"{name}: ", "What was written before is intact.") as caught, full_disk():
            write()
        assert caught.value.errno == errno.EFBIG
    after = contents(run.path)
    metrics = after.pop("metrics.jsonl")
    assert metrics.startswith(before.pop("metrics.jsonl"))
    assert after == before
    assert metrics.endswith(b"\n")
    rows = open_run(run.path).metrics
    assert [row["step"] for row in rows] == [*range(1, 1 + len(rows))]
    assert len(rows) > 20


def test_a_pipe_in_place_of_a_file_is_an_error_and_hangs_nobody(run):
    run.append_metrics({"step": 12})
    run.write_rollouts([RECORD])
    run.close_rollouts()
    run.write_rollouts([replace(RECORD, step=13)])
    for name in ("run.json", "metrics.jsonl", "rollouts/steps-000012-000012.parquet", "rollouts.arrows"):
        path = run.path / name
        whole = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with raises(RecordError, None, name):
            _ = open_run(run.path).rollouts(), open_run(run.path).metrics
        path.unlink()
        path.write_bytes(whole)
