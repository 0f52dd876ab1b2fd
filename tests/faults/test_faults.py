"""A sample of `make test-faults`, and the judge: what it must see, and what it must not mind."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.faults.judge import acknowledged, contents, differences
from tests.support.processes import completed


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks up descriptors and children in /proc")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_sample_of_tries_loses_nothing():
    """In a process of its own: the suite forks, and this one may have threads."""
    done = completed([sys.executable, "-m", "tests.faults", "--sample", "--lanes", "1"], cwd=ROOT, seconds=6_000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all | 4 |" in done.stdout


@pytest.mark.slow
def test_a_run_that_is_stopped_twice_ends_as_an_uninterrupted_one(tmp_path: Path):
    """The long run, short."""
    command = [sys.executable, "-m", "tests.faults.long", tmp_path, "--steps", "130", "--stops", "2"]
    done = completed(command, cwd=ROOT, seconds=6_000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 kinds of differences" in done.stdout
    assert "step 100" in done.stdout


def test_the_judge_sees_a_bit_a_row_and_a_file_and_no_times_and_locks(tmp_path: Path):
    (tmp_path / "model").mkdir()
    weights, metrics = tmp_path / "model" / "weights", tmp_path / "metrics.jsonl"
    weights.write_bytes(b"abc")
    row = {"step": 1, "loss": 0.5, "time/step_seconds": 1.0}
    metrics.write_text(json.dumps(row) + "\n")
    whole, before = contents(tmp_path), acknowledged(tmp_path)
    (tmp_path / "run.json").write_text('{"status": "failed"}')
    assert acknowledged(tmp_path) == before
    (tmp_path / "run.json").unlink()
    metrics.write_text(json.dumps(row | {"time/step_seconds": 2.0}) + "\n")
    (tmp_path / ".lock").touch()
    assert differences(whole, contents(tmp_path)) == []
    weights.write_bytes(b"abb")
    metrics.write_text('{"step": 1, "loss": 0.5}\n{"step": 1, "loss": 0.5}\n')
    (tmp_path / "left-over").touch()
    assert differences(whole, contents(tmp_path)) == ["different: metrics.jsonl, model/weights", "too much: left-over"]
    assert acknowledged(tmp_path) != before
    weights.unlink()
    assert "missing: model/weights" in differences(whole, contents(tmp_path))
