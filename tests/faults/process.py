"""A `gar` command in a fork that has everything imported, with a fault at one of its writing operations.

An operation changes a file or a name under the command's folder: open for writing, write, truncate, rename, link,
unlink, mkdir, rmdir. A preloaded library (`shim.c`) sees them all, also those of torch, safetensors and pyarrow.
"""

import contextlib
import ctypes
import errno
import io
import json
import mmap
import os
import random
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import psutil
import torch

from gar.cli.main import main
from gar.comparison import pool
from gar.interrupts import end_with_parent

TIMEOUT_SECONDS = 600.0
_LARGEST = 256 * 1024**2

Action = Literal[
    *("kill", "tear", "term", "interrupt", "full", "no-space", "hold", "kill-keeper", "kill-worker", "unreadable"),
    *("lose-stdout", "lose-pipes", "lose-terminal"),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What happens when a command is about to do its operation number `at`, or its first on a path with `path` in it.

    kill, term, interrupt: the signal, after `delay_seconds`, and then `again` after so long. tear: half of a write,
    then SIGKILL. full: from here on no file grows beyond `limit_bytes`. no-space: from here on nothing new can be
    opened or made. hold: wait for release. kill-keeper, kill-worker: of the verifier. unreadable: a name that ends in
    `path` cannot be opened for reading. lose-: whoever reads stdout, or stdout and stderr, is gone.
    """

    action: Action
    at: int = sys.maxsize
    path: str = ""
    limit_bytes: int = 0
    delay_seconds: float = 0.0
    again: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The exit status of a command, negative for a signal and None after the time limit, and its output."""

    status: int | None
    text: str

    @property
    def sentence(self) -> str | None:
        """The error message, if the command ended with status 1 and without a traceback."""
        last = (self.text.strip().splitlines() or [""])[-1]
        return last if self.status == 1 and "Traceback" not in self.text and last.startswith("gar ") else None


class Command:
    """A running `gar` command in a fork of this process, in a folder. `record` gets a JSON line per operation."""

    def __init__(self, arguments: Sequence[str], folder: Path, fault: Fault | None = None, record: Path | None = None):
        self._text: list[bytes] = []
        self._status: int | None = None
        self._held, held = os.pipe()
        release, self._release = os.pipe()
        reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            for end in (self._held, self._release, reader):
                os.close(end)
            _live(arguments, folder, _Watch(folder, fault, record, held, release), writer)
        for end in (held, release, writer):
            os.close(end)
        os.set_blocking(reader, False)
        self._reader = reader

    def wait_until_held(self) -> bool:
        """Wait for the operation at which it is held. Returns False if it ended before, or hangs."""
        ready, _, _ = select.select([self._held], [], [], TIMEOUT_SECONDS)
        return bool(ready) and os.read(self._held, 1) != b""

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        deadline = time.monotonic() + seconds
        while self._status is None and time.monotonic() < deadline:
            self._read()
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            if ended:
                self._status = os.waitstatus_to_exitcode(status)
            else:
                time.sleep(0.01)

    def end(self) -> Ending:
        """Release it, wait for its end, and end whatever it started."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._release, b"x")
        os.close(self._release)
        self.wait(TIMEOUT_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if self._status is None:
            os.waitpid(self._pid, 0)
        self._read()
        os.close(self._held)
        os.close(self._reader)
        return Ending(status=self._status, text=b"".join(self._text).decode(errors="replace"))

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._reader, 65536):
                self._text.append(piece)


def run(arguments: Sequence[str], folder: Path, fault: Fault | None = None, record: Path | None = None) -> Ending:
    """Run a command to its end."""
    return Command(arguments, folder, fault, record).end()


def _live(arguments: Sequence[str], folder: Path, watch: "_Watch", writer: int) -> None:
    """The whole life of the fork."""
    status = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 1)
        os.dup2(writer, 2)
        sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(fd, "wb", 0), write_through=True) for fd in (1, 2))
        _reseed()
        pool.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": _start_run})
        watch.begin()
        status = main(arguments)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _reseed() -> None:
    """Give the fork a new random state, as new processes have. What must be repeatable sets a seed."""
    seed = int.from_bytes(os.urandom(4))
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  what is trained may draw from it
    torch.manual_seed(seed)


class _Watch:
    """Counts the operations of this process and its forks through the preloaded `shim.c`, and injects the fault."""

    descriptors: ClassVar[set[int]] = set()  # that forks keep

    def __init__(self, folder: Path, fault: Fault | None, record: Path | None, held: int, release: int):
        self._root = str(folder)
        self._fault = fault
        self._at = fault.at if fault else sys.maxsize
        self._record = record and os.open(record, os.O_WRONLY | os.O_CREAT)
        self._held, self._release = held, release
        _Watch.descriptors = {held, release, *([] if self._record is None else [self._record])}
        self._count = mmap.mmap(-1, ctypes.sizeof(ctypes.c_long))
        self._meet = _MEET(self._operation)

    def begin(self) -> None:
        """Watch from here on."""
        shim, fault = ctypes.CDLL(None), self._fault
        at = 1 if self._record or (fault and fault.path) else self._at
        count = ctypes.addressof(ctypes.c_long.from_buffer(self._count))
        shim.faults_arm(self._root.encode(), ctypes.c_void_p(count), ctypes.c_long(at), self._meet)
        if fault and fault.action == "unreadable":
            shim.faults_unreadable(fault.path.encode())
        elif fault and fault.at == 0:
            self._befall(fault)

    def _operation(self, event: bytes, path: bytes, count: int) -> int:
        """0 to go on, -1 to tear the write, else the error to fail with."""
        name = event.decode()
        if self._record:
            line = {"event": name, "path": os.path.relpath(os.fsdecode(path), self._root)}
            os.write(self._record, json.dumps(line).encode() + b"\n")
        fault = self._fault
        if fault and fault.path and self._at > count and fault.path in os.fsdecode(path):
            self._at = count
        if fault is None or count < self._at:
            return 0
        if fault.action == "no-space" and name in ("open", "mkdir"):
            return errno.ENOSPC
        if count == self._at and fault.action == "tear":
            return -1
        if count == self._at:
            self._befall(fault)
        return 0

    def _befall(self, fault: Fault) -> None:
        signals = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "interrupt": signal.SIGINT}
        if fault.action in signals:
            self._send(signals[fault.action], fault)
        elif fault.action == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (fault.limit_bytes, _LARGEST))
        elif fault.action == "hold":
            os.write(self._held, b"x")
            os.read(self._release, 1)
        elif fault.action in ("kill-keeper", "kill-worker"):
            keepers = [
                child for child in psutil.Process().children() if "gar.verify.keeper" in " ".join(child.cmdline())
            ]
            workers = [worker for keeper in keepers for worker in keeper.children()]
            for process in keepers if fault.action == "kill-keeper" else workers:
                process.kill()
        elif fault.action.startswith("lose"):
            self._lose(terminal=fault.action == "lose-terminal", both=fault.action != "lose-stdout")

    def _send(self, which: signal.Signals, fault: Fault) -> None:
        def send() -> None:
            time.sleep(fault.delay_seconds)
            os.kill(os.getpid(), which)
            if fault.again is not None:
                time.sleep(fault.again)
                os.kill(os.getpid(), which)

        threading.Thread(target=send, daemon=True).start() if fault.delay_seconds else send()

    def _lose(self, *, terminal: bool, both: bool) -> None:
        reader, writer = os.openpty() if terminal else os.pipe()
        os.close(reader)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for descriptor in (1, 2) if both else (1,):
            os.dup2(writer, descriptor)


_MEET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long)


def _start_run(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """The `Popen` of `gar compare`: a run in a fork that has everything imported."""
    kept = {0, 1, 2, *options.get("pass_fds", ()), *_Watch.descriptors}

    def live() -> None:
        status = 1
        try:
            for name in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):  # that of the listing itself
                    if int(name) not in kept:
                        os.close(int(name))  # also the one that `Popen` waits for
            end_with_parent()
            status = main([*command][3:])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    return subprocess.Popen(command, **options | {"preexec_fn": live})
