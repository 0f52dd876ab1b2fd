"""Run folders: what is written can be read. A full disk or a kill loses nothing."""

import errno
import json
import math
import os
import random
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
    metrics,
    open_run,
    rollout_files,
)
from gar.records.rollouts import read_prompt
from gar.types import Status
from tests.support.errors import raises
from tests.support.files import full_disk
from tests.support.rows import rollout
from tests.support.runs import contents

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
    for leftover in ((), (".lock", "config.yaml", ".run.json.partial")):  # of a run killed before its run.json
        for name in leftover:
            (tmp_path / "runs" / "demo" / name).touch()
        assert RunFolder.create(tmp_path / "runs", "demo").path.name == "demo"
    (tmp_path / "runs" / "demo-2" / "config.yaml").touch()  # a user's own
    for path in (tmp_path / "runs" / "demo-2", run.path):
        with raises(RecordError, "taken"):
            RunFolder.create(path.parent, path.name)
    for name in ("", ".", "..", ".hidden", "a/b", "/a", "a\0b"):
        with raises(ConfigError):
            make_config({"records": {"name": name}})
    for path in (tmp_path / "nowhere", tmp_path):
        with raises(RecordError, None, str(path)):
            RunFolder.open(path)
    for text, name in (('{"status": ', "run.json"), ('{"seed": 1}', "manifest")):
        (run.path / "run.json").write_text(text)
        with raises(RecordError, "damage", "run.json"):
            RunFolder.open(run.path)
        run.manifest.add("run.json")
        with raises(RecordError, "record", name):
            RunFolder.open(run.path)


def test_a_run_is_begun_once_run_json_or_anything_else_of_it_is_there(run):
    path, whole = run.path / "run.json", run.manifest.path.read_bytes().splitlines(keepends=True)
    assert run.is_begun()
    content = path.read_bytes()
    path.unlink()
    for count in range(len(whole) + 1):  # killed while it was made
        run.manifest.path.write_bytes(b"".join(whole[:count]))
        assert not run.is_begun()
    run.append_metrics({"step": 1})
    assert run.is_begun()
    run.manifest.path.write_bytes(b"damaged\n")
    assert run.is_begun()
    path.write_bytes(content)
    assert run.is_begun()


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
    run.append_metrics({"step": 3, "loss": 0.25})
    whole = (run.path / "metrics.jsonl").read_bytes()
    lines = whole.decode().splitlines()
    assert lines[0] == '{"step": 1, "loss": null, "reward": 0.5, "n": 3}'
    assert json.loads(lines[1]) == {"step": 2, "loss": None, "reward": 1.0, "sizes": [1, None]}
    rows = [json.loads(lines[0]), {"step": 2, "loss": None, "reward": 1.0}, {"step": 3, "loss": 0.25}]
    listed = run.manifest.path.read_bytes().splitlines(keepends=True)
    for kept in range(4):
        start = len("".join(line + "\n" for line in lines[:kept]))
        end = start + len(lines[kept]) + 1 if kept < 3 else start
        before = b"".join(listed[: len(listed) - 3 + kept])
        torn = [(size, before) for size in range(start, end + 1)]
        torn += [(end, before + after[:size]) for after in listed[len(listed) - 3 + kept :][:1] for size in (1, 90)]
        for size, manifest in torn:  # the line of metrics is written first
            (run.path / "metrics.jsonl").write_bytes(whole[:size])
            run.manifest.path.write_bytes(manifest)
            assert open_run(run.path).metrics == rows[:kept]
            run.append_metrics({"step": 9})
            assert open_run(run.path).metrics == [*rows[:kept], {"step": 9}]


def test_metrics_since_the_last_checkpoint_are_what_was_logged_in_a_killed_run_too(run):
    for step in (1, 2, 3):
        run.append_metrics({"step": step, "reward": 0.5})
    run.write_rollouts([replace(RECORD, step=1)])
    whole = (run.path / "metrics.jsonl").read_bytes()
    first, second, third = whole.splitlines(keepends=True)
    for lines in ([first, second, third.replace(b"5", b"9")], [first, second, second, third], [first, third], [first]):
        (run.path / "metrics.jsonl").write_bytes(b"".join(lines))
        with raises(RecordError, "damage", "metrics.jsonl"):
            open_run(run.path)
        damaged = open_run(run.path, strict=False)
        assert (damaged.metrics, [fault.file for fault in damaged.faults]) == ([], ["metrics.jsonl"])
    (run.path / "metrics.jsonl").write_bytes(whole + b'{"step": 99, "reward": 1.0}\n')  # no line lists it
    assert [row["step"] for row in open_run(run.path).metrics] == [1, 2, 3]
    run.update_run(status="finished")
    assert (run.path / "metrics.jsonl").read_bytes() == whole
    (run.path / "metrics.jsonl").write_bytes(whole + b'{"step": 99, "reward": 1.0}\n')
    with raises(RecordError, "damage", "metrics.jsonl"):
        open_run(run.path)


def test_metrics_are_parsed_when_they_are_used_and_checked_once_more(run, monkeypatch):
    """A run of 100,000 steps has 240 MB of them, and not every reader of its rollouts asks."""
    run.append_metrics({"step": 1, "reward": 0.5})
    parsed = []
    monkeypatch.setattr(metrics, "json_object", lambda text, place: parsed.append(text) or json.loads(text))
    opened, other, lenient = open_run(run.path), open_run(run.path), open_run(run.path, strict=False)
    assert parsed == []
    assert opened.metrics is opened.metrics
    assert (opened.metrics, len(parsed)) == ([{"step": 1, "reward": 0.5}], 1)
    (run.path / "metrics.jsonl").write_bytes((run.path / "metrics.jsonl").read_bytes().replace(b"5", b"9"))
    with raises(RecordError, "damage", "metrics.jsonl"):
        _ = other.metrics
    assert (lenient.metrics, [fault.file for fault in lenient.faults]) == ([], ["metrics.jsonl"])


def test_rows_of_metrics_share_their_names(run):
    """A long run has as many rows as steps. As dicts they would take four times the memory."""
    for step in (1, 2):
        run.append_metrics({"step": step, "reward": None, "tokens": 2**60 + 1})
    run.append_metrics({"step": 2, "eval/pass@1": 0.5, "text": "no number", "large": 2**70, "flag": True})
    first, second, third = rows = open_run(run.path).metrics
    assert rows == [
        {"step": 1, "reward": None, "tokens": 2**60 + 1},
        {"step": 2, "reward": None, "tokens": 2**60 + 1},
        {"step": 2, "eval/pass@1": 0.5},
    ]
    assert first._places is second._places
    assert ("reward" in second, "reward" in third, third.get("reward", 3.0)) == (True, False, 3.0)
    with pytest.raises(KeyError):
        _ = third["reward"]


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
        assert [table["step"].to_pylist() for table in each.rollout_tables([1_000_000, 13, 15])] == [
            [13], [15, 1_000_000],
        ]  # fmt: skip
        with raises(RecordError, None, "step 14", "12 to 1000000"):
            each.rollouts(steps=[14])


def test_rollouts_are_read_whole_while_a_file_is_made_of_them(run, monkeypatch):
    for step in (1, 2):
        run.write_rollouts([replace(RECORD, step=step)])
    read, opened = rollout_files._read_stream, open_run(run.path)

    def made_meanwhile(manifest):
        monkeypatch.setattr(rollout_files, "_read_stream", read)
        run.close_rollouts()
        run.write_rollouts([replace(RECORD, step=3)])
        return read(manifest)

    monkeypatch.setattr(rollout_files, "_read_stream", made_meanwhile)
    assert opened.steps == [1, 2, 3]


def test_rollouts_since_the_last_file_are_left_out_if_they_are_damaged(run):
    run.write_rollouts([RECORD])
    run.close_rollouts()
    run.write_rollouts([replace(RECORD, step=13)])
    path = run.path / "rollouts.arrows"
    whole = path.read_bytes()
    for content in (b"", whole[:-1], whole[:-9] + b"X" + whole[-8:], None):
        path.unlink() if content is None else path.write_bytes(content)
        with raises(RecordError, "damage", "rollouts.arrows"):
            open_run(run.path).rollouts()
        damaged = open_run(run.path, strict=False)
        assert damaged.steps == [12]
        assert [fault.file for fault in damaged.faults] == ["rollouts.arrows"]
    for content in (b"no stream", ROLLOUT_SCHEMA.remove(0).serialize().to_pybytes()):
        path.write_bytes(content)
        run.manifest.add(path)
        with raises(RecordError, None, "rollouts.arrows"):
            open_run(run.path).rollouts()


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
        (lambda: run.write_json("evaluation/before.json", {"text": noise}), "before.json"),
        (lambda: [run.append_metrics({"step": i, "text": noise[:3000]}) for i in range(2, 99)], "metrics.jsonl"),
    ):
        with raises(RecordError, "record", f"{name}: ", "What was written before is intact.") as caught, full_disk():
            write()
        assert caught.value.errno == errno.EFBIG
    after = contents(run.path)
    metrics = after.pop("metrics.jsonl")
    assert metrics.startswith(before.pop("metrics.jsonl"))
    assert after.pop("manifest.jsonl").startswith(before.pop("manifest.jsonl"))
    assert run.manifest.faults() == []
    assert after == before
    assert metrics.endswith(b"\n")
    rows = open_run(run.path).metrics
    assert [row["step"] for row in rows] == [*range(1, 1 + len(rows))]
    assert len(rows) > 20


def test_a_pipe_in_place_of_a_file_is_an_error_and_hangs_nobody(run):
    run.write_rollouts([RECORD])
    run.close_rollouts()
    run.write_rollouts([replace(RECORD, step=13)])
    for name in ("run.json", "manifest.jsonl", "rollouts/steps-000012-000012.parquet", "rollouts.arrows"):
        path = run.path / name
        whole = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with raises(RecordError, None, name):
            open_run(run.path).rollouts()
        path.unlink()
        path.write_bytes(whole)
