"""Which tries there are, kind by kind."""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.faults import jobs
from tests.faults.jobs import Job
from tests.faults.lab import Change, Lab, Operation, Try
from tests.faults.process import Action, Fault

HOWS = ("delete", "empty", "half", "zeros", "flip")


def moments(operations: Sequence[Operation], every: int, last: int = 1) -> list[int]:
    """One operation in `every`, and one in `last` of the last third, in which the newest checkpoint is written."""
    third = len(operations) * 2 // 3
    return [operation.at for operation in [*operations[:third:every], *operations[third::last]]]


def at_share(operations: Sequence[Operation], share: float) -> int:
    """The operation at this share of all."""
    return operations[min(int(share * len(operations)), len(operations) - 1)].at


def kills(kind: str, job: Job, every: int, lab: Lab, last: int = 1, action: Action = "kill") -> Iterator[Try]:
    """SIGKILL at an operation, or with "tear" in the middle of a write: half of it is there."""
    operations = [operation for operation in lab.operations(job) if action == "kill" or operation.event == "write"]
    for at in moments(operations, every, last):
        yield Try(kind=kind, name=str(at), job=job, fault=Fault(at=at, action=action))


def resume_kills(kind: str, job: Job, every: int, lab: Lab) -> Iterator[Try]:
    """A run killed in the middle or near its end, whose resume is killed as well."""
    operations = lab.operations(job)
    for share in (0.5, 0.9):
        base = at_share(operations, share)
        for at in range(1, operations[-1].at - base + 20, every):
            yield Try(kind=kind, name=f"{base}.{at}", job=job, base=base, fault=Fault(at=at, action="kill"))


def damage(kind: str, job: Job, hows: Sequence[str], after: str, lab: Lab) -> Iterator[Try]:
    """Damage every file of a run that was killed after a path was put in place, then resume it."""
    base = next(operation.at for operation in lab.operations(job) if operation.path.endswith(after)) + 1
    changes = _changes(lab.base(job, base), hows)
    if any("checkpoint-6" in name for name, _ in changes):  # then nobody goes on from the one before
        changes = [change for change in changes if "checkpoint-4" not in change[0]]
    for change in changes:
        yield Try(kind=kind, name=f"{base} {' '.join(change)}", job=job, base=base, change=change)


def damaged_reading(kind: str, reads: Sequence[str], hows: Sequence[str], lab: Lab) -> Iterator[Try]:
    """Every file of a finished run is damaged before it is read. `tests/report/test_read.py` tries more kinds."""
    for change in _changes(lab.base(jobs.TRAIN, 0), hows):
        if not change[0].startswith(f"{jobs.RUN}/checkpoints"):
            yield Try(kind=kind, name=" ".join(change), job=jobs.TRAIN, base=0, change=change, reads=reads)


def full_disks(kind: str, job: Job, lab: Lab) -> Iterator[Try]:
    """From one of ten moments on, files cannot grow, or no file can be made."""
    operations = lab.operations(job)
    for tenth in range(10):
        at = at_share(operations, tenth / 10)
        limit = (0, 1_000, 12_000, 1_000_000, 5_000_000)[tenth % 5]  # the optimizer's state is the largest
        yield Try(kind=kind, name=f"full {at}", job=job, fault=Fault(at=at, action="full", limit_bytes=limit))
        yield Try(kind=kind, name=f"no-space {at}", job=job, fault=Fault(at=at, action="no-space"))


def signals(kind: str, job: Job, lab: Lab) -> Iterator[Try]:
    """SIGTERM, SIGINT and SIGKILL a while after an operation, drawn with a fixed seed."""
    draw = random.Random(0)
    operations = lab.operations(job)
    actions: tuple[Action, ...] = ("term", "interrupt", "kill")
    for action in actions:
        for _ in range(8):
            at = draw.choice(operations).at
            fault = Fault(at=at, action=action, delay_seconds=round(draw.uniform(0, 0.2), 3))
            yield Try(kind=kind, name=f"{action} {fault.at} {fault.delay_seconds}", job=job, fault=fault)


def verifier_kills(kind: str, lab: Lab) -> Iterator[Try]:
    """SIGKILL of the verifier's keeper, or of its workers, between two batches."""
    operations = lab.operations(jobs.TRAIN_GRADED)
    actions: tuple[Action, ...] = ("kill-keeper", "kill-worker")
    for action in actions:
        for at in (at_share(operations, share) for share in (0.25, 0.5, 0.85)):
            yield Try(kind=kind, name=f"{action} {at}", job=jobs.TRAIN_GRADED, fault=Fault(at=at, action=action))


def two_writers(kind: str, job: Job, at: Sequence[float], lab: Lab) -> Iterator[Try]:
    """A second writer begins while the first is in the middle of its work."""
    for share in at:
        fault = Fault(at=at_share(lab.operations(job), share), action="hold")
        yield Try(kind=kind, name=f"{job.name} {fault.at}", job=job, fault=fault, second=True)


def two_resumes(kind: str, job: Job, lab: Lab) -> Iterator[Try]:
    """Two at once go on with a killed run."""
    base = at_share(lab.operations(job), 0.5)
    for at in (1, 2, 8, 40, 120):
        yield Try(kind=kind, name=f"resume {at}", job=job, base=base, fault=Fault(at=at, action="hold"), second=True)


def _changes(folder: Path, hows: Sequence[str]) -> list[Change]:
    paths = sorted(
        path
        for path in (folder / jobs.RUN).rglob("*")
        if path.is_file() and path.name[0] != "." and path.name != "README.md"
    )
    return [(str(path.relative_to(folder)), how) for how in hows for path in paths]


PLAN: dict[str, list[Callable[..., Iterator[Try]]]] = {
    "kill train": [partial(kills, job=jobs.TRAIN, every=4, last=2)],
    "kill train, one checkpoint kept": [partial(kills, job=jobs.TRAIN_ONE, every=10)],
    "kill train with an adapter": [partial(kills, job=jobs.TRAIN_LORA, every=10, last=2)],
    "kill train inside a write": [partial(kills, job=jobs.TRAIN, every=3, last=2, action="tear")],
    "kill a resume": [partial(resume_kills, job=jobs.TRAIN, every=11)],
    "damage, then resume": [
        partial(damage, job=jobs.TRAIN, hows=HOWS, after="step-000005.parquet"),
        partial(damage, job=jobs.TRAIN, hows=("delete", "half"), after="learning-curve.svg"),
    ],
    "damage, then report": [partial(damaged_reading, reads=jobs.REPORT, hows=("delete", "half", "flip"))],
    "disk full": [partial(full_disks, job=jobs.TRAIN)],
    "signals": [partial(signals, job=jobs.TRAIN)],
    "verifier killed": [verifier_kills],
    "two writers": [
        partial(two_writers, job=jobs.TRAIN, at=(0.1, 0.3, 0.5, 0.8, 1.0)),
        partial(two_resumes, job=jobs.TRAIN),
        partial(two_writers, job=jobs.SCORE, at=(0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        partial(two_writers, job=jobs.SCORE_OVERWRITE, at=(0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        partial(two_writers, job=jobs.EVAL, at=(0.1, 0.5, 0.9)),
        partial(two_writers, job=jobs.COMPARE, at=(0.5,)),
    ],
    "kill score": [
        partial(kills, job=jobs.SCORE, every=1),
        partial(kills, job=jobs.SCORE, every=1, action="tear"),
    ],
    "kill score, Parquet": [partial(kills, job=jobs.SCORE_PARQUET, every=1)],
    "kill eval": [
        partial(kills, job=jobs.EVAL, every=1),
        partial(kills, job=jobs.EVAL, every=1, action="tear"),
    ],
    "kill compare": [partial(kills, job=jobs.COMPARE, every=10, last=3)],
    "disk full: score, eval": [partial(full_disks, job=jobs.SCORE), partial(full_disks, job=jobs.EVAL)],
}
"""Kinds of tries, each a row of the table."""


def tries(kind: str, lab: Lab) -> list[Try]:
    """All tries of a kind."""
    return [attempt for part in PLAN[kind] for attempt in part(kind=kind, lab=lab)]
