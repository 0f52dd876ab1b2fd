"""The pool with real processes that hang, crash, eat memory, and must leave nothing behind."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from gar.types import Status
from gar.verify.keeper import Setup
from gar.verify.verifier import custom_grader
from gar.verify.workers import WorkerError, WorkerPool
from tests.docs.pages import ROOT
from tests.support.errors import raises
from tests.support.processes import SECONDS, completed, running, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")

MEMORY_BYTES = 192 * 1024**2


def is_alive(pid: int) -> bool:
    """A zombie that nobody has buried is dead."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def pids_in(path: Path) -> list[int]:
    """Process ids that a grader left, waiting for them."""
    assert wait_until(path.exists)
    return [int(pid) for pid in path.read_text().split()]


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with hostile_pool() as pool:
        yield pool


def new_pool(grader: str = "hostile_graders:by_name", *, timeout_seconds: float = 1.0, num_workers: int = 2):
    function = pickle.dumps(custom_grader(grader))
    setup = Setup(function=function, warm_up=(), timeout_seconds=timeout_seconds, memory_bytes=MEMORY_BYTES)
    return WorkerPool(setup, num_workers)


def hostile_pool(**settings) -> AbstractContextManager[WorkerPool]:
    return closing(new_pool(**settings))


def test_run_keeps_the_order_and_takes_texts_larger_than_a_pipe(pool: WorkerPool) -> None:
    items = [(str(i), str(i if i % 3 else -1)) for i in range(200)]
    statuses = [outcome.status for outcome in pool.run(items)]
    assert statuses == [Status.OK if i % 3 else Status.WRONG for i in range(200)]
    text = "x" * 5_000_000
    assert [outcome.status for outcome in pool.run([(text, text), (text, "y")])] == [Status.OK, Status.WRONG]


def test_run_kills_a_worker_at_its_limit(pool: WorkerPool) -> None:
    pool.run([("7", "7")])
    started = time.monotonic()
    outcomes = pool.run([("7", "7"), ("hang", ""), ("7", "7"), ("hang-in-c", ""), ("7", "8")])
    expected = [Status.OK, Status.TIMEOUT, Status.OK, Status.TIMEOUT, Status.WRONG]
    assert [outcome.status for outcome in outcomes] == expected
    assert {(outcomes[i].detail, outcomes[i].grade) for i in (1, 3)} == {("killed after 1 s", 0.0)}
    assert 1.0 <= time.monotonic() - started < SECONDS


FAILURES = {
    "exit": "the worker exited with code 3",
    "segfault": "the worker died of signal 11",
    "sys-exit": "SystemExit: leaving",
    "raise": "KeyError: 'no such key'",
    "eat-memory": "MemoryError",
    "close-pipe": "the worker ",  # died or was killed, whichever came first
}


def test_run_a_failure_is_an_error_and_the_pool_recovers() -> None:
    with hostile_pool(timeout_seconds=20.0) as pool:
        for how, detail in FAILURES.items():
            outcomes = pool.run([(how, ""), ("7", "7"), (how, ""), ("7", "8")])
            assert [outcome.status for outcome in outcomes] == [Status.ERROR, Status.OK, Status.ERROR, Status.WRONG]
            assert (outcomes[0].detail[: len(detail)], outcomes[0].grade) == (detail, 0.0)
        assert pool.run([("7", "7")])[0].status == Status.OK


def test_run_kills_what_a_killed_worker_started(pool: WorkerPool, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    assert pool.run([("child-and-hang", str(note))])[0].status == Status.TIMEOUT
    (child,) = pids_in(note)
    assert wait_until(lambda: not is_alive(child))


def test_run_works_from_threads(pool: WorkerPool) -> None:
    def statuses(hanging: int) -> list[Status]:
        return [outcome.status for outcome in pool.run([("hang" if i == hanging else "7", "7") for i in range(5)])]

    with ThreadPoolExecutor() as threads:
        found = list(threads.map(statuses, range(2)))
    assert found == [[Status.TIMEOUT if i == hanging else Status.OK for i in range(5)] for hanging in range(2)]


def test_run_blames_no_item_for_a_process_that_died_idle(tmp_path: Path) -> None:
    with hostile_pool(num_workers=1) as pool:
        for which in (0, 1):  # the worker, then its keeper
            note = tmp_path / str(which)
            pool.run([("tell-pids", str(note))])
            pid = pids_in(note)[which]
            os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda pid=pid: not is_alive(pid))
            assert [outcome.status for outcome in pool.run([("7", "7")] * 3)] == [Status.OK] * 3


def test_run_in_a_workers_own_surroundings(capfd: pytest.CaptureFixture[str]) -> None:
    import torch  # noqa: F401  in this process, so not in a worker's

    items = [(what, "") for what in ("heavy-imports", "print", "pid", "eat-memory", "pid")]
    with hostile_pool(num_workers=1, timeout_seconds=20.0) as pool:
        imports, printed, before, _, after = pool.run(items)
    assert (imports.status, printed.status) == (Status.WRONG, Status.OK)
    assert capfd.readouterr() == ("", "printed by a grader\n")
    assert "the grader returned" in before.detail  # "the grader returned <process id>, expected ..."
    assert before.detail != after.detail  # replaced near its memory limit


def printed(program: str, *arguments: object, check: bool = True) -> str:
    """What a program prints that has a pool of its own, and may hang."""
    start = f"""
import os, signal, struct, sys, threading, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from gar.verify import Verifier, workers
from tests.verify.test_workers import hostile_pool, is_alive, kill_when_told, new_pool, pids_in, wait_until
notes = [Path(name) for name in sys.argv[1:]]
"""
    return completed([sys.executable, "-c", start + program, *arguments], check=check, cwd=ROOT).stdout


def test_run_in_a_forked_process_leaves_the_parents_workers_alone() -> None:
    program = """
verifier = Verifier(custom="hostile_graders:same")
statuses = [verifier.verify(["7"], ["7"])[0].status]
child = os.fork()
statuses += [verifier.verify(["7"], ["7"])[0].status]
if child == 0:
    verifier.close()
    os._exit(0 if statuses == ["ok", "ok"] else 1)
statuses += [os.waitpid(child, 0)[1], verifier.verify(["7"], ["7"])[0].status]
print(*statuses)
"""
    assert printed(program) == "ok ok 0 ok\n"


def test_run_in_a_fork_while_a_thread_of_the_parent_runs(tmp_path: Path) -> None:
    program = """
pool = new_pool(timeout_seconds=600.0)
threading.Thread(target=pool.run, args=([("tell-pid-and-hang", notes[0])],), daemon=True).start()
pids_in(notes[0])
child = os.fork()
if child == 0:
    os._exit(pool.run([("7", "7")])[0].status != "ok")
print(os.waitpid(child, 0)[1], flush=True)
os._exit(0)
"""
    assert printed(program, tmp_path / "pids") == "0\n"


def test_keepers_end_though_a_fork_of_their_dead_pool_lives(tmp_path: Path) -> None:
    """The pool dies in the middle of a message, and keepers must not wait for the rest of it."""
    program = """
pool = new_pool(num_workers=1)
pool.run([("tell-pids", str(notes[0]))])
if os.fork():
    os.write(pool._controls[0].fileno(), struct.pack("!i", 100))
    os.kill(os.getpid(), signal.SIGKILL)
print(wait_until(lambda: not any(map(is_alive, pids_in(notes[0]))), 100.0))
"""
    assert printed(program, tmp_path / "pids", check=False) == "True\n"


def test_run_ends_though_a_worker_stops_inside_a_message() -> None:
    program = """
with hostile_pool() as pool:
    print(*(f"{outcome.status} {outcome.detail}" for outcome in pool.run([("half-message", ""), ("7", "7")])), sep=", ")
"""
    assert printed(program) == "timeout killed after 1 s, ok \n"


def test_run_replaces_a_stopped_keeper(tmp_path: Path) -> None:
    program = """
workers.START_SECONDS, workers.END_SECONDS = 0.7, 0.2
kill_when_told(notes[0], 1, how=signal.SIGSTOP)
with hostile_pool(num_workers=1, timeout_seconds=0.4) as pool:
    print(*(outcome.status for outcome in pool.run([("tell-pid-and-hang-once", str(notes[0])), ("7", "7")])))
    print(wait_until(lambda: not any(map(is_alive, pids_in(notes[0])))))
"""
    assert printed(program, tmp_path / "pids") == "ok ok\nTrue\n"


def test_close_ends_keepers_that_are_stopped(tmp_path: Path) -> None:
    """The first waits for the second, which is stopped, and cannot end."""
    program = """
workers.END_SECONDS = 0.2
pool = new_pool()
pool.run([("tell-pid-and-hang", str(note)) for note in notes])
keepers = [pids_in(note)[1] for note in notes]
os.kill(max(keepers), signal.SIGSTOP)
pool.close()
print(wait_until(lambda: not any(map(is_alive, keepers)), 100.0))
"""
    assert printed(program, tmp_path / "a", tmp_path / "b") == "True\n"


def kill_when_told(note: Path, which: int, *, times: int = 1, how: signal.Signals = signal.SIGKILL) -> threading.Thread:
    """Kill the worker (0) or its keeper (1), each time a grader leaves their process ids in `note`."""

    def kill() -> None:
        for _ in range(times):
            pid = pids_in(note)[which]
            if times > 1:
                note.unlink()
            os.kill(pid, how)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def test_run_tries_again_what_was_killed_from_outside_but_not_for_ever(tmp_path: Path) -> None:
    # Which process is killed, how often, and what becomes of the item.
    with hostile_pool(timeout_seconds=20.0, num_workers=1) as pool:
        for which, times, status in ((0, 1, Status.OK), (0, 2, Status.ERROR), (1, 1, Status.OK), (1, 4, None)):
            note = tmp_path / f"{which}-{times}"
            killer = kill_when_told(note, which, times=times)
            items = [("tell-pid-and-hang-once", str(note)), ("7", "7"), ("7", "8")]
            if status is None:
                with raises(WorkerError):
                    pool.run(items)
            else:
                assert [outcome.status for outcome in pool.run(items)] == [status, Status.OK, Status.WRONG]
            killer.join(SECONDS)
        assert pool.run([("7", "7")])[0].status == Status.OK


@pytest.mark.parametrize("num_workers", [1, 2])  # of one, none is busy when the budget is spent
def test_run_many_items_that_hang_cost_a_bounded_time(num_workers: int, caplog: pytest.LogCaptureFixture) -> None:
    with hostile_pool(timeout_seconds=0.2, num_workers=num_workers) as pool:
        pool.run([("7", "7")])
        outcomes = pool.run([("7", "7"), *(("hang", str(i)) for i in range(512)), ("7", "7")])
        assert pool.run([("7", "7")])[0].status == Status.OK  # a new batch has its own time
    assert outcomes[0].status == Status.OK
    assert {outcome.status for outcome in outcomes[1:]} == {Status.TIMEOUT}
    killed = sum(outcome.detail == "killed after 0.2 s" for outcome in outcomes)
    num_left = 513 - killed
    assert 6 * num_workers <= killed <= 20 * num_workers  # six limits, what they were at, and the sound item's time
    assert f"not checked, as {num_left} of 514: answers before it that were killed had cost " in outcomes[-1].detail
    (message,) = caplog.messages  # the batch ran once
    assert f"{num_left} of 514 answers were not checked and count as timed out: others that were killed" in message


def test_run_limits_get_shorter_before_any_item_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gar.verify.workers.BRIEF_SECONDS", 0.01)
    with hostile_pool(timeout_seconds=0.4) as pool:
        outcomes = pool.run([*[("hang", "")] * 12, *[("7", "7")] * 12])
    details = [outcome.detail for outcome in outcomes[:12]]
    assert details[:6] == ["killed after 0.4 s"] * 6
    assert details[8:] == ["killed after 0.04 s"] * 4
    # Every sound answer was tried. On a busy machine 0.04 s may be too short.
    assert all(outcome.status == Status.OK or outcome.detail == "killed after 0.04 s" for outcome in outcomes[12:])


def test_run_says_so_when_no_worker_can_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "exiting_grader.py"
    module.write_text("def grade(text, gold): return True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with hostile_pool(grader="exiting_grader:grade") as pool:
        module.write_text("import os; os._exit(5)\n")
        with raises(WorkerError):
            pool.run([("7", "7")])


def test_close_ends_all_processes_and_so_does_the_end_of_a_forgotten_pool(tmp_path: Path) -> None:
    pool = new_pool()
    for note in (tmp_path / "first", tmp_path / "second"):
        pool.close()
        pool.close()
        pool.run([("tell-pids", str(note)), ("7", "7")])
    first, second = (pids_in(tmp_path / name) for name in ("first", "second"))
    assert not any(map(is_alive, first))
    assert is_alive(second[1])
    del pool
    assert wait_until(lambda: not any(map(is_alive, second)))


HANGING_PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so their children
sys.path.insert(0, {folder!r})
from gar.verify import Verifier
Verifier(custom="hostile_graders:by_name", timeout_seconds=600).verify(["tell-pid-and-hang"] * 2, {notes!r})
"""


def test_run_interrupted_leaves_nothing_for_the_next_run(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    interrupt = threading.Thread(target=lambda: (pids_in(note), os.kill(os.getpid(), signal.SIGINT)), daemon=True)
    with hostile_pool(timeout_seconds=20.0) as pool:
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            pool.run([("tell-pid-and-hang", str(note)), *[("nap", "")] * 9])
        interrupt.join(SECONDS)
        assert wait_until(lambda: not any(map(is_alive, pids_in(note))))
        assert [outcome.status for outcome in pool.run([("7", "8"), ("7", "7")])] == [Status.WRONG, Status.OK]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_program_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    notes = [tmp_path / "a", tmp_path / "b"]
    text = HANGING_PROGRAM.format(folder=str(Path(__file__).parent), notes=[str(note) for note in notes])
    command = [sys.executable, "-c", text]
    with running(command, stderr=subprocess.PIPE, text=True) as program:
        pids = [pid for note in notes for pid in pids_in(note)]  # two workers and their keepers
        assert len(set(pids)) == 4
        assert all(map(is_alive, pids))
        # Ctrl-C of a terminal goes to all of the program's process group.
        os.killpg(program.pid, how) if how == signal.SIGINT else program.send_signal(how)
        _, errors = program.communicate(timeout=SECONDS)
        assert wait_until(lambda: not any(map(is_alive, pids)))
    if how == signal.SIGINT:
        assert errors.count("Traceback") == 1
        assert errors.rstrip().endswith("KeyboardInterrupt")
