"""One writer at a time, whatever becomes of it: real processes that end, are killed, or race."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gar.errors import LockedError, RecordError
from gar.records import lock
from gar.records.lock import refuse_writer, writer_lock

HOLD = """
import sys, time
from pathlib import Path
from gar.records.lock import writer_lock
with writer_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

# All children wait for the pipe to close, try at once, and the winner holds until all have tried. Between finding the
# lock stale and acting on it each takes its time, so that what it has found may be true no more.
RACE = """
import os, random, sys, time
from pathlib import Path
from gar.errors import LockedError
from gar.records import lock
from gar.records.lock import writer_lock
path, (go, start) = Path(sys.argv[1]), os.pipe()
runs, lock._POLL_SECONDS = lock._runs, 0.01
def slowly(pid, start):
    found = runs(pid, start)
    time.sleep(random.Random(os.getpid()).random() / 20)
    return found
lock._runs = slowly
for number in range(8):
    if os.fork() == 0:
        os.close(start)
        os.read(go, 1)
        try:
            with writer_lock(path):
                (path / f"won-{number}").touch()
                while len(list(path.glob("lost-*"))) < 7 and not len(list(path.glob("won-*"))) > 1:
                    time.sleep(0.01)
        except LockedError:
            (path / f"lost-{number}").touch()
        os._exit(0)
os.close(start)
for _ in range(8):
    os.wait()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def leave_lock(path: Path, *, seconds_ago: float = 0.0, **changes: object) -> Path:
    """A lock file as another process left it."""
    with writer_lock(path):
        values = json.loads((path / ".lock").read_bytes())
    lock_path = path / ".lock"
    lock_path.write_text(json.dumps(values | changes))
    age(lock_path, seconds_ago)
    return lock_path


def age(lock_path: Path, seconds: float) -> None:
    os.utime(lock_path, (time.time() - seconds,) * 2)


def test_writer_lock_keeps_a_second_one_out_of_files_and_folders(tmp_path):
    for path, lock_path in ((tmp_path, tmp_path / ".lock"), (tmp_path / "file", tmp_path / ".file.lock")):
        with writer_lock(path):
            said = rf"{path} is being written by another process: process {os.getpid()} on .*, since 20.*\. Wait for it"
            with pytest.raises(LockedError, match=said), writer_lock(path):
                pass
            with pytest.raises(LockedError, match=said):
                refuse_writer(path)
            assert lock_path.exists()
        assert not lock_path.exists()
        refuse_writer(path)
        with writer_lock(path):
            pass


def test_writer_lock_of_a_file_holds_while_the_file_is_replaced(tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_text("old")
    with writer_lock(path):
        (tmp_path / "new").write_text("new")
        os.replace(tmp_path / "new", path)
        with pytest.raises(LockedError), writer_lock(path):
            pass


def test_writer_lock_says_which_process_holds_the_lock(tmp_path, holder):
    with pytest.raises(LockedError, match=f"process {holder.pid} on"), writer_lock(tmp_path):
        pass


@pytest.mark.parametrize("reaped", [True, False], ids=["gone", "not yet reaped"])
def test_the_lock_of_a_killed_process_is_taken_at_once(tmp_path, holder, reaped, capsys):
    holder.kill()
    if reaped:
        holder.wait()
    else:
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    assert (tmp_path / ".lock").exists()
    with writer_lock(tmp_path):
        pass
    assert [*tmp_path.iterdir()] == []
    assert capsys.readouterr().err == ""


def test_a_stopped_process_keeps_its_lock(tmp_path, holder):
    holder.send_signal(signal.SIGSTOP)
    age(tmp_path / ".lock", 1e6)
    with pytest.raises(LockedError), writer_lock(tmp_path):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the start of a process is not known")
def test_a_process_id_that_is_used_again_does_not_hold_the_lock(tmp_path):
    leave_lock(tmp_path, start="1")
    with writer_lock(tmp_path):
        pass


@pytest.mark.parametrize("other", [{"host": "node7"}, {"machine": "another boot"}], ids=["machine", "boot"])
def test_a_lock_from_another_machine_is_free_once_it_is_silent(tmp_path, other, capsys):
    lock_path = leave_lock(tmp_path, pid=4242, seconds_ago=60, **other)
    said = rf"process 4242 on .* sign of life was 6\d seconds ago; after 90 .* gone, remove {lock_path}"
    with pytest.raises(LockedError, match=said), writer_lock(tmp_path):
        pass
    age(lock_path, 100)
    with writer_lock(tmp_path):
        pass
    assert "the lock of process 4242 on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b"", bytes(100), b"[1]", b"[" * 100_000, b'{"pid": 1}', b"\xff"],
    ids=["empty", "zeros", "list", "deep", "fields", "bytes"],
)  # fmt: skip
def test_a_lock_file_that_names_nobody_is_free_once_it_is_silent(tmp_path, content):
    (tmp_path / ".lock").write_bytes(content)
    with pytest.raises(LockedError, match="a process that its lock file does not name"), writer_lock(tmp_path):
        pass
    age(tmp_path / ".lock", 100)
    with writer_lock(tmp_path):
        pass


def test_a_lock_file_with_values_of_other_types_names_nobody(tmp_path):
    for changes in ({"pid": "1"}, {"pid": -1}, {"pid": True}, {"host": None}):
        leave_lock(tmp_path, **changes)
        with pytest.raises(LockedError, match="does not name"), writer_lock(tmp_path):
            pass
        (tmp_path / ".lock").unlink()


def test_what_is_no_lock_file_is_named(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(RecordError, match=r"\.lock: cannot be read: .*EISDIR"), writer_lock(tmp_path):
        pass
    (tmp_path / ".lock").rmdir()
    (tmp_path / ".lock").symlink_to("nowhere")
    with pytest.raises(RecordError, match="can neither be made nor read"), writer_lock(tmp_path):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="file"), writer_lock(tmp_path / "file" / "inside"):
        pass


def test_of_eight_processes_one_takes_a_stale_lock(tmp_path):
    for _ in range(3):
        leave_lock(tmp_path, start="1")
        subprocess.run([sys.executable, "-c", RACE, str(tmp_path)], check=True, timeout=60)
        assert (len([*tmp_path.glob("won-*")]), len([*tmp_path.glob("lost-*")])) == (1, 7)
        for path in tmp_path.iterdir():
            path.unlink()  # no lock is left among them
            assert "lock" not in path.name


def test_the_heartbeat_shows_and_a_lost_lock_stops_its_process(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lock, "_BEAT_SECONDS", 0.02)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job
    try:
        with writer_lock(tmp_path):
            age(tmp_path / ".lock", 100)
            deadline = time.monotonic() + 30
            while time.time() - (tmp_path / ".lock").stat().st_mtime > 50:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        with pytest.raises(KeyboardInterrupt), writer_lock(tmp_path):  # noqa: PT012
            leave = (tmp_path / ".lock").read_bytes().replace(b'"token": "', b'"token": "x')
            (tmp_path / ".lock").write_bytes(leave)
            time.sleep(30)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / ".lock").read_bytes() == leave  # the new holder's
    assert "the lock was taken over by process" in capsys.readouterr().err


def test_a_lock_that_cannot_be_written_is_not_left_behind(tmp_path, monkeypatch):
    class Full(io.FileIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        opened = Path.open
        patch.setattr(Path, "open", lambda path, mode="r", *a, **k: (Full if mode == "xb" else opened)(path, mode))
        with pytest.raises(RecordError, match=r"cannot be written: .*ENOSPC"), writer_lock(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_writer_lock_waits_for_another_to_end(tmp_path, holder):
    with pytest.raises(LockedError), writer_lock(tmp_path, wait_seconds=0.3):
        pass
    holder.terminate()
    with writer_lock(tmp_path, wait_seconds=30):
        pass


def test_a_forked_child_leaves_its_parents_lock(tmp_path):
    script = (
        HOLD.replace("time.sleep(60)", "import os; os.fork() and os.wait()")
        + "print(Path(sys.argv[1], '.lock').exists())"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True, timeout=60)
    assert ended.stdout == b"held\nTrue\nFalse\n"
