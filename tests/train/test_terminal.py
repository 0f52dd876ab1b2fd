"""What is printed changes nothing that is recorded. `tests/faults` closes terminals, and ends readers of the output."""

import sys
from pathlib import Path
from typing import Any

import pytest

from gar.config import make_config, merge, read_preset
from gar.records import RunFolder
from gar.train.run import train
from tests.support.processes import completed

GAR = [sys.executable, "-m", "gar"]


@pytest.mark.slow
def test_report_is_written_with_its_streams_closed(finished, tmp_path):
    page = tmp_path / "page.html"
    command = ["sh", "-c", '"$@" >&- 2>&-', "sh", *GAR, "report", str(finished.path), "--out", str(page)]
    assert completed(command).returncode == 0
    assert page.read_bytes().endswith(b"</html>\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_a_full_disk_cut_off_is_an_error():
    done = completed(["sh", "-c", '"$@" > /dev/full', "sh", *GAR, "--version"])
    said = "gar: a part of the output could not be written: No space left on device.\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_unbuffered_streams_keep_the_order_of_what_is_printed():
    code = (
        "import sys\nfrom gar.output import lasting_output\nwith lasting_output():\n"
        "    print('bar', end='', file=sys.stderr)\n    print(file=sys.stderr)\n    print('message', flush=True)\n"
    )
    done = completed(["sh", "-c", '"$@" 2>&1', "sh", sys.executable, "-u", "-c", code])
    assert done.stdout == "bar\nmessage\n"


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
