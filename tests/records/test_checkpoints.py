"""Which checkpoints count, the faults of others, and the order of removal."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gar.errors import RecordError
from gar.records import RunFolder, manifest, open_run
from gar.records.checkpoints import (
    checkpoint_fault,
    find_checkpoint,
    mark_interrupt,
    marked_checkpoints,
    rotate_checkpoints,
    seal_checkpoint,
)
from gar.records.files import atomic_folder
from gar.records.manifest import MANIFEST, DamageError
from gar.records.manifest_lines import parse_line
from tests.support.damage import edit
from tests.support.errors import raises
from tests.support.rows import rollout
from tests.support.runs import begun_run

STATE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "run")


def write(run: RunFolder, step: int, names: tuple[str, ...] = STATE) -> Path:
    """A checkpoint as the trainer leaves it, unmarked."""
    path = run.checkpoints / f"checkpoint-{step}"
    path.mkdir(parents=True)
    for name in names:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(f"{name} of step {step}")
    return path


def sealed(run: RunFolder, *steps: int) -> list[Path]:
    paths = []
    for step in steps:
        run.append_metrics({"step": step})
        paths.append(write(run, step))
        seal_checkpoint(run, step)
    return paths


def names(run: RunFolder) -> set[str]:
    return {path.name for path in run.checkpoints.iterdir()}


def test_newest_marked_checkpoint_is_found_whatever_else_lies_there(run: RunFolder):
    assert find_checkpoint(run, num_ranks=1).path is None
    sealed(run, 2, 10)
    write(run, 12)
    (run.checkpoints / "checkpoint-x").mkdir()
    (run.checkpoints / "checkpoint-99").write_text("a file")
    found = find_checkpoint(run, num_ranks=1)
    assert (found.path, found.step) == (run.checkpoints / "checkpoint-10", 10)
    assert found.notes == ("checkpoint-12 was not written completely, and does not count.",)
    assert marked_checkpoints(run)[-1] == found.path


DAMAGES: dict[str, Callable[[Path], object]] = {
    "optimizer.pt is missing": lambda path: (path / "optimizer.pt").unlink(),
    "model.safetensors is not what was written": lambda path: (path / "model.safetensors").write_text("other"),
    "scaler.pt is not listed": lambda path: (path / "scaler.pt").write_text("stray"),
    "metrics.jsonl is not what was written": lambda path: edit(path.parents[1] / "metrics.jsonl", "2", "3"),
    "rollouts/steps-000001-000002.parquet is missing": lambda path: rollouts(path, "1-000002").unlink(),
    "rollouts/steps-000002-000003.parquet is not listed": lambda path: rollouts(path, "2-000003").write_bytes(b"stray"),
    "manifest.jsonl:5 is damaged": lambda path: damage_line(path.parents[1] / MANIFEST, -1),
    "has lost lines: it does not list rollouts.arrows": lambda path: lose_manifest(path.parents[1]),
}


def rollouts(path: Path, steps: str) -> Path:
    return path.parents[1] / f"rollouts/steps-00000{steps}.parquet"


def lose_manifest(path: Path) -> None:
    """After two steps more."""
    for step in (3, 4):
        RunFolder(path).write_rollouts([rollout(step)])
    (path / MANIFEST).unlink()


def damage_line(path: Path, number: int) -> None:
    """Change one digit of a line of the manifest."""
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(place for place, byte in enumerate(lines[number]) if place > 60 and chr(byte).isdigit())
    line = bytearray(lines[number])
    line[place] ^= 1
    path.write_bytes(b"".join([*lines[:number], line, *lines[number:][1:]]))


@pytest.mark.parametrize("words", DAMAGES)
def test_damage_of_any_file_is_found(run: RunFolder, words: str):
    for step in (1, 2):
        run.write_rollouts([rollout(step)])
    (path,) = sealed(run, 2)
    assert checkpoint_fault(run, path, num_ranks=1) is None
    DAMAGES[words](path)
    with raises(RecordError, "no-checkpoint", words):
        find_checkpoint(run, num_ranks=1)


def test_one_damaged_line_of_the_manifest_loses_one_checkpoint_at_most(run: RunFolder):
    run.write_run(seed=0, command=[], config={}, data_hash=None)
    run.write_json("first.json", {})
    for step in (1, 2, 3, 4):
        run.write_rollouts([rollout(step)])
        run.append_metrics({"step": step})
        if step % 2 == 0:
            write(run, step)
            seal_checkpoint(run, step)
    run.write_rollouts([rollout(5)])
    whole = run.manifest.path.read_bytes()
    lines = whole.splitlines()
    for number, line in enumerate(lines):
        damage_line(run.manifest.path, number)
        found = find_checkpoint(run, num_ranks=1)
        assert found.step == (2 if b"checkpoint-4/" in line else 4), line
        assert found.notes[0] == f"manifest.jsonl:{number + 1} is damaged."
        run.manifest.path.write_bytes(whole)
    damage_line(run.manifest.path, 1)
    with raises(DamageError, "damage", MANIFEST):
        open_run(run.path)
    run.cut(4)  # as a resume does
    assert [fault.file for fault in run.manifest.faults()] == []
    assert find_checkpoint(run, num_ranks=1).notes == ()


def test_a_resume_reads_the_manifest_once_and_believes_nothing_that_changes_meanwhile(run: RunFolder, monkeypatch):
    run.write_run(seed=0, command=[], config={}, data_hash=None)
    sealed(run, 1, 2)
    run.append_metrics({"step": 3})
    lines = run.manifest.path.read_bytes().splitlines()
    parsed = []
    monkeypatch.setattr(manifest, "parse_line", lambda text: parsed.append(text) or parse_line(text))
    again = RunFolder.open(run.path)
    found = find_checkpoint(again, num_ranks=1)
    again.cut(found.step)
    again.update_run(status="running")
    rotate_checkpoints(again, 2)
    assert (found.step, parsed) == (2, lines)
    assert [row["step"] for row in open_run(run.path).metrics] == [1, 2]
    assert again.manifest.faults() == RunFolder(run.path).manifest.faults() == []
    assert again.manifest.entries == RunFolder(run.path).manifest.entries

    for name in ("checkpoints/checkpoint-2/optimizer.pt", MANIFEST):
        path = run.path / name
        opened, whole = RunFolder.open(run.path), path.read_bytes()
        assert find_checkpoint(opened, num_ranks=1).notes == ()
        damage_line(path, 0) if name == MANIFEST else path.write_bytes(whole.replace(b"2", b"3"))
        assert name.rpartition("/")[2] in find_checkpoint(opened, num_ranks=1).notes[0]
        path.write_bytes(whole)


def test_the_random_state_of_other_ranks_is_a_fault(run: RunFolder):
    two = write(run, 9, ("model.safetensors", "rng_state_0.pth", "rng_state_1.pth"))
    seal_checkpoint(run, 9)
    assert checkpoint_fault(run, two, num_ranks=2) is None
    for ranks in (1, 4):
        assert "random state of 2 ranks" in str(checkpoint_fault(run, two, num_ranks=ranks))
    alone = write(run, 12, ("model.safetensors",))
    seal_checkpoint(run, 12)
    assert "Was trl.save_only_model set?" in str(checkpoint_fault(run, alone, num_ranks=None))


def test_rotation_keeps_the_newest_and_removes_leftovers(run: RunFolder):
    sealed(run, 1, 2, 3, 10)
    write(run, 7)
    rotate_checkpoints(run, 2)
    assert names(run) == {"checkpoint-3", "checkpoint-10"}
    sealed(run, 11)
    for keep in (None, 0):
        rotate_checkpoints(run, keep)
        assert len(marked_checkpoints(run)) == 3
    rotate_checkpoints(run, 1)
    assert names(run) == {"checkpoint-11"}
    sealed(run, 12, 13)
    run.cut(12)  # resumed from it
    rotate_checkpoints(run, 2)
    assert names(run) == {"checkpoint-11", "checkpoint-12"}


def test_rotation_does_not_walk_over_the_files_of_the_whole_run(run: RunFolder):
    class NotWalked(dict):
        def __iter__(self):
            raise AssertionError("a run of 100,000 steps would walk over as many names at each checkpoint")

    sealed(run, 1, 2, 3)
    run.manifest._now.files = NotWalked(run.manifest.entries)
    rotate_checkpoints(run, 2)
    assert names(run) == {"checkpoint-2", "checkpoint-3"}
    assert find_checkpoint(RunFolder(run.path), num_ranks=1).step == 3
    assert not RunFolder(run.path).manifest.listed_below("checkpoints/checkpoint-1")


def test_a_checkpoint_of_an_interrupt_stays_until_there_is_a_newer_one(run: RunFolder):
    sealed(run, 2, 4)
    for step in (5, 7):
        write(run, step)
        mark_interrupt(run, step)
        seal_checkpoint(run, step)
        rotate_checkpoints(run, 2)
        assert names(run) == {"checkpoint-2", "checkpoint-4", f"checkpoint-{step}"}
    sealed(run, 8)
    rotate_checkpoints(run, 2)
    assert names(run) == {"checkpoint-4", "checkpoint-8"}


def test_a_published_folder_replaces_an_earlier_one_whole(tmp_path: Path):
    target = tmp_path / "model"
    for text in ("first", "second"):
        with atomic_folder(target) as staged:
            assert list(staged.iterdir()) == []
            (staged / text).write_text(text)
        assert [path.name for path in target.iterdir()] == [text]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (tmp_path / ".model.partial").mkdir()
    (tmp_path / ".model.partial" / "torn").write_text("")  # a killed writer's
    with pytest.raises(KeyboardInterrupt), atomic_folder(target):
        raise KeyboardInterrupt
    assert [path.name for path in target.iterdir()] == ["second"]
    with atomic_folder(target):
        pass
    assert list(target.iterdir()) == []


def test_a_checkpoint_of_a_run_with_a_relative_path_is_listed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = begun_run(Path("runs"))
    checkpoint = run.checkpoints / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights").write_text("w")
    seal_checkpoint(run, 1)
    assert marked_checkpoints(run) == [checkpoint]
