"""A sample of `make test-faults`, and the judge: what it must see, and what it must not mind."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.judge import acknowledged, contents, differences


@pytest.mark.skipif(sys.platform != "linux", reason="looks up descriptors and children in /proc")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_faults_sample_loses_nothing():
    """In a process of its own: the suite forks, and this one may have threads."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--sample", "--lanes", "1"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all | 5 |" in done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"abc")
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": 0.5, "time/step_seconds": 1.0}) + "\n")
    return tmp_path


def test_contents_differ_by_a_bit_a_row_and_a_file(folder: Path):
    whole = contents(folder)
    (folder / "model" / "weights").write_bytes(b"abb")
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 1, "loss": 0.5}\n')
    (folder / "left-over").touch()
    assert differences(whole, contents(folder)) == ["different: metrics.jsonl, model/weights", "too much: left-over"]
    (folder / "model" / "weights").unlink()
    assert "missing: model/weights" in differences(whole, contents(folder))


def test_contents_do_not_depend_on_times_and_locks(folder: Path):
    whole = contents(folder)
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": 0.5, "time/step_seconds": 2.0}) + "\n")
    (folder / ".lock").touch()
    assert differences(whole, contents(folder)) == []


def test_acknowledged_sees_what_a_refusing_command_cut(folder: Path):
    before = acknowledged(folder)
    (folder / "run.json").write_text('{"status": "failed"}')
    assert acknowledged(folder) == before
    (folder / "metrics.jsonl").write_text("")
    assert acknowledged(folder) != before
