"""One writer at a time: a lock file that names its holder, and no longer counts once the holder is gone.

    FOLDER/.lock          for a folder
    FOLDER/.NAME.lock     for a file, which may itself be replaced meanwhile

The file is created exclusively, which network file systems honor too, and holds one JSON object: host, process, since
when. Its modification time is the heartbeat. The package `filelock` offers a lock file as well, but leaves a dead
holder's file where two names cannot be exchanged (NFS, SMB), or takes the lock from a holder that is merely suspended.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gar.errors import LockedError, RecordError
from gar.records.files import io_error, remove_file, utc_now

_BEAT_SECONDS = 10.0
_SILENT_SECONDS = 90.0
_POLL_SECONDS = 0.2
_REMOVAL_SECONDS = 5.0
_TRIES = 100


@contextmanager
def writer_lock(path: Path, *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Keep every other writer out of a file or folder, on this machine or another.

    A lock whose process is gone is taken over. A process on another machine counts as gone when its heartbeat has been
    silent for 90 seconds. Stderr then says whose lock it was. If that process was merely suspended, it finds its lock
    lost, and stops. A lock file that a kill has cut short names no process, and counts as one from another machine.

    Args:
        path: An existing folder, or a file that need not exist.
        wait_seconds: How long to wait for another writer to end.

    Raises:
        LockedError: Another process writes there. Says which, since when, and what to do.
        RecordError: The lock file cannot be written or read.
    """
    lock_path = _lock_path(path)
    record = json.dumps(asdict(_this_process())).encode()
    process, stop = os.getpid(), threading.Event()
    try:
        _take(path, lock_path, record, deadline=time.monotonic() + wait_seconds)
        threading.Thread(target=_beat, args=(path, lock_path, record, stop), daemon=True).start()
        yield
    finally:
        stop.set()
        if os.getpid() == process:  # a forked child leaves its parent's lock alone
            with suppress(OSError):
                if lock_path.read_bytes() == record:
                    lock_path.unlink()


def refuse_writer(path: Path, *, wait_seconds: float = 0.0) -> None:
    """Check that no other process is writing a file or folder at this moment.

    Args:
        path: As in `writer_lock`.
        wait_seconds: How long to wait for another writer to end.

    Raises:
        LockedError: Another process writes there.
        RecordError: The lock file cannot be read.
    """
    deadline = time.monotonic() + wait_seconds
    while (holder := _holder(path, _lock_path(path))) is not None and not holder.is_gone:
        if time.monotonic() >= deadline:
            raise LockedError(holder.refusal)
        time.sleep(_POLL_SECONDS)


def _lock_path(path: Path) -> Path:
    path = path.resolve()
    return path / ".lock" if path.is_dir() else path.with_name(f".{path.name}.lock")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Owner:
    """Content of a lock file.

    Attributes:
        host: Name of the machine, for people.
        machine: Boot and process namespace: if these are equal, process ids mean the same processes. Empty if the
            system does not tell.
        pid: Process id.
        start: When the process started, in ticks since boot, because process ids are reused. Empty if unknown.
        since: When the process took the lock: UTC, ISO 8601.
        token: Tells this lock from any other.
    """

    host: str
    machine: str
    pid: int
    start: str
    since: str
    token: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Holder:
    """The holder of a lock when its file was read. A file without a readable owner was cut off or is foreign."""

    path: Path
    lock_path: Path
    owner: _Owner | None
    silent_seconds: float

    @property
    def is_local(self) -> bool:
        """Whether this machine can tell if the process still runs."""
        return self.owner is not None and (self.owner.host, self.owner.machine) == (socket.gethostname(), _machine())

    @property
    def is_gone(self) -> bool:
        if self.owner is not None and self.is_local:
            return not _runs(self.owner.pid, self.owner.start)
        return self.silent_seconds > _SILENT_SECONDS

    @property
    def name(self) -> str:
        if self.owner is None:
            return "a process that its lock file does not name"
        return f"process {self.owner.pid} on {self.owner.host}, since {self.owner.since}"

    @property
    def refusal(self) -> str:
        advice = "Wait for it, or end it."
        if not self.is_local:
            advice += (
                f" Its last sign of life was {self.silent_seconds:.0f} seconds ago; after {_SILENT_SECONDS:.0f} the "
                f"lock is free. If you know that it is gone, remove {self.lock_path}."
            )
        return f"{self.path} is being written by another process: {self.name}. {advice}"


def _take(path: Path, lock_path: Path, record: bytes, *, deadline: float) -> None:
    """Create the lock file, as soon as there is none or its holder is gone."""
    tries = 0
    while not _created(lock_path, record):
        holder = _holder(path, lock_path)
        if holder is None:  # released a moment ago
            tries += 1
            if tries == _TRIES:
                raise RecordError(f"{lock_path}: can neither be made nor read. Remove it, and repeat the command.")
        elif holder.is_gone:
            _remove_stale(path, lock_path)
        elif time.monotonic() >= deadline:
            raise LockedError(holder.refusal)
        else:
            time.sleep(_POLL_SECONDS)


def _remove_stale(path: Path, lock_path: Path) -> None:
    """Remove a stale lock. One process at a time looks again and removes it, so that no process removes a new lock."""
    with writer_lock(lock_path, wait_seconds=_REMOVAL_SECONDS):
        holder = _holder(path, lock_path)
        if holder is None or not holder.is_gone:
            return
        remove_file(lock_path)
    if not holder.is_local:
        print(
            f"{path}: the lock of {holder.name}, silent for {holder.silent_seconds:.0f} seconds, was taken over.",
            file=sys.stderr,
        )


def _created(lock_path: Path, record: bytes) -> bool:
    """Whether the lock file could be made; False where there is one."""
    try:
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        with lock_path.open("xb", buffering=0) as file:
            try:
                file.write(record)
            except BaseException:
                lock_path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        if lock_path.parent.is_dir():
            return False
        raise RecordError(f"{lock_path.parent}: a folder was expected, and this is a file.") from None
    except OSError as error:
        raise io_error(lock_path, "written", error) from error
    return True


def _holder(path: Path, lock_path: Path) -> _Holder | None:
    """Who holds the lock; None where there is no lock file."""
    try:
        content, changed = lock_path.read_bytes(), lock_path.stat().st_mtime
    except FileNotFoundError:
        return None
    except OSError as error:
        raise io_error(lock_path, "read", error) from error
    return _Holder(
        path=path, lock_path=lock_path, owner=_owner(content), silent_seconds=max(0.0, time.time() - changed)
    )


def _owner(content: bytes) -> _Owner | None:
    try:
        values: Any = json.loads(content)
        owner = _Owner(**values)
    except (ValueError, TypeError, RecursionError):
        return None
    right = all(type(getattr(owner, field.name)) is field.type for field in fields(_Owner))
    return owner if right and 0 < owner.pid < 2**31 else None


def _beat(path: Path, lock_path: Path, record: bytes, stop: threading.Event) -> None:
    """Show that the process is alive, until told to stop. A process that has lost its lock must stop writing."""
    while not stop.wait(_BEAT_SECONDS):
        try:
            lost = lock_path.read_bytes() != record
            if not lost:
                os.utime(lock_path)
        except FileNotFoundError:
            lost = True
        except OSError:  # a network file system may fail for a while
            continue
        if lost and not stop.is_set():
            _stop_writing(path, lock_path)
            return


def _stop_writing(path: Path, lock_path: Path) -> None:
    """End this process as Ctrl-C would, or as a kill would if it ignores Ctrl-C."""
    reason = "was removed"
    with suppress(RecordError):
        if (holder := _holder(path, lock_path)) is not None:
            reason = f"was taken over by {holder.name}"
    print(f"{path}: the lock {reason} while this process wrote here, so it stops.", file=sys.stderr, flush=True)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        os._exit(1)


def _this_process() -> _Owner:
    return _Owner(
        host=socket.gethostname(),
        machine=_machine(),
        pid=os.getpid(),
        start=_process_state(os.getpid())[1],
        since=utc_now(),
        token=uuid.uuid4().hex,
    )


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux, or /proc is hidden
        return ""


def _runs(pid: int, start: str) -> bool:
    """Whether the process with this id and start time still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    state, started = _process_state(pid)
    return state not in ("Z", "X") and (not start or not started or started == start)


def _process_state(pid: int) -> tuple[str, str]:
    """State and start time (field 22, in ticks since boot) of a process, see proc_pid_stat(5); empty if unknown."""
    try:
        values = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "", ""
    return values[0].decode(), values[19].decode()
