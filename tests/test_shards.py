"""Rollouts of long runs: few files, equal however a run was interrupted, every step read once."""

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gar.errors import RecordError
from gar.records import RolloutReader, RolloutRecord, RunFolder, shards
from gar.records.shards import block_of
from tests.rows import rollout

STEPS = 41
"""With blocks of 4 and 12 steps: merges of both sizes, and a file of one step at the end."""
WRITING = {"open", "os.rename", "os.remove", "os.mkdir"}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "BLOCK_STEPS", (4, 12))
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # the tests write thousands of files and cut no power


def records(step: int) -> list[RolloutRecord]:
    return [
        rollout(
            step, index=i, problem_id=f"p{step}", response="seven " * i, answer=None if i else "7",
            alignment=step / 7 if i else None, num_tokens=i, num_scored_tokens=i, signal_norm=None,
        )
        for i in range(step % 3 + 1)
    ]  # fmt: skip


def write(folder: Path, steps: range) -> RunFolder:
    run = RunFolder(folder)
    for step in steps:
        run.write_rollouts(step, records(step))
    return run


def contents(run: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.rollouts_folder.iterdir()}


def ids(run: RunFolder) -> list[tuple[int, int]]:
    return [(row["step"], row["response_index"]) for row in run.read_rollouts().to_pylist()]


def expected_ids(last: int) -> list[tuple[int, int]]:
    return [(row.step, row.response_index) for step in range(1, last + 1) for row in records(step)]


# ------------------------------------------------------------------------------------------------------ which files


def test_a_thousand_steps_leave_one_file_and_108_smaller_ones_at_most():
    def num_files(written: int) -> int:
        return len({block_of(step, written) for step in range(1, written + 1)})

    assert [num_files(n) for n in (99, 100, 199, 999, 1_000, 1_099, 9_999)] == [99, 1, 100, 108, 1, 100, 9 + 108]
    assert max(num_files(n) for n in range(1, 1_200)) == 108


def test_block_of_a_step_holds_it_and_begins_where_the_last_one_ended():
    for written in range(1, 1_300, 7):
        end = 0
        for first, last in sorted({block_of(step, written) for step in range(1, written + 1)}):
            assert first == end + 1
            end = last
        assert end == written
    assert block_of(0, 500) == (0, 0)


@pytest.mark.usefixtures("small_blocks")
def test_files_are_merged_block_by_block_with_one_row_group_a_step(tmp_path):
    run = write(tmp_path, range(1, STEPS + 1))
    assert sorted(contents(run)) == [
        "step-000041.parquet",
        "steps-000001-000012.parquet",
        "steps-000013-000024.parquet",
        "steps-000025-000036.parquet",
        "steps-000037-000040.parquet",
    ]
    assert run.rollout_steps() == list(range(1, STEPS + 1))
    assert ids(run) == expected_ids(STEPS)
    with pq.ParquetFile(run.rollouts_folder / "steps-000025-000036.parquet") as file:
        groups = [file.read_row_group(i, ["step"])["step"].unique().to_pylist() for i in range(file.num_row_groups)]
    assert groups == [[step] for step in range(25, 37)]


@pytest.mark.usefixtures("small_blocks")
def test_reading_a_step_of_a_shard_gives_what_was_written(tmp_path):
    run = write(tmp_path / "merged", range(1, 13))
    other = RunFolder(tmp_path / "single")
    other.write_rollouts(7, records(7))
    assert run.read_rollouts([7]).equals(other.read_rollouts([7]))
    assert run.read_rollouts([7, 2], ["reward", "response"]).schema.names == ["reward", "response"]
    assert run.rollout_reader().describe(7) == other.rollout_reader().describe(7)
    with pytest.raises(
        RecordError, match=r"steps-000001-000012\.parquet: no column 'rewards'; it has step, problem_id"
    ):
        run.read_rollouts(columns=["rewards"])
    with pytest.raises(RecordError, match="no rollouts of step 13; there are steps 1 to 12"):
        run.read_rollouts([13])


@pytest.mark.usefixtures("small_blocks")
def test_run_that_generates_at_some_steps_alone_is_merged_at_the_next_of_them(tmp_path):
    run = write(tmp_path, range(1, 12, 5))
    assert set(contents(run)) == {"steps-000001-000004.parquet", "steps-000005-000008.parquet", "step-000011.parquet"}
    assert run.rollout_steps() == [1, 6, 11]
    run.write_rollouts(3, records(3))  # late, into a block that was merged without it
    assert run.rollout_steps() == [1, 3, 6, 11]
    assert len(contents(run)) == 3


@pytest.mark.usefixtures("small_blocks")
def test_step_written_again_replaces_its_rows_in_a_shard(tmp_path):
    run = write(tmp_path, range(1, 6))
    run.write_rollouts(2, records(2)[:1])
    assert run.rollout_steps() == [1, 2, 3, 4, 5]
    assert run.read_rollouts([2]).num_rows == 1
    assert set(contents(run)) == {"steps-000001-000004.parquet", "step-000005.parquet"}


@pytest.mark.usefixtures("small_blocks")
def test_steps_without_rows_are_merged_away(tmp_path):
    run = RunFolder(tmp_path)
    for step in range(1, 38):
        run.write_rollouts(step, records(step) if step > 36 else [])
    assert run.rollout_steps() == [37]


def test_folder_of_single_files_is_read_and_merged_when_its_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    with monkeypatch.context() as old:
        old.setattr(shards, "BLOCK_STEPS", (10**9,))
        run = write(tmp_path, range(1, 120))
    assert len(contents(run)) == 119
    assert ids(run) == expected_ids(119)
    run.delete_rollouts(119)
    assert len(contents(run)) == 20
    assert ids(run) == expected_ids(119)


# ------------------------------------------------------------------------------------------------------------ cuts


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("after", [*range(0, STEPS + 2, 5), 4, 12, 36, 39, STEPS])
def test_cut_leaves_the_files_of_a_run_up_to_that_step(tmp_path, after):
    cut = write(tmp_path / "cut", range(1, STEPS + 1))
    cut.delete_rollouts(after)
    whole = write(tmp_path / "whole", range(1, min(after, STEPS) + 1))
    assert contents(cut) == (contents(whole) if after else {})


@pytest.mark.usefixtures("small_blocks")
def test_cut_and_continued_run_ends_with_the_bytes_of_an_uninterrupted_one(tmp_path):
    cut = write(tmp_path / "cut", range(1, 38))
    cut.delete_rollouts(17)
    write(cut.path, range(18, 24))
    cut.delete_rollouts(22)
    write(cut.path, range(23, STEPS + 1))
    assert contents(cut) == contents(write(tmp_path / "whole", range(1, STEPS + 1)))


# ----------------------------------------------------------------------------------------------------------- kills


class Killed(BaseException):
    """A kill: nothing that would write comes through after it, cleaning up neither."""


class Killer:
    """Stands for a kill before the n-th writing operation."""

    def __init__(self) -> None:
        self.left: int | None = None
        sys.addaudithook(self.look)

    def look(self, event: str, arguments: tuple) -> None:
        if self.left is None or event not in WRITING or (event == "open" and not str(arguments[1]).startswith("w")):
            return
        self.left -= 1
        if self.left < 0:
            raise Killed


@pytest.fixture(scope="module")
def killer() -> Killer:
    return Killer()


@pytest.fixture
def kills(killer: Killer) -> Iterator[Killer]:
    yield killer
    killer.left = None


def killed(kills: Killer, after: int, work) -> bool:
    """Whether `work` was killed before it ended."""
    kills.left = after
    try:
        work()
    except Killed:
        return True
    finally:
        kills.left = None
    return False


@pytest.mark.usefixtures("small_blocks")
def test_kill_at_any_operation_of_a_write_loses_no_step_and_doubles_none(tmp_path, kills):
    whole = contents(write(tmp_path / "whole", range(1, STEPS + 1)))
    start = write(tmp_path / "start", range(1, 36))
    operation = 0
    while True:
        run = RunFolder(shutil.copytree(start.path, tmp_path / str(operation)))
        if not killed(kills, operation, lambda run=run: run.write_rollouts(36, records(36))):
            break
        steps = run.rollout_steps()
        assert steps in (list(range(1, 36)), list(range(1, 37)))
        assert ids(run) == expected_ids(steps[-1])
        run.delete_rollouts(30)
        assert contents(write(run.path, range(31, STEPS + 1))) == whole
        operation += 1
    # The step's file is opened and renamed, the shard too, and the 2 shards of 4 and 4 steps go.
    assert operation >= 2 + 2 + 6


@pytest.mark.usefixtures("small_blocks")
def test_kill_at_any_operation_of_a_cut_leaves_the_earlier_steps_and_the_cut_can_be_made_again(tmp_path, kills):
    expected = contents(write(tmp_path / "expected", range(1, 31)))
    start = write(tmp_path / "start", range(1, STEPS + 1))
    operation = 0
    while True:
        run = RunFolder(shutil.copytree(start.path, tmp_path / str(operation)))
        if not killed(kills, operation, lambda run=run: run.delete_rollouts(30)):
            break
        steps = run.rollout_steps()
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= 30
        assert ids(run) == expected_ids(len(steps))
        run.delete_rollouts(30)
        assert contents(run) == expected
        operation += 1
    assert operation >= 10


# ------------------------------------------------------------------------------------------- damage and other hands


@pytest.mark.usefixtures("small_blocks")
def test_reader_finds_steps_that_were_merged_after_it_looked(tmp_path):
    run = write(tmp_path, range(1, 4))
    reader = RolloutReader(run.rollouts_folder)
    write(run.path, range(4, 13))
    assert reader.read(2, ["step"]).to_pydict() == {"step": [2, 2, 2]}
    assert reader.steps == list(range(1, 13))
    run.delete_rollouts(0)
    with pytest.raises(RecordError, match="no rollouts of step 3; there are none"):
        RolloutReader(run.rollouts_folder).read(3)


@pytest.mark.usefixtures("small_blocks")
def test_damaged_shard_is_named_and_does_not_end_a_run(tmp_path):
    run = write(tmp_path, range(1, 12))
    shard = run.rollouts_folder / "steps-000005-000008.parquet"
    shard.write_bytes(shard.read_bytes()[:-10])
    run.write_rollouts(12, records(12))
    assert run.rollout_steps() == list(range(1, 13))
    assert run.read_rollouts([4, 12]).num_rows == 3
    with pytest.raises(RecordError, match=r"steps-000005-000008\.parquet: not a readable Parquet file"):
        run.read_rollouts([6])
    with pytest.raises(RecordError, match=r"steps-000005-000008\.parquet: not a readable Parquet file"):
        run.delete_rollouts(6)
    assert shard.exists()
    run.delete_rollouts(4)  # nothing of the damaged file is needed
    assert ids(run) == expected_ids(4)


@pytest.mark.usefixtures("small_blocks")
def test_shard_that_another_tool_rewrote_in_one_piece_is_read(tmp_path):
    run = write(tmp_path, range(1, 5))
    shard = run.rollouts_folder / "steps-000001-000004.parquet"
    pq.write_table(pq.read_table(shard).sort_by([("response_index", "ascending")]), shard, compression="none")
    assert run.rollout_steps() == [1, 2, 3, 4]
    assert sorted(ids(run)) == sorted(expected_ids(4))
    assert run.read_rollouts([2], ["reward"]).to_pydict() == {"reward": [1.0, 1.0, 1.0]}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("number", [99, None])
def test_shard_with_rows_of_other_steps_is_refused_and_kept(tmp_path, number):
    run = write(tmp_path, range(1, 12))
    shard = run.rollouts_folder / "steps-000001-000004.parquet"
    table = pq.read_table(shard)
    pq.write_table(table.set_column(0, "step", pa.array([number] * len(table), pa.int64())), shard)
    run.write_rollouts(12, records(12))
    assert shard.exists()
    with pytest.raises(RecordError, match=rf"column 'step' must lie in \[1, 4\], got {number}"):
        run.read_rollouts([1])


@pytest.mark.usefixtures("small_blocks")
def test_steps_with_other_columns_stay_files_of_their_own(tmp_path):
    run = write(tmp_path, range(1, 4))
    pq.write_table(pq.read_table(run.rollouts_path(1)).drop(["prompt_tokens"]), run.rollouts_path(1))
    pq.write_table(pq.read_table(run.rollouts_path(1)), run.rollouts_path(2))
    run.write_rollouts(4, records(4))
    assert len(contents(run)) == 4
    reader = run.rollout_reader()
    assert reader.steps == [1, 2, 3, 4]
    assert all(len(reader.read_unchecked(step)) for step in reader.steps)


@pytest.mark.usefixtures("small_blocks")
def test_full_disk_while_a_block_is_merged_loses_nothing(tmp_path, monkeypatch):
    run = write(tmp_path, range(1, 4))
    replace = os.replace

    def full(source, target):
        if Path(target).name.startswith("steps-"):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as disk:
        disk.setattr(os, "replace", full)
        with pytest.raises(RecordError, match=r"steps-000001-000004\.parquet: cannot be written: No space left"):
            run.write_rollouts(4, records(4))
    assert len(contents(run)) == 4
    assert ids(run) == expected_ids(4)
    run.delete_rollouts(4)
    assert list(contents(run)) == ["steps-000001-000004.parquet"]


@pytest.mark.usefixtures("small_blocks")
def test_file_of_steps_that_make_no_block_waits_for_the_block_that_holds_it(tmp_path):
    run = write(tmp_path, range(1, 4))
    odd = run.rollouts_folder / "steps-000002-000006.parquet"
    pq.write_table(run.read_rollouts([2, 3]), odd)
    for step in (2, 3):
        run.rollouts_path(step).unlink()
    write(run.path, range(7, 12))
    assert odd.exists()
    assert run.rollout_steps() == [1, 2, 3, *range(7, 12)]
    write(run.path, range(12, 13))
    assert list(contents(run)) == ["steps-000001-000012.parquet"]
    assert run.rollout_steps() == [1, 2, 3, *range(7, 13)]
