"""Ctrl-C and SIGTERM keep what is done: runs get signals in chosen steps, go on, and end as others do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from gar.interrupts import CTRL_C_SECONDS, SAME_REQUEST_SECONDS, Interrupted, Interrupts
from gar.records import RunFolder
from gar.records.checkpoints import marked_checkpoints
from tests.support.processes import SECONDS, completed, running, wait_until
from tests.support.runs import assert_equal_runs, sha256sum
from tests.train.conftest import under
from tests.train.signalled import train

LONG = [
    "--preset", "demo", "--trl.max_steps", "8", "--trl.save_steps", "4", "--trl.save_total_limit", "1",
    "--trl.logging_steps", "3", "--trl.num_iterations", "2", "--trl.steps_per_generation", "2",
    "--trl.per_device_train_batch_size", "8", "--trl.max_completion_length", "16", "--preflight.mode", "off",
    "--evaluate.sources",
]  # fmt: skip
"""A generation lasts four steps, a line of metrics is the mean of three, and a checkpoint is due after four."""


Train = Callable[..., tuple[int, str]]


@pytest.fixture
def gar(capsys: pytest.CaptureFixture[str]) -> Train:
    """Exit status and output of `gar train` that gets signals."""

    def run(signals: str, *arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        status, captured = train(signals, *arguments), capsys.readouterr()
        return status, " ".join((captured.out + captured.err).split())

    return run


def checkpoints(run: RunFolder) -> list[str]:
    return [path.name for path in marked_checkpoints(run)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("whole")
    assert train("", *LONG, *under(folder, "run")) == 0
    return RunFolder(folder / "run")


@pytest.mark.slow
def test_a_job_that_is_preempted_again_and_again_ends_as_an_uninterrupted_one(gar, whole, tmp_path):
    """By one command. Within a generation, between two lines of metrics, twice between two regular checkpoints."""
    job, run = [*LONG, *under(tmp_path, "run"), "--resume-if-exists"], RunFolder(tmp_path / "run")
    for signals, status, kept in (
        ("2:SIGINT 2:SIGTERM", 130, ["checkpoint-2"]),
        ("3:SIGTERM", 143, ["checkpoint-3"]),
        ("6:SIGUSR1", 138, ["checkpoint-4", "checkpoint-6"]),
    ):
        ended, said = gar(signals, *job)
        assert ended == status, said
        assert (
            f"Interrupted; its last whole checkpoint is {kept[-1]}. Resume with: gar train --resume {run.path}" in said
        )
        assert (run.read_run().status, checkpoints(run)) == ("interrupted", kept)
    ended, said = gar("", *job)
    assert ended == 0, said
    assert_equal_runs(run, whole)
    assert sha256sum(run.path) == ""
    ended, said = gar("", *job)
    assert (ended, "this run is finished. Its model is in" in said) == (0, True)
    ended, said = gar("", *job, "--trl.learning_rate", "0.5")
    assert (ended, "with other settings: trl.learning_rate was 0.0002, is 0.5" in said) == (1, True)
    ended, said = gar("", *job[:-1])
    assert ended == 1
    assert f"{run.path}: a run with this name exists. To continue that run: --resume {run.path}, or the same" in said


@pytest.mark.slow
def test_a_signal_in_the_last_step_leaves_a_run_that_only_lacks_its_end(gar, whole, tmp_path):
    run = RunFolder(tmp_path / "run")
    assert gar("8:SIGINT", *LONG, *under(tmp_path, "run"))[0] == 130
    assert (run.read_run().status, checkpoints(run)) == ("interrupted", ["checkpoint-8"])
    assert gar("", "--resume", str(run.path))[0] == 0
    assert_equal_runs(run, whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signals", "settings"),
    [("2:SIGINT 2:SIGINT", []), ("2:SIGTERM", ["--trl.save_strategy", "no"])],
    ids=["the second signal", "a run without checkpoints"],
)
def test_a_run_ends_at_once(gar, tmp_path, signals, settings):
    status, said = gar(signals, *LONG, *settings, *under(tmp_path, "run"))
    run = RunFolder(tmp_path / "run")
    assert (status, "it has no whole checkpoint yet" in said) == (143 if settings else 130, True)
    assert (run.read_run().status, checkpoints(run)) == ("interrupted", [])


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("way", ["one rank", "launcher", "process group"])
def test_ranks_end_after_the_same_step(tmp_path, way):
    """A signal reaches one rank, or the launcher, which forwards it, or the launcher and what is in its group."""
    arguments = [*LONG, "--trl.max_steps", "40", *under(tmp_path, "run")]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    own, number = (
        ("2:SIGTERM", 0) if way == "one rank" else ("", signal.SIGTERM if way == "launcher" else signal.SIGINT)
    )
    run = RunFolder(tmp_path / "run")
    command = [*launcher, "-m", "tests.train.signalled", own, *arguments]
    env = os.environ | ({"SIGNALLED_RANK": "1"} if own else {})
    with running(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        if number:
            assert wait_until(lambda: process.poll() is not None or (run.path / "rollouts.arrows").exists())
            (os.kill if way == "launcher" else os.killpg)(process.pid, number)
        said = process.communicate(timeout=SECONDS)[1]
    assert process.returncode != 0
    assert "terminate called" not in said
    (kept,) = checkpoints(run)
    assert (run.read_run().status, 0 < int(kept.rpartition("-")[2]) < 40) == ("interrupted", True)
    assert {path.name for path in run.checkpoints.glob("*/under_way_*")} == {"under_way_0.pt", "under_way_1.pt"}


@pytest.mark.slow
@pytest.mark.dist
def test_two_ranks_go_on_as_if_nothing_had_been(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]

    def run(signals: str, *arguments: str) -> int:
        env = os.environ | {"SIGNALLED_RANK": "1"}
        command = [*launcher, "tests.train.signalled", signals, *arguments]
        return completed(command, env=env).returncode

    whole, interrupted = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "run")
    assert run("", *LONG, *under(tmp_path, "whole")) == 0
    assert run("3:SIGTERM", *LONG, *under(tmp_path, "run")) != 0
    assert checkpoints(interrupted) == ["checkpoint-3"]
    assert run("", "--resume", str(interrupted.path)) == 0
    assert_equal_runs(interrupted, whole)


# Without a run.


def test_signals_raise_unless_the_work_waits_for_them_and_two_kinds_are_one_request(monkeypatch):
    interrupts = Interrupts()
    with interrupts.catch():
        with pytest.raises(Interrupted) as caught:
            os.kill(os.getpid(), signal.SIGTERM)
        assert (caught.value.number, interrupts.number) == (15, 15)
    interrupts = Interrupts()
    interrupts.waits = True
    with interrupts.catch():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        assert interrupts.number == 2
        now = time.monotonic()
        monkeypatch.setattr("gar.interrupts.time.monotonic", lambda: now + SAME_REQUEST_SECONDS + 1)
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
        interrupts.served = True
        os.kill(os.getpid(), signal.SIGINT)  # the checkpoint is there, and the run ends
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("launched", "number", "seconds"),
    [
        (True, signal.SIGTERM, SAME_REQUEST_SECONDS),  # a scheduler's, and again from torchrun's agent
        (True, signal.SIGINT, SAME_REQUEST_SECONDS),  # the terminal's, and again from the agent
        (True, signal.SIGUSR1, SAME_REQUEST_SECONDS),
        (False, signal.SIGTERM, float("inf")),
        (False, signal.SIGINT, CTRL_C_SECONDS),
    ],
)
def test_a_repeated_signal_is_one_request_for_a_while(monkeypatch, capfd, launched, number, seconds):
    (monkeypatch.setenv if launched else monkeypatch.delenv)("LOCAL_RANK", *("0",) if launched else (False,))
    interrupts, now = Interrupts(), time.monotonic()
    interrupts.waits = True
    later = min(seconds, 1e6)
    with interrupts.catch():
        for moment in (0.0, 0.02, 0.9 * later):
            monkeypatch.setattr("gar.interrupts.time.monotonic", lambda at=now + moment: at)
            os.kill(os.getpid(), number)
        assert interrupts.number == number
        if later == seconds:
            monkeypatch.setattr("gar.interrupts.time.monotonic", lambda: now + 1.1 * seconds)
            with pytest.raises(Interrupted):
                os.kill(os.getpid(), number)
    assert capfd.readouterr().err.count("finishing this step") == 1


def test_a_signal_within_a_finalizer_is_not_lost(capsys):
    class Finalized:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)  # the signal is handled here, and Python drops what is raised

    reports = sys.unraisablehook
    with Interrupts().catch():
        Finalized()
        with pytest.raises(Interrupted):
            time.sleep(SECONDS)
    assert (sys.unraisablehook, capsys.readouterr().err) == (reports, "")


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts().catch():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_forked_child_dies_of_a_signal_and_leaves_ctrl_c_to_its_parent():
    interrupts = Interrupts()
    with interrupts.catch():
        if (child := os.fork()) == 0:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGTERM
    assert interrupts.number == 0
