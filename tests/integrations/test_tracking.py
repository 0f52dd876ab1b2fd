"""trackio shows every step of a run once, whatever interrupted it, and what we rely on in trackio."""

import inspect
import math
import sqlite3
from pathlib import Path

import pytest
import trackio
from trackio import utils
from trackio.sqlite_storage import SQLiteStorage

from gar.config import make_config
from gar.integrations.tracking import PROJECT, tracker
from gar.records import RunFolder

CONFIG = make_config({"method": "gar-grpo"})


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own: trackio reads TRACKIO_DIR once, when it is imported."""
    from trackio import sqlite_storage

    monkeypatch.setenv("TRACKIO_STORAGE_MODE", "sqlite")
    for module in (utils, sqlite_storage):
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    return tmp_path / "trackio"


def start(parent: Path, name: str = "run", started: str = "2026-01-01T00:00:00+00:00") -> RunFolder:
    folder = RunFolder.create(parent, name)
    folder.write_run(seed=0, command=["gar"], config={}, config_text="", data_hash=None)
    text = folder.run_path.read_text()
    folder.run_path.write_text(text.replace(folder.read_run().start_time, started))
    return folder


def train(folder: RunFolder, steps: range) -> None:
    with tracker(CONFIG, folder) as log:
        assert log is not None
        for step in steps:
            metrics = {"reward": step / 8, "gar/alignment_mean": math.nan}
            folder.append_metrics({"step": step, **metrics})
            log(metrics, step)


def tracked() -> dict[str, list[dict]]:
    """Rows of every tracked run by its start."""
    return {
        (run.config or {})["start_time"]: SQLiteStorage.get_logs(PROJECT, run.name, run_id=run.id)
        for run in trackio.Api().runs(PROJECT)
    }


def steps(rows: list[dict]) -> list[int]:
    return [row["step"] for row in rows]


def test_every_row_is_tracked_under_the_name_of_the_run(tmp_path):
    train(start(tmp_path), range(1, 4))
    assert [run.name for run in trackio.Api().runs(PROJECT)] == ["run"]
    (rows,) = tracked().values()
    assert [(row["step"], row["reward"]) for row in rows] == [(1, 0.125), (2, 0.25), (3, 0.375)]
    assert math.isnan(rows[0]["gar/alignment_mean"])


@pytest.mark.parametrize("num_tracked", [0, 3, 6])
def test_resumed_run_is_tracked_like_an_uninterrupted_one(tmp_path, num_tracked):
    folder = start(tmp_path)
    train(folder, range(1, num_tracked + 1))  # what trackio had written when the run was killed after step 5
    folder.truncate_metrics(0)
    for step in range(1, 6):
        folder.append_metrics({"step": step, "reward": step / 8, "gar/alignment_mean": math.nan})
    folder.truncate_metrics(4)
    train(folder, range(5, 9))
    (rows,) = tracked().values()
    assert [(row["step"], row["reward"]) for row in rows] == [(step, step / 8) for step in range(1, 9)]
    assert all(math.isnan(row["gar/alignment_mean"]) for row in rows)


def test_evaluation_joins_the_row_of_its_step_before_and_after_a_resume(tmp_path):
    folder = start(tmp_path)
    for last in (5, 8):
        with tracker(CONFIG, folder) as log:
            assert log is not None
            folder.truncate_metrics(last - 4)
            for step in range(last - 3, last + 1):
                for metrics in ({"eval/test/pass@1": step / 4},) * (step % 4 == 0) + ({"reward": step / 8},):
                    folder.append_metrics({"step": step, **metrics})
                    log(metrics, step)
    (rows,) = tracked().values()
    assert steps(rows) == [2, 3, 4, 5, 6, 7, 8]
    assert [(row["reward"], row["eval/test/pass@1"]) for row in rows if row["step"] % 4 == 0] == [
        (0.5, 1.0),
        (1.0, 2.0),
    ]


def test_run_of_the_same_name_in_another_folder_is_left_alone(tmp_path):
    train(start(tmp_path / "a", started="first"), range(1, 4))
    second = start(tmp_path / "b", started="second")
    train(second, range(1, 3))
    second.truncate_metrics(1)
    train(second, range(2, 5))
    assert {run.name for run in trackio.Api().runs(PROJECT)} == {"run"}
    assert {started: steps(rows) for started, rows in tracked().items()} == {"first": [1, 2, 3], "second": [1, 2, 3, 4]}


def test_rows_that_trackio_could_not_write_are_written_at_the_end(tmp_path, monkeypatch):
    folder = start(tmp_path)
    log = trackio.log
    monkeypatch.setattr(trackio, "log", lambda metrics, step: None if step == 2 else log(metrics, step=step))
    with tracker(CONFIG, folder) as write:
        assert write is not None
        for step in (1, 2, 3):
            folder.append_metrics({"step": step, "reward": 0.5})
            write({"reward": 0.5}, step)
        monkeypatch.setattr(trackio, "log", log)
    assert [steps(rows) for rows in tracked().values()] == [[1, 2, 3]]


def test_store_that_refuses_is_told_and_does_not_end_the_run(tmp_path, monkeypatch):
    folder = start(tmp_path)
    train(folder, range(1, 3))

    def refuse(run):
        raise OSError("Could not acquire database lock after 10 seconds")

    monkeypatch.setattr("trackio.api.Run.delete", refuse)
    with pytest.warns(UserWarning, match="not logged to trackio, whose store cannot be changed: Could not acquire"):
        train(folder, range(3, 5))


def test_store_that_cannot_be_read_at_the_end_is_told(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(SQLiteStorage, "get_logs", refuse)
    with pytest.warns(UserWarning, match="trackio's store cannot be read: database is locked"):
        train(start(tmp_path), range(1, 3))


def test_run_without_trackio_tracks_nothing(tmp_path, store):
    with tracker(make_config({"records": {"trackio": False}}), start(tmp_path)) as log:
        assert log is None
    assert not store.exists()


def test_trackio_is_the_release_that_was_read():
    """A new release may store runs otherwise: read `init`, `Api`, `Run.delete`, `get_logs`, then change this."""
    assert trackio.__version__.startswith("0.43.")
    assert {"project", "name", "config", "resume", "embed", "auto_log_gpu", "auto_log_cpu"} <= set(
        inspect.signature(trackio.init).parameters
    )
    assert list(inspect.signature(trackio.log).parameters) == ["metrics", "step"]
    assert {"project", "run", "run_id"} <= set(inspect.signature(SQLiteStorage.get_logs).parameters)
    with pytest.raises(ValueError, match="does not exist"):
        trackio.Api().runs(PROJECT)
