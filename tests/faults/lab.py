"""Tries: a command, a fault, a resume, and a verdict on whether anything was lost."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Literal

from tests.faults.jobs import RUN, Job
from tests.faults.judge import acknowledged, contents, differences
from tests.faults.process import TIMEOUT_SECONDS, Command, Ending, Fault, run

_SECOND_SECONDS = 15.0
"""How long a second writer runs while the first is held. It may also wait until the first has ended."""

Outcome = Literal["equal", "rejected", "wrong"]
Change = tuple[str, str]
"""A file, and its damage: delete, empty, half, zeros or flip."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Try:
    """One try of a kind, which is a row of the table.

    It begins in an empty folder, or in the folder of a run killed at operation `base`, and injects `fault`. Then
    `change` damages a file. `second` starts a second writer while the first is held. `other` is one that writes a
    different content to the same file. `reads` is a command that reads the folder instead of resuming, and must show it
    or print why it cannot. With `rejects` it must print why. `heals` takes fault and change back before the second try
    of a comparison. `saves`: what was trained when a signal came is in a checkpoint.
    """

    kind: str
    name: str
    job: Job
    base: int | None = None
    fault: Fault | None = None
    change: Change | None = None
    second: bool = False
    other: Job | None = None
    reads: Sequence[str] | None = None
    rejects: bool = False
    heals: bool = False
    saves: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """A writing operation: its number, counted from 1, what it is, and the path under the command's folder."""

    at: int
    event: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """How a try ended, and why it was rejected or is wrong. `cpu_seconds` counts its processes."""

    outcome: Outcome
    reason: str = ""
    cpu_seconds: float = 0.0


class Lab:
    """A folder with uninterrupted runs to compare with, and with killed runs to begin from."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="gar-faults-"))
        self._references: dict[str, tuple[dict[str, str], list[Operation]]] = {}

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.path)

    def operations(self, job: Job) -> list[Operation]:
        """The operations of an uninterrupted run. A series of writes to one file counts as the middle one."""
        return self._reference(job)[1]

    def base(self, job: Job, at: int) -> Path:
        """The folder of a run that was killed at an operation. 0 for an uninterrupted run."""
        self._reference(job)
        folder = self.path / f"{job.name}-{at or 'whole'}"
        if not folder.exists():
            in_a_fork(lambda: run_whole(job, folder, Fault(at=at, action="kill")))
        return folder

    def prepare(self, tries: Sequence[Try]) -> None:
        """Make what these tries need, so that forks share it."""
        for attempt in tries:
            if attempt.base is not None:
                self.base(attempt.job, attempt.base)

    def judge(self, attempt: Try, *, keep: bool = False) -> Verdict:
        """Do one try in a new folder."""
        folder = Path(tempfile.mkdtemp(prefix=f"{attempt.kind}-".replace(" ", "-"), dir=self.path))
        try:
            return self._judge(attempt, folder)
        finally:
            if not keep:
                shutil.rmtree(folder)

    def _judge(self, attempt: Try, folder: Path) -> Verdict:
        if attempt.base is None:
            attempt.job.begin(folder)
        else:
            shutil.copytree(self.base(attempt.job, attempt.base), folder, dirs_exist_ok=True)
        if attempt.heals:
            return self._healed(attempt, folder)
        if attempt.other is not None:
            return self._one_of_two(attempt, attempt.other, folder)
        ended = None
        if attempt.fault is not None:
            command = Command(attempt.job.start if attempt.base is None else attempt.job.go_on, folder, attempt.fault)
            second = None
            if attempt.second and command.wait_until_held():
                second = Command(attempt.job.go_on, folder)
                second.wait(_SECOND_SECONDS)
            ended = command.end()
            wrong = _unexplained(ended, attempt.fault)
            if second is not None:
                wrong = _unexplained(second.end(), None) or wrong
            if wrong := wrong or (_unsaved(folder / RUN) if attempt.saves and ended.status != 0 else ""):
                return Verdict(outcome="wrong", reason=wrong)
        if attempt.change is not None:
            damage(folder / attempt.change[0], attempt.change[1])
        if attempt.reads is not None:
            return _read(attempt, folder)
        before: dict[str, str] = {}
        if ended is None or ended.status != 0:
            before = acknowledged(folder)
            ended = run(attempt.job.go_on, folder)
        differing = differences(self._reference(attempt.job)[0], contents(folder))
        says_done = ended.status == 0 or "is finished" in (ended.sentence or "")
        if differing and not says_done:
            return _refused(ended, before, folder)
        if wrong := "; ".join(differing) or _unexplained(ended, None):
            return Verdict(outcome="wrong", reason=wrong)
        return Verdict(outcome="equal")

    def _healed(self, attempt: Try, folder: Path) -> Verdict:
        """A run of a comparison that cannot be read stays as it is, and is finished when it can be read again."""
        cells = [path for path in folder.glob("runs/compare/*-seed-*") if path.is_dir()]
        cell = next(path for path in cells if not (path / "result.json").exists())
        (cell / ".marker").touch()  # a folder made anew has none
        if attempt.change is not None:
            changed = cell / attempt.change[0]
            content = changed.read_bytes()
            damage(changed, attempt.change[1])
        ended = run(attempt.job.go_on, folder, attempt.fault)
        if not (cell / ".marker").exists():
            return Verdict(outcome="wrong", reason=f"the run is gone: {_last_line(ended)}")
        if "Traceback" in ended.text or ended.status is None:
            return Verdict(outcome="wrong", reason=_unexplained(ended, None))
        if attempt.change is not None:
            changed.write_bytes(content)
        ended = run(attempt.job.go_on, folder)
        differing = differences(self._reference(attempt.job)[0], contents(folder))
        kept = [] if (cell / ".marker").exists() else ["the run is gone in the second try"]
        wrong = "; ".join([*kept, *differing]) or _unexplained(ended, None)
        return Verdict(outcome="wrong" if wrong else "equal", reason=wrong)

    def _one_of_two(self, attempt: Try, other: Job, folder: Path) -> Verdict:
        """What two writers of one file leave must be wholly from one of them."""
        first = Command(attempt.job.start, folder, attempt.fault)
        first.wait_until_held()
        second = Command(other.start, folder)
        second.wait(_SECOND_SECONDS)
        wrong = [text for command in (first, second) if (text := _unexplained(command.end(), None))]
        found = contents(folder)
        mixed = [differences(self._reference(job)[0], found) for job in (attempt.job, other)]
        wrong += [f"neither of the two: {' or '.join(map(str, mixed))}"] if all(mixed) else []
        return Verdict(outcome="wrong" if wrong else "equal", reason="; ".join(wrong))

    def refer_to(self, jobs: Iterable[Job]) -> None:
        """Run these jobs whole, once, in an extra process: its hash seed shows what depends on a set's order."""
        needed = dict.fromkeys(name for job in jobs for name in (job.copies, job.name) if name)
        names = [name for name in needed if name not in self._references]
        if not names:
            return
        command = [sys.executable, "-m", "tests.faults", "--reference", str(self.path), *names]
        subprocess.run(command, check=True, timeout=10 * TIMEOUT_SECONDS)
        for name in names:
            record = (self.path / f"{name}.operations").read_text()
            lines = list(enumerate(map(json.loads, record.splitlines()), start=1))
            rows = [list(row) for _, row in groupby(lines, key=lambda line: line[1])]
            operations = [Operation(at=row[len(row) // 2][0], **row[0][1]) for row in rows]
            folder = self.path / f"{name}-whole"
            self._references[name] = (in_a_fork(partial(contents, folder)), operations)

    def _reference(self, job: Job) -> tuple[dict[str, str], list[Operation]]:
        self.refer_to([job])
        return self._references[job.name]


def damage(path: Path, how: str) -> None:
    """Damage a file."""
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :] if content else b"x"
    damaged = {"empty": b"", "half": content[:middle], "zeros": bytes(len(content)), "flip": flipped}
    path.unlink() if how == "delete" else path.write_bytes(damaged[how])


def verdicts(lab: Lab, tries: Sequence[Try], *, lanes: int, keep: bool = False) -> Iterator[tuple[Try, Verdict]]:
    """All tries, some side by side, each as it ends."""
    waiting, running = list(tries), dict[int, tuple[Try, IO[bytes]]]()
    while waiting or running:
        while waiting and len(running) < lanes:
            attempt = waiting.pop(0)
            pid, result = _fork(lambda attempt=attempt: lab.judge(attempt, keep=keep))
            running[pid] = (attempt, result)
        pid, _, used = os.wait4(-1, 0)
        if pid in running:
            attempt, result = running.pop(pid)
            try:
                verdict = _result(result)
            except RuntimeError as error:
                verdict = Verdict(outcome="wrong", reason=str(error))
            yield attempt, replace(verdict, cpu_seconds=used.ru_utime + used.ru_stime)


def in_a_fork(function: Callable[[], Any]) -> Any:
    """The result of a function that may start threads. This process must have none, because it forks again."""
    pid, result = _fork(function)
    os.waitpid(pid, 0)
    return _result(result)


def _fork(function: Callable[[], Any]) -> tuple[int, IO[bytes]]:
    """A process that calls a function, and a file for what comes back."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  the caller reads and closes it
    pid = os.fork()
    if pid == 0:
        try:
            answer = (function(), None)
        except BaseException:
            answer = (None, traceback.format_exc())
        pickle.dump(answer, file)
        file.flush()
        os._exit(0)
    return pid, file


def _result(file: IO[bytes]) -> Any:
    with file:
        file.seek(0)
        value, error = pickle.load(file)
    if error:
        raise RuntimeError(f"the suite itself failed:\n{error}")
    return value


def run_whole(job: Job, folder: Path, fault: Fault | None = None, record: Path | None = None) -> None:
    """Run a job in a new folder to its end, or to the fault that kills it."""
    folder.mkdir()
    job.begin(folder)
    ended = run(job.start, folder, fault, record)
    if ended.status not in ((-9, 1) if fault else (0,)):  # 1: a comparison of which a run was killed
        raise RuntimeError(f"{job.name}: ended with status {ended.status}: {ended.text}")


def _unexplained(ended: Ending, fault: Fault | None) -> str:
    """What is wrong with the end of a command that met a fault; empty if nothing is."""
    if ended.status is None:
        return "it hangs"
    if "Traceback" in ended.text:
        return _last_line(ended)
    killed = fault is not None and fault.action in ("kill", "tear", "term")
    interrupted = fault is not None and fault.action == "interrupt" and ended.status in (130, -2)
    if fault is not None and fault.action.startswith("lose") and ended.status != 0:
        return f"ended with status {ended.status} as nobody read its output: {_last_line(ended)}"
    if killed or interrupted or ended.status == 0 or ended.sentence:
        return ""
    return f"ended with status {ended.status}: {_last_line(ended)}"


def _read(attempt: Try, folder: Path) -> Verdict:
    """Verdict on a command that reads: it shows what there is, or prints why it cannot."""
    shown = run(attempt.reads or (), folder)
    wrong, sentence = _unexplained(shown, None), shown.sentence or ""
    if attempt.rejects and not sentence:
        wrong = wrong or "it reads what is damaged"
    return Verdict(outcome="wrong" if wrong else "rejected" if sentence else "equal", reason=wrong or sentence)


def _unsaved(run_folder: Path) -> str:
    """The steps of an interrupted run that no checkpoint holds, in words; empty if there are none."""
    metrics = run_folder / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    trained = max((row["step"] for row in rows if "loss" in row), default=0)
    saved = max((int(path.name.split("-")[1]) for path in run_folder.glob("checkpoints/checkpoint-*")), default=0)
    return f"trained {trained} steps, and saved {saved}" if saved < trained else ""


def _refused(ended: Ending, before: dict[str, str], folder: Path) -> Verdict:
    """Verdict on a command that did not resume: it must say why, and leave everything as it was."""
    after = acknowledged(folder)
    lost = [name for name in before if after.get(name) != before[name]]
    if ended.sentence is None:
        return Verdict(outcome="wrong", reason=_unexplained(ended, None) or _last_line(ended))
    if lost:
        return Verdict(outcome="wrong", reason=f"rejected, and lost {', '.join(lost)}: {ended.sentence}")
    return Verdict(outcome="rejected", reason=ended.sentence)


def _last_line(ended: Ending) -> str:
    return (ended.text.strip().splitlines() or [f"status {ended.status}, no word"])[-1][:300]
