"""Which checkpoints count, the faults of others, and the order of removal."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from gar.errors import RecordError
from gar.records import RunFolder, open_run
from gar.records.checkpoints import (
    checkpoint_fault,
    find_checkpoint,
    mark_interrupt,
    marked_checkpoints,
    rotate_checkpoints,
    seal_checkpoint,
)
from gar.records.files import atomic_folder
from gar.records.sums import SUMS
from tests.support.damage import edit
from tests.support.errors import raises
from tests.support.rows import rollout
from tests.support.runs import begun_run, sha256sum

STATE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return begun_run(tmp_path)


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
    "metrics.jsonl: the lines up to step 2": lambda path: edit(path.parents[1] / "metrics.jsonl", "0.5", "0.6"),
    "steps-000001-000002.parquet is missing": lambda path: rollouts(path, "1-000002").unlink(),
    "steps-000001-000002.parquet is not what was written": lambda path: rollouts(path, "1-000002").write_bytes(b"PAR1"),
    "steps-000002-000003.parquet is not listed": lambda path: rollouts(path, "2-000003").write_bytes(b"stray"),
    "SHA256SUMS: not a file of checksums": lambda path: (path / SUMS).write_bytes((path / SUMS).read_bytes()[:300]),
}


def rollouts(path: Path, steps: str) -> Path:
    return path.parents[1] / f"rollouts/steps-00000{steps}.parquet"


@pytest.mark.parametrize("words", DAMAGES)
def test_damage_of_any_file_is_found_by_a_resume_and_by_a_reader(run: RunFolder, words: str):
    for step in (1, 2):
        run.write_rollouts([rollout(step)])
        run.append_metrics({"step": step, "reward": 0.5})
    path = write(run, 2)
    seal_checkpoint(run, 2)
    assert sha256sum(path) == ""
    assert checkpoint_fault(run, path, num_ranks=1) is None
    run.write_rollouts([rollout(3)])
    run.append_metrics({"step": 3})
    assert open_run(run.path).rollouts().num_rows == 3
    DAMAGES[words](path)
    with raises(RecordError, "no-checkpoint", words):
        find_checkpoint(run, num_ranks=1)
    if "checkpoint-2" not in words and not any(name in words for name in (*STATE, "scaler.pt", "000003")):
        with raises(RecordError, "damage", words):
            open_run(run.path).rollouts()


def test_checksums_that_end_at_any_byte_are_found(run: RunFolder):
    """The records come first, so that whichever lines are lost, a file of the checkpoint is not listed."""
    for step in (1, 2):
        run.write_rollouts([rollout(step)])
    (path,) = sealed(run, 2)
    whole = (path / SUMS).read_bytes()
    for size in range(len(whole)):
        (path / SUMS).write_bytes(whole[:size])
        assert checkpoint_fault(run, path, num_ranks=1) is not None, size
    for records, fault in ((0, None), (1, "is not listed"), (2, None)):  # none, metrics, and rollouts as well
        (path / SUMS).write_bytes(b"".join(whole.splitlines(keepends=True)[:records]))
        with raises(RecordError, "damage", fault) if fault else nullcontext():
            open_run(run.path)
    (path / SUMS).write_bytes(whole)
    assert checkpoint_fault(run, path, num_ranks=1) is None


def test_damage_of_a_checkpoint_loses_one_at_most(run: RunFolder):
    for step in (1, 2, 3, 4):
        run.write_rollouts([rollout(step)])
        run.append_metrics({"step": step, "reward": step / 8})
        if step % 2 == 0:
            write(run, step)
            seal_checkpoint(run, step)
    edit(run.path / "metrics.jsonl", "0.375", "0.475")
    found = find_checkpoint(run, num_ranks=1)
    assert (found.step, "metrics.jsonl: the lines up to step 4" in found.notes[0]) == (2, True)
    run.cut(2)
    assert [path.name for path in marked_checkpoints(run)] == ["checkpoint-2"]
    assert [path.name for path in sorted(run.path.glob("rollouts*/*"))] == ["steps-000001-000002.parquet"]
    seal_checkpoint(run, 2)  # a second time
    assert find_checkpoint(run, num_ranks=1).notes == ("checkpoint-4 was not written completely, and does not count.",)


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
