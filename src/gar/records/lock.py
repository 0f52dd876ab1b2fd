"""One writer at a time: a lock of the kernel, which is free the moment its process is gone.

    FOLDER/.lock          for a folder
    FOLDER/.NAME.lock     for a file, which may itself be replaced meanwhile

The lock file names its holder, for the message to others. A process that is merely suspended keeps its lock.
"""

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from gar.errors import LockedError
from gar.records.files import system_errors, take_lock, utc_now


def has_locks(folder: Path) -> bool:
    """Whether files in a folder, or in its nearest parent that exists, can be locked.

    Raises:
        RecordError: They cannot, and `GAR_WITHOUT_LOCKS` is not 1. Or the system reports an error.
    """
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    with system_errors(there, "written"), tempfile.TemporaryFile(dir=there) as probe:
        return take_lock(probe, folder)


@contextmanager
def writer_lock(path: Path, *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Keep every other writer out of a folder, or a file that need not exist.

    The lock holds on this machine and, if the file system shares locks, on others. `wait_seconds` is how long to wait
    for another writer to end. After that, a `LockedError` names the writer, its start time and what to do. Nobody is
    kept out on a file system without locks, where `has_locks` is False.
    """
    path = path.resolve()
    lock_path = path / ".lock" if path.is_dir() else path.with_name(f".{path.name}.lock")
    process, lock = os.getpid(), FileLock(lock_path)
    # Without locks of the file system nothing can be promised. `has_locks` has raised unless the user accepts that.
    with system_errors(lock_path, "written"):
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        locks = has_locks(lock_path.parent)
    if not locks:
        yield
        return
    with system_errors(lock_path, "written"):
        try:
            lock.acquire(timeout=wait_seconds)  # of the kernel: it is free at once if the holder is killed
        except Timeout:
            raise LockedError(
                f"{path} is being written by another process: {_holder(lock_path)}. Wait for it, or end it."
            ) from None
    # The name in the file is for the message to others only.
    try:
        with system_errors(lock_path, "written"):
            holder = f"process {os.getpid()} on {socket.gethostname()}, since {utc_now()}"
            lock_path.write_text(holder, encoding="utf-8")
        yield
    finally:
        if os.getpid() == process:  # not in a forked child, whose parent still holds the lock
            with suppress(OSError):
                lock_path.unlink()  # whoever waits for this file sees that it is gone, and makes a new one
            lock.release()


def _holder(lock_path: Path) -> str:
    with suppress(OSError, ValueError):
        return lock_path.read_text(encoding="utf-8") or "it has not written its name yet"
    return "it has just ended"
