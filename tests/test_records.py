"""Run folders: what is written can be read, and neither a full disk, nor a refusal, nor a kill loses what was there."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gar.errors import RecordError
from gar.records import (
    ROLLOUT_SCHEMA,
    RolloutRecord,
    RunFolder,
    atomic_file,
    canonical_hash,
    open_run,
    read_jsonl,
    record_table,
    write_atomic,
)
from gar.records.files import whole_objects
from gar.types import Status
from tests.support.rows import rollout

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
        config_text="seed: 7\nreward: {bonus_weight: 0.5}\n",
        data_hash="d1",
    )
    return folder


# ------------------------------------------------------------------------------------------------ folders and run.json


def test_create_numbers_a_taken_name_and_takes_plain_names_alone(tmp_path):
    paths = [RunFolder.create(tmp_path / "runs", "demo").path.name for _ in range(3)]
    assert paths == ["demo", "demo-2", "demo-3"]
    for name in ("", ".", "..", ".hidden", "a/b", "/a", "a\0b"):
        with pytest.raises(RecordError, match="must be one plain folder name"):
            RunFolder.create(tmp_path / "other", name)
    assert not (tmp_path / "other").exists()


def test_open_says_why_a_folder_is_no_run_folder(tmp_path, run):
    with pytest.raises(RecordError, match="nowhere: no such folder"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RecordError, match=r"not a run folder: it has no run\.json"):
        RunFolder.open(tmp_path)
    run.run_path.write_text('{"status": ')
    with pytest.raises(RecordError, match=r"run\.json: not valid JSON"):
        RunFolder.open(run.path)
    run.run_path.write_text('{"state": "running"}')
    with pytest.raises(RecordError, match=r"missing or unknown: 'command', .*'state'.*another version"):
        RunFolder.open(run.path)


def test_write_run_records_how_the_run_came_about(run):
    record = RunFolder.open(run.path).read_run()
    assert (record.status, record.seed, record.end_time, record.summary) == ("running", 7, None, {})
    assert record.command == "gar train 'my config.yaml'"
    assert record.config_hash == canonical_hash({"reward": {"bonus_weight": 0.5}, "seed": 7})
    assert record.data_hash == "d1"
    assert record.versions["numpy"] == np.__version__
    assert record.versions["python"] == sys.version.split()[0]
    assert (run.path / "config.yaml").read_text() == "seed: 7\nreward: {bonus_weight: 0.5}\n"


def test_update_run_changes_only_what_is_given(run):
    before = run.read_run()
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


def test_canonical_hash_is_the_sha256_of_sorted_json():
    # printf '{"a":[1,2],"b":null}' | sha256sum
    expected = "f25109c4111335e4a32d49373585e7a788ff5b10e70023f7004b170e7f84716a"
    value = {"b": None, "a": [1, 2]}
    assert canonical_hash(value) == canonical_hash(dict(reversed(value.items())))
    assert canonical_hash(value) != canonical_hash({"b": None, "a": [2, 1]})
    assert canonical_hash(value) == expected


# ------------------------------------------------------------------------------------------------------------ metrics


def test_append_metrics_writes_one_object_a_line_with_null_for_what_is_no_number(run):
    run.append_metrics({"step": 1, "loss": math.nan, "reward": np.float32(0.5), "n": np.int64(3)})
    run.append_metrics({"step": 2, "loss": -math.inf, "reward": 1.0, "sizes": [1, math.nan]})
    lines = run.metrics_path.read_text().split("\n")
    assert lines[0] == '{"step": 1, "loss": null, "reward": 0.5, "n": 3}'
    assert json.loads(lines[1]) == {"step": 2, "loss": None, "reward": 1.0, "sizes": [1, None]}
    assert lines[2:] == [""]
    assert open_run(run.path).metrics == [json.loads(lines[0]), {"step": 2, "loss": None, "reward": 1.0}]


def test_read_metrics_keeps_every_whole_line_wherever_a_kill_cuts_the_file(run):
    rows = [{"step": step, "loss": step / 8} for step in (1, 2, 3)]
    for row in rows:
        run.append_metrics(row)
    whole = run.metrics_path.read_bytes()
    for size in range(len(whole) + 1):
        run.metrics_path.write_bytes(whole[:size])
        kept = whole[:size].count(b"\n")
        assert open_run(run.path).metrics == rows[:kept]
        run.append_metrics({"step": 9})
        assert open_run(run.path).metrics == [*rows[:kept], {"step": 9}]


# ----------------------------------------------------------------------------------------------------------- rollouts


def test_write_rollouts_gives_back_every_field(run):
    run.write_rollouts(12, [RECORD, NOT_SCORED])
    table = open_run(run.path).rollouts()
    assert table.schema.equals(ROLLOUT_SCHEMA)
    assert [RolloutRecord(**row | {"status": Status(row["status"])}) for row in table.to_pylist()] == [
        RECORD,
        NOT_SCORED,
    ]
    assert run.rollouts_path(12).name == "step-000012.parquet"
    run.write_rollouts(13, [])
    assert open_run(run.path).rollouts(steps=[13]).schema.equals(ROLLOUT_SCHEMA)
    with pytest.raises(ValueError, match="rollouts of step 11 must all say so, got a record of step 12"):
        run.write_rollouts(11, [RECORD])


def test_record_table_names_the_column_of_a_bad_value():
    with pytest.raises(ValueError, match="'bonus' must not be None, got None in row 1"):
        record_table([RECORD, replace(RECORD, bonus=None)])
    with pytest.raises(ValueError, match="column 'num_tokens' must hold int64"):
        record_table([replace(RECORD, num_tokens="many")])
    with pytest.raises(ValueError, match="column 'alignment' must hold double"):
        record_table([replace(RECORD, alignment="high")])


def test_read_rollouts_takes_the_steps_asked_for_in_order(run):
    assert open_run(run.path).rollouts(["reward"]).schema.names == ["reward"]
    for step in (1, 2, 10):
        run.write_rollouts(step, [replace(RECORD, step=step)])
    assert open_run(run.path).steps == [1, 2, 10]
    assert open_run(run.path).rollouts()["step"].to_pylist() == [1, 2, 10]
    assert open_run(run.path).rollouts(["step"], [10, 1]).to_pydict() == {"step": [10, 1]}
    with pytest.raises(RecordError, match=r"no rollouts of step 3\. There are steps 1 to 10"):
        open_run(run.path).rollouts(steps=[3])


# -------------------------------------------------------------------------------------------------- files in general


def test_read_jsonl_takes_a_last_line_without_line_end_and_whole_objects_do_not(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert list(whole_objects(path)) == []
    path.write_text('{"a": "x\u2028y\x85z"}\n{"a": 2}')
    assert read_jsonl(path) == [{"a": "x\u2028y\x85z"}, {"a": 2}]
    assert list(whole_objects(path)) == [{"a": "x\u2028y\x85z"}]
    path.write_text("")
    assert read_jsonl(path) == []


@pytest.mark.parametrize("line", [b"[1]", b"", b"{'a': 1}", b'{"a": "\xff"}'])
def test_read_jsonl_names_the_line(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b'\n{"a": 3}\n')
    with pytest.raises(RecordError, match=r"rows\.jsonl:2: (not valid JSON|expected a JSON object, got list)"):
        read_jsonl(path)
    with pytest.raises(RecordError, match=r"rows\.jsonl:2: "):
        list(whole_objects(path))


def test_atomic_file_leaves_the_old_content_when_the_writer_fails(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, "old")

    def write_half() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


LIMITED = """
import resource, sys
from dataclasses import replace
from gar.errors import RecordError
from gar.records import RolloutRecord, RunFolder, open_run
run = RunFolder.open(sys.argv[1])
old = RolloutRecord(**open_run(run.path).rollouts(steps=[1]).to_pylist()[0])
# Python ignores SIGXFSZ, so that a write over the limit fails with EFBIG, as one on a full disk does with ENOSPC.
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
noise = "".join(chr(33 + i * i % 90) for i in range(9000))
for write in (
    lambda: run.write_rollouts(2, [replace(old, step=2, response=noise)]),
    lambda: run.write_rollouts(1, [replace(old, response=noise)]),
    lambda: run.update_run(summary={"text": noise}),
    lambda: run.write_json("evaluation/before.json", {"text": noise}),
    lambda: [run.append_metrics({"step": 100 + i, "text": "x" * 70}) for i in range(100)],
):
    try:
        write()
    except RecordError as error:
        print(error.errno, error)
"""


def test_run_folder_on_a_full_disk_keeps_what_was_written(run):
    run.append_metrics({"step": 1})
    run.write_rollouts(1, [replace(RECORD, step=1)])
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    command = [sys.executable, "-c", LIMITED, str(run.path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    new, old = "no part of it was left behind", "its earlier content is unchanged"
    lines = "all earlier lines are intact"
    names = {"000002.parquet": new, "000001.parquet": old, "run.json": old, "before.json": new, "metrics.jsonl": lines}
    for text, (name, intact) in zip(said, names.items(), strict=True):
        assert text.startswith("27 ")  # EFBIG
        assert f"{name}: cannot be written: File too large (EFBIG). Nothing was lost: {intact}. The disk" in text
    after = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    metrics = after.pop(run.metrics_path)
    assert metrics.startswith(before.pop(run.metrics_path))
    assert after == before
    assert metrics.endswith(b"\n")
    rows = open_run(run.path).metrics
    assert [row["step"] for row in rows] == [1, *range(100, 99 + len(rows))]
    assert len(rows) > 20
