"""What is printed changes nothing that is recorded: terminals that close, readers that leave, disks that are full."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from gar.config import make_config, merge, read_preset
from gar.records import RunFolder, open_run
from gar.train.run import train
from tests.support.processes import SECONDS, running
from tests.train.conftest import FAST, under

GAR = [sys.executable, "-m", "gar"]
FAST_TRAIN = ["train", *FAST, "--trl.max_steps", "2"]


def started(arguments: Sequence[str], **streams: Any) -> "AbstractContextManager[subprocess.Popen[bytes]]":
    return running([*GAR, *arguments], stdin=subprocess.DEVNULL, **streams)


def assert_whole(run: RunFolder) -> None:
    record = run.read_run()
    assert (record.status, record.error) == ("finished", None)
    assert open_run(run.path).steps == [1, 2]


def ignore_hang_up() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.mark.slow
def test_train_outlives_its_terminal(tmp_path):
    """With `nohup`, or `trap '' HUP`, the terminal's window is closed after the first line."""
    terminal, end = pty.openpty()
    command = [*FAST_TRAIN, *under(tmp_path, "run")]
    with started(command, stdout=end, stderr=end, preexec_fn=ignore_hang_up) as process:
        os.close(end)
        assert os.read(terminal, 1)
        os.close(terminal)
        assert process.wait(SECONDS) == 0
    assert_whole(RunFolder.open(tmp_path / "run"))


@pytest.mark.slow
def test_train_outlives_the_readers_of_its_output(tmp_path):
    """As under `gar train ... 2>&1 | head -2`."""
    command = [*FAST_TRAIN, *under(tmp_path, "run")]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        with process.stdout as lines:
            assert lines.readline().startswith(b"gar: loading")
            assert lines.readline()
        assert process.wait(SECONDS) == 0
    assert_whole(RunFolder.open(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["reader", "stdout and stderr"])
def test_report_is_written_without_anybody_to_read_about_it(finished, tmp_path, closed):
    page, script = tmp_path / "page.html", {"reader": '"$@"', "stdout and stderr": '"$@" >&- 2>&-'}
    command = ["sh", "-c", script[closed], "sh", *GAR, "report", str(finished.path), "--out", str(page)]
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.communicate(timeout=SECONDS)[1], process.returncode) == (b"", 0)
    assert page.read_bytes().endswith(b"</html>\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_a_full_disk_cut_off_is_an_error(tmp_path):
    with open("/dev/full", "wb") as full, started(["--version"], stdout=full, stderr=subprocess.PIPE) as process:
        said = process.communicate(timeout=SECONDS)[1]
    assert (process.returncode, said) == (
        1,
        b"gar: a part of the output could not be written: No space left on device.\n",
    )


@pytest.mark.slow
def test_an_error_of_the_callers_own_say_never_unfinishes_a_run(tmp_path):
    """It may print to a notebook that is gone."""
    heard: list[str] = []

    def say(text: Any) -> None:
        heard.append(str(text))
        if heard[-1].startswith("Final model"):
            raise ValueError("nobody is there")

    records = {"records": {"output_dir": str(tmp_path), "name": "run"}, "preflight": {"mode": "off"}}
    tiny = {"trl": {"max_steps": 1, "per_device_train_batch_size": 8}, "evaluate": {"sources": []}}
    with pytest.raises(ValueError, match="nobody is there"):
        train(make_config(merge(merge(read_preset("demo"), records), tiny)), say=say)
    record = RunFolder.open(tmp_path / "run").read_run()
    assert (record.status, record.error) == ("finished", None)
