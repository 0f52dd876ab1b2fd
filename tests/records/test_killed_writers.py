"""A run folder after a kill at any of its writing operations, after a second kill in its resume, or after damage."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from gar.errors import RecordError
from gar.records import RunFolder, marked_checkpoints, open_run, rollouts
from gar.records.checkpoints import find_checkpoint, rotate_checkpoints, seal_checkpoint
from tests.support.damage import flip
from tests.support.files import full_disk
from tests.support.rows import rollout
from tests.support.runs import contents, sha256sum, write_evaluation

STEPS = 4


class KillError(BaseException):
    """No handler of an error may see it."""


class Kills:
    """Ends the process, so to speak, before an operation. What is written and not flushed is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        for module, name in ((os, "replace"), (os, "fsync"), (os, "truncate"), (os, "unlink"), (shutil, "rmtree")):
            monkeypatch.setattr(module, name, self.counted(getattr(module, name), skip=name == "fsync"))

    def counted(self, function: Callable[..., Any], *, skip: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise KillError
            return None if skip else function(*arguments, **more)

        return call

    def killed(self, at: int | None, path: Path) -> bool:
        """Begin or resume a run, up to a kill. Returns whether it came."""
        path.mkdir(exist_ok=True)
        self.left = at
        try:
            work(RunFolder(path))
        except KillError:
            return True
        finally:
            self.left = None
        return False


def work(run: RunFolder) -> None:
    """What `gar train` writes, in its order."""
    if not run.is_begun():
        run.write_run(seed=0, command=[], config={}, data_hash=None)
    elif run.read_run().status == "finished":
        return
    found = find_checkpoint(run, num_ranks=1)
    run.cut(found.step)
    run.update_run(status="running")
    rotate_checkpoints(run, 1)
    for step in range(found.step + 1, STEPS + 1):
        run.write_rollouts([rollout(step, response="long" * 10_000 if step == 3 else "short")])
        run.append_metrics({"step": step})
        if step % 2 == 0:
            checkpoint = run.checkpoints / f"checkpoint-{step}"
            checkpoint.mkdir(parents=True, exist_ok=True)
            for name in ("model.safetensors", "rng_state.pth"):
                (checkpoint / name).write_text(f"{name} of step {step}")
            seal_checkpoint(run, step)
            rotate_checkpoints(run, 1)
    with run.new_folder("model") as staged:
        (staged / "model.safetensors").write_text("weights")
    write_evaluation(run, "after", {"test": {"num_samples": 4, "pass_at": {}, "problems": []}})
    run.update_run(status="finished", summary={"pass@1": 0.5})


def check(path: Path) -> None:
    """A whole run, and nothing else. Files of rollouts end at checkpoints, and with a large step."""
    run, folder = open_run(path), RunFolder(path)
    assert sha256sum(path) == ""
    names = [file.name for file in sorted(path.glob("rollouts*/*"))]
    assert names == [f"steps-00000{first}-00000{last}.parquet" for first, last in ((1, 2), (3, 3), (4, 4))]
    assert [row["step"] for row in run.metrics] == run.steps == [*range(1, STEPS + 1)]
    assert [found.name for found in marked_checkpoints(folder)] == [f"checkpoint-{STEPS}"]
    assert (run.status, (path / "model" / "model.safetensors").read_text()) == ("finished", "weights")
    assert len(run.record.resume_times) <= 3


@pytest.mark.slow
def test_a_run_killed_at_any_write_goes_on_and_ends_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rollouts, "FILE_BYTES", 20_000)
    kills, draw = Kills(monkeypatch), random.Random(0)
    at = 0
    while kills.killed(at, once := tmp_path / str(at)):
        if (once / "run.json").exists():
            killed = open_run(once)
            assert [row["step"] for row in killed.metrics] in [[*range(1, n)] for n in range(1, STEPS + 2)]
            assert len(killed.steps) - len(killed.metrics) in (0, 1)
        twice = Path(shutil.copytree(once, tmp_path / f"{at} twice"))
        assert not kills.killed(None, once)
        check(once)
        kills.killed(draw.randrange(40), twice)
        assert not kills.killed(None, twice)
        check(twice)
        at += 1
    assert at > 45


def begin(run: RunFolder) -> None:
    run.write_run(seed=0, command=["gar"], config={"seed": 0}, data_hash=None)


def kills_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Beginnings of a run that end before run.json is there: kills at each write, and disks with little room."""
    kills = Kills(monkeypatch)
    for at in range(20):

        def killed(path: Path, at: int = at) -> None:
            kills.left = at
            with suppress(KillError):
                begin(RunFolder(path))
            kills.left = None

        yield killed
    for size in range(0, 400, 20):

        def full(path: Path, size: int = size) -> None:
            with full_disk(size), suppress(RecordError):
                begin(RunFolder(path))

        yield full


def test_a_name_can_start_or_resume_wherever_its_beginning_was_killed_or_the_disk_was_full(tmp_path, monkeypatch):
    ended = resumed = 0
    for number, end in enumerate(kills_of(monkeypatch)):
        path = tmp_path / str(number)
        path.mkdir()
        end(path)
        ended += any(path.iterdir())
        if not (path / "run.json").exists():
            end(path)  # once more, on the leftover
        if (path / "run.json").exists():
            resumed += not (path / "config.yaml").exists()
            RunFolder.open(path).cut(0)  # as a resume does
        else:
            begin(RunFolder.create(tmp_path, str(number)))
        folder = RunFolder.open(path)
        assert yaml.safe_load((path / "config.yaml").read_text()) == {"seed": 0}
        assert folder.read_run().settings == {"seed": 0}
    assert ended > 10
    assert resumed > 2


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "flip": flip,
    "gone": Path.unlink,
}


def test_a_killed_run_with_a_damaged_file_ends_whole_or_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rollouts, "FILE_BYTES", 20_000)
    kills, killed, outcomes = Kills(monkeypatch), tmp_path / "killed", list[str]()
    for at in range(20, 99):
        shutil.rmtree(killed, ignore_errors=True)
        assert kills.killed(at, killed)
        if open_run(killed).last_step == 3 and len(marked_checkpoints(RunFolder(killed))) == 1:
            break
    for path in sorted(path.relative_to(killed) for path in killed.rglob("*") if path.is_file()):
        for name, damage in DAMAGES.items():
            run = Path(shutil.copytree(killed, tmp_path / f"{path.name} {name}"))
            damage(run / path)
            before = contents(run)
            try:
                kills.killed(None, run)
            except RecordError:
                outcomes.append("refused")
                assert contents(run) == before, (path, name)
            else:
                outcomes.append("whole")
                if path.name != "config.yaml":
                    check(run)
            shutil.rmtree(run)
    assert outcomes.count("whole") > 5 < outcomes.count("refused")
