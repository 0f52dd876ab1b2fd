"""One writer at a time: processes that end, are killed, or race."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gar.config import make_config
from gar.errors import LockedError, RecordError
from gar.records import open_run, write_atomic
from gar.records.files import sync
from gar.records.lock import writer_lock
from gar.train.checks import check_before_loading
from tests.support.errors import raises
from tests.support.processes import SECONDS, completed, running
from tests.support.runs import begun_run

HOLD = """
import sys, time
from pathlib import Path
from gar.records.lock import writer_lock
with writer_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""

# Writes half of a file, and the rest when it is told.
WRITE = """
import sys
from gar.records import atomic_file
with atomic_file(sys.argv[1]) as file:
    file.write(b"first " * 50_000)
    file.flush()
    print("half", flush=True)
    sys.stdin.readline()
    file.write(b"first " * 50_000)
"""

# All children wait for the pipe to close, then each takes the lock many times. Two at once would see the other's file.
RACE = """
import os, sys
from pathlib import Path
from gar.errors import LockedError
from gar.records import lock
path, (go, start) = Path(sys.argv[1]), os.pipe()
lock._POLL_SECONDS = 0.001
for number in range(4):
    if os.fork() == 0:
        os.close(start)
        os.read(go, 1)
        for _ in range(50):
            with lock.writer_lock(path, wait_seconds=600):
                (path / "inside").touch(exist_ok=False)
                (path / "inside").unlink()
        os._exit(0)
os.close(start)
print([os.wait()[1] for _ in range(4)])
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of the folder."""
    with running([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process


def test_writer_lock_keeps_a_second_one_out_of_files_and_folders(tmp_path):
    for path, lock_path in ((tmp_path, tmp_path / ".lock"), (tmp_path / "file", tmp_path / ".file.lock")):
        with writer_lock(path):
            with raises(LockedError, "locked", f"{path} ", f"process {os.getpid()} on "), writer_lock(path):
                pass
            assert lock_path.exists()
            (tmp_path / "new").write_text("new")
            os.replace(tmp_path / "new", tmp_path / "file")  # the lock holds while the file is replaced
            with raises(LockedError), writer_lock(path):
                pass
        assert not lock_path.exists()
        with writer_lock(path):
            pass


def test_the_lock_of_a_killed_process_is_free_at_once_and_that_of_a_stopped_one_is_not(tmp_path, holder):
    holder.send_signal(signal.SIGSTOP)
    with raises(LockedError, "locked", f"process {holder.pid} on"), writer_lock(tmp_path, wait_seconds=0.3):
        pass
    holder.kill()
    holder.wait(SECONDS)
    assert (tmp_path / ".lock").exists()
    with writer_lock(tmp_path):
        pass
    assert [*tmp_path.iterdir()] == []


def test_of_processes_that_race_one_holds_the_lock_at_a_time(tmp_path):
    ended = completed([sys.executable, "-c", RACE, str(tmp_path)], check=True)
    assert ended.stdout == "[0, 0, 0, 0]\n", ended.stderr
    assert [*Path(tmp_path).iterdir()] == []


def test_a_forked_child_leaves_its_parents_lock(tmp_path):
    script = (
        HOLD.replace("time.sleep(600)", "import os; os.fork() and os.wait()")
        + "print(Path(sys.argv[1], '.lock').exists())"
    )
    ended = completed([sys.executable, "-c", script, str(tmp_path)], check=True)
    assert ended.stdout == "held\nTrue\nFalse\n"


def test_of_two_writers_of_a_file_one_is_turned_away_and_the_file_is_the_others(tmp_path):
    path = tmp_path / "file"
    command = [sys.executable, "-c", WRITE, str(path)]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"half\n"
        first.send_signal(signal.SIGSTOP)
        with raises(LockedError, "locked", str(path)):
            write_atomic(path, b"second")
        assert not path.exists()
        first.send_signal(signal.SIGCONT)
        first.communicate(b"go on\n", timeout=SECONDS)
    assert first.returncode == 0
    assert path.read_bytes() == b"first " * 100_000
    write_atomic(path, b"third")
    assert path.read_bytes() == b"third"
    assert [*tmp_path.iterdir()] == [path]


def test_what_lies_under_the_temporary_name_is_replaced_and_never_followed(tmp_path):
    path, partial, other = (tmp_path / name for name in ("file", ".file.partial", "other"))
    other.write_bytes(b"of the user")
    for leave in (
        lambda: partial.symlink_to(other),
        lambda: os.mkfifo(partial),
        lambda: partial.write_bytes(b"of a killed writer, and longer than what follows"),
    ):
        leave()
        write_atomic(path, b"new")
        assert (path.read_bytes(), other.read_bytes()) == (b"new", b"of the user")
        assert not os.path.lexists(partial)


@contextmanager
def refusing(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """A file system that answers locks and flushes of folders with this error."""
    flush = os.fsync

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        patch.setattr(os, "fsync", lambda file: refuse() if stat.S_ISDIR(os.fstat(file).st_mode) else flush(file))
        yield


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL])
def test_a_file_system_without_locks_is_one_sentence_and_a_setting_goes_on_without(tmp_path, monkeypatch, number):
    config = make_config({"records": {"output_dir": str(tmp_path / "runs" / "new")}})

    def write() -> None:
        with writer_lock(tmp_path):
            folder = begun_run(tmp_path, "run")
            folder.append_metrics({"step": 1})
            with folder.new_folder("model") as staged:
                (staged / "weights").write_text("1")
            assert folder.read_run().status == "running"

    def lock() -> None:
        with writer_lock(tmp_path / "file"):
            pass

    with refusing(monkeypatch, number):
        for use in (write, lock, lambda: write_atomic(tmp_path / "file", b""), lambda: check_before_loading(config)):
            with raises(RecordError, "no-locks", "no file locks", "damage", "GAR_WITHOUT_LOCKS=1") as caught:
                use()
            assert str(caught.value).count(". ") == 0
        assert [*tmp_path.glob("[!.]*")] == []
        monkeypatch.setenv("GAR_WITHOUT_LOCKS", "1")
        check_before_loading(config)
        lock()
        write()
    assert open_run(tmp_path / "run").metrics == [{"step": 1}]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EBADF])
def test_sync_ignores_a_file_system_that_flushes_no_folders_and_nothing_else(tmp_path, monkeypatch, number):
    write_atomic(tmp_path / "file", b"")

    def refuse(file: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    sync(tmp_path)
    with raises(RecordError, "record", "file: cannot be written"):
        sync(tmp_path / "file")
    number = errno.EIO
    with raises(RecordError, "record", "cannot be written"):
        sync(tmp_path)
