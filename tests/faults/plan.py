"""Which tries there are, kind by kind."""

import os
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from tests.faults import jobs
from tests.faults.jobs import Job
from tests.faults.lab import Change, Lab, Operation, Try
from tests.faults.process import Action, Fault

HOWS = ("delete", "empty", "half", "zeros", "flip")


def file_kind(path: str) -> str:
    """What a path has in common with others that are written alike: no numbers, hashes, sets and temporary names."""
    path = re.sub("^evals/[^/]+", "evals/set", path)
    path = re.sub(r"/[^/]+-seed-\d+-\w+", "/cell", re.sub(r"/\.[^/]*(partial|tmp)[^/]*", "/partial", path))
    folder, name = os.path.split(re.sub(r"\d+", "#", path))
    weights = "checkpoint-" in folder or folder.endswith(("partial", "model", "adapter"))
    return f"{folder}/{Path(name).suffix if weights else name}"


def moments(operations: Sequence[Operation], within: str = "") -> list[int]:
    """One operation of each kind of file and change: the first of one kind, the second of the next, and so on."""
    alike = defaultdict(list)
    for operation in operations:
        # A file that was only opened is as it is before its first write, and nothing is cut off.
        if operation.event not in ("open", "truncate") and re.search(within, operation.path):
            alike[operation.event, file_kind(operation.path)].append(operation.at)
    return sorted(group[number % len(group)] for number, group in enumerate(alike.values()))


def at_share(operations: Sequence[Operation], share: float) -> int:
    """The operation at this share of all."""
    return operations[min(int(share * len(operations)), len(operations) - 1)].at


def kills(kind: str, job: Job, lab: Lab, within: str = "", action: Action = "kill", every: int = 1) -> Iterator[Try]:
    """SIGKILL at an operation, or with "tear" in the middle of a write: half of it is there."""
    operations = [operation for operation in lab.operations(job) if action == "kill" or operation.event == "write"]
    for at in moments(operations, within)[::every]:
        yield Try(kind=kind, name=f"{action} {at}", job=job, fault=Fault(at=at, action=action))


def resume_kills(kind: str, job: Job, every: int, lab: Lab) -> Iterator[Try]:
    """A run killed in the middle or near its end, whose resume is killed as well."""
    operations = lab.operations(job)
    for share in (0.5, 0.9):
        base = at_share(operations, share)
        for at in range(1, operations[-1].at - base + 20, every):
            yield Try(kind=kind, name=f"{base}.{at}", job=job, base=base, fault=Fault(at=at, action="kill"))


def damage(kind: str, job: Job, number: int, after: str, lab: Lab) -> Iterator[Try]:
    """Damage every kind of file of a run that was killed after a path was put in place, then resume it."""
    base = next(operation.at for operation in lab.operations(job) if operation.path.endswith(after)) + 1
    for change in _changes(lab.base(job, base), HOWS, number):
        yield Try(kind=kind, name=f"{base} {' '.join(change)}", job=job, base=base, change=change)


def damaged_reading(kind: str, lab: Lab) -> Iterator[Try]:
    """Every kind of file of a finished run is damaged before it is read. `tests/report/test_read.py` tries more."""
    for change in _changes(lab.base(jobs.TRAIN, 0), ("half", "flip", "delete"), 1):
        if not change[0].startswith(f"{jobs.RUN}/checkpoints"):
            reads = jobs.REPORT.start
            yield Try(kind=kind, name=" ".join(change), job=jobs.TRAIN, base=0, change=change, reads=reads)


def damaged_models(kind: str, job: Job, folder: str, lab: Lab) -> Iterator[Try]:
    """A file of the final weights is damaged, and the model evaluated. It reads neither card nor training arguments."""
    for path in sorted((lab.base(job, 0) / jobs.RUN / folder).iterdir()):
        for how in ("flip", "half") if path.suffix not in (".md", ".bin") else ():
            change = (f"{jobs.RUN}/{folder}/{path.name}", how)
            reads = jobs.read_model(folder)
            yield Try(kind=kind, name=" ".join(change), job=job, base=0, change=change, reads=reads, rejects=True)


def full_disks(kind: str, job: Job, number: int, lab: Lab) -> Iterator[Try]:
    """From one of some moments on, files cannot grow, or no file can be made."""
    operations = lab.operations(job)
    for moment in range(number):
        at = at_share(operations, moment / number)
        limit = (0, 1_000, 12_000, 1_000_000, 5_000_000)[moment % 5]  # the optimizer's state is the largest
        yield Try(kind=kind, name=f"full {at}", job=job, fault=Fault(at=at, action="full", limit_bytes=limit))
        yield Try(kind=kind, name=f"no-space {at}", job=job, fault=Fault(at=at, action="no-space"))


def signals(kind: str, lab: Lab) -> Iterator[Try]:
    """SIGTERM and SIGINT a while after an operation of a step, drawn with a fixed seed. Some come twice."""
    draw = random.Random(0)
    job = jobs.TRAIN_RARE  # no checkpoint but that of the signal
    steps = [operation.at for operation in lab.operations(job) if operation.path.endswith("rollouts.arrows")]
    steps = steps[: len(steps) // 2]  # so early that the run goes on
    actions: tuple[Action, ...] = ("term", "interrupt")
    for action in actions:
        for number in range(6):
            at, again = draw.choice(steps), draw.uniform(0, 1) if number == 5 else None
            fault = Fault(at=at, action=action, delay_seconds=round(draw.uniform(0, 0.2), 3), again=again)
            name = f"{action} {number} {fault.at} {fault.delay_seconds}"
            yield Try(kind=kind, name=name, job=job, fault=fault, saves=again is None)


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
    for at in (1, 8, 120):
        yield Try(kind=kind, name=f"resume {at}", job=job, base=base, fault=Fault(at=at, action="hold"), second=True)


def output_writers(kind: str, lab: Lab) -> Iterator[Try]:
    """Two commands write different contents to one file, which then is wholly one of them."""
    lab.refer_to(job for pair in jobs.PAIRS for job in pair)
    for first, second in jobs.PAIRS:
        writes = [operation.at for operation in lab.operations(first) if re.search("out[.]|html", operation.path)]
        for share in (0.0, 0.5, 1.0):
            fault = Fault(at=writes[round(share * (len(writes) - 1))], action="hold")
            yield Try(kind=kind, name=f"{first.name} {fault.at}", job=first, fault=fault, other=second)


def unreadable_runs(kind: str, lab: Lab) -> Iterator[Try]:
    """A comparison meets a run without a result that is damaged or cannot be read, or a full disk."""
    job = jobs.COMPARE
    for ending, unreadable, damaged, full in (
        (
            "/result.json",
            ["run.json", "config.yaml", "after/test/metrics.json"],
            ["run.json", "evaluation/after/test/metrics.json"],
            "result.json",
        ),
        ("after/test/metrics.json", ["run.json", "optimizer.pt", "trainer_state.json"], ["config.yaml"], "model"),
    ):
        base = next(operation.at for operation in lab.operations(job) if operation.path.endswith(ending))
        made = partial(Try, kind=kind, job=job, base=base, heals=True)
        for name in unreadable:
            yield made(name=f"{base} unreadable {name}", fault=Fault(action="unreadable", path=name))
        for name in damaged:
            yield made(name=f"{base} flip {name}", change=(name, "flip"))
        yield made(name=f"{base} no-space", fault=Fault(action="no-space", path=full))
        yield made(name=f"{base} full", fault=Fault(action="full", path=full))


def lost_output(kind: str, lab: Lab) -> Iterator[Try]:
    """Nobody reads stdout, or stdout and stderr, from a moment on: as after `| head` and a closed terminal."""
    lab.refer_to([jobs.TRAIN, jobs.EVAL, jobs.TABLE, jobs.REPORT])
    actions: tuple[Action, ...] = ("lose-stdout", "lose-pipes", "lose-terminal")
    for action in actions:
        for share in (0, 0.5, 1.0):
            at = at_share(lab.operations(jobs.TRAIN), share) if share else 0
            yield Try(kind=kind, name=f"train {action} {at}", job=jobs.TRAIN, fault=Fault(at=at, action=action))
        for job in (jobs.EVAL, jobs.TABLE, jobs.REPORT):
            yield Try(kind=kind, name=f"{job.name} {action}", job=job, fault=Fault(at=0, action=action))


def _changes(folder: Path, hows: Sequence[str], number: int) -> list[Change]:
    """So many kinds of damage to the last file of each kind, in turn."""
    paths = (path for path in sorted((folder / jobs.RUN).rglob("*")) if path.is_file() and path.name[0] != ".")
    kinds = {re.sub(r"\d+", "#", str(path)): path for path in paths if path.name != "README.md"}
    turns = cycle(hows)
    return [(str(path.relative_to(folder)), how) for path in kinds.values() for how in islice(turns, number)]


PLAN: dict[str, list[Callable[..., Iterator[Try]]]] = {
    "kill train": [partial(kills, job=jobs.TRAIN)],
    "kill train, one checkpoint kept": [partial(kills, job=jobs.TRAIN_ONE, within="checkpoints", every=2)],
    "kill train with an adapter": [partial(kills, job=jobs.TRAIN_LORA, within="adapter", every=2)],
    "kill train inside a write": [partial(kills, job=jobs.TRAIN, action="tear", every=2)],
    "kill a resume": [partial(resume_kills, job=jobs.TRAIN, every=44)],
    "damage, then resume": [
        partial(damage, job=jobs.TRAIN, number=1, after="steps-000005-000006.parquet"),
        partial(damage, job=jobs.TRAIN, number=1, after="learning-curve.svg"),
    ],
    "damage, then report": [damaged_reading],
    "damage the model, then eval": [
        partial(damaged_models, job=jobs.TRAIN, folder="model"),
        partial(damaged_models, job=jobs.TRAIN_LORA, folder="adapter"),
    ],
    "disk full": [
        partial(full_disks, job=jobs.TRAIN, number=5),
        partial(full_disks, job=jobs.EVAL, number=4),
    ],
    "signals": [signals],
    "lost output": [lost_output],
    "verifier killed": [verifier_kills],
    "two writers": [
        partial(two_writers, job=jobs.TRAIN, at=(0.1, 0.5, 1.0)),
        partial(two_resumes, job=jobs.TRAIN),
        partial(two_writers, job=jobs.EVAL, at=(0.1, 0.9)),
        partial(two_writers, job=jobs.COMPARE, at=(0.5,)),
    ],
    "two writers of a file": [output_writers],
    "kill eval": [partial(kills, job=jobs.EVAL, action=action) for action in ("kill", "tear")],
    "kill compare": [partial(kills, job=jobs.COMPARE, within="lock|yaml|log|run.json|result|after", every=2)],
    "unreadable runs of compare": [unreadable_runs],
}
"""Kinds of tries, each a row of the table."""


def tries(kind: str, lab: Lab) -> list[Try]:
    """All tries of a kind."""
    return [attempt for part in PLAN[kind] for attempt in part(kind=kind, lab=lab)]
