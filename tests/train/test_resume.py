"""A run that is killed anywhere goes on to the result of the one that nobody killed, or says why it does not."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gar.comparison import cell
from gar.config import RunConfig, dump_config, parse_yaml, with_template
from gar.errors import ConfigError, DataError, RecordError
from gar.records import RunFolder, open_run
from gar.records.checkpoints import MANIFEST, marked_checkpoints, seal_checkpoint
from gar.records.run_record import record_text
from gar.train.resume import read_resumption
from tests.kills import (
    assert_equal_runs,
    in_process,
    refused_resume,
    resume_until,
    resume_whole,
    tiny,
    train_until,
    train_whole,
)

ADAPTER = {"adapter": {"rank": 4, "target_modules": ["q_proj"]}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train_whole(tiny(tmp_path_factory.mktemp("whole"), "run"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Killed before its last evaluation: all is trained, with checkpoints 4 and 5."""
    return train_until(tiny(tmp_path_factory.mktemp("trained"), "run"), "after.json")


@pytest.fixture
def run(trained: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of it."""
    return RunFolder(Path(shutil.copytree(trained.path, tmp_path / "run")))


def content(run: RunFolder) -> dict[str, bytes]:
    """Every file but run.json, which says how the run ended, and the lock of a killed process."""
    ignored = (run.run_path, run.path / ".lock")
    files = (path for path in run.path.rglob("*") if path.is_file() and path not in ignored)
    return {str(path.relative_to(run.path)): path.read_bytes() for path in files}


# Killed.


@pytest.mark.slow
def test_a_run_killed_at_every_file_of_its_end_trains_no_step_too_many(whole: RunFolder, run: RunFolder):
    for file in ("/model", "learning-curve.png", "learning-curve.svg"):
        resume_until(run, file)
    resume_until(run, "run.json", nth=2)  # the first says that it was resumed, the second that it is finished
    assert "after step 5" in resume_whole(run)
    assert [row["step"] for row in open_run(run.path).metrics] == [2, 3, 4, 5]
    assert_equal_runs(run, whole)


def test_a_run_killed_around_its_checkpoints_goes_on_from_a_whole_one(whole: RunFolder, tmp_path: Path):
    run = train_until(tiny(tmp_path, "run"), "checkpoint-2/manifest.jsonl")
    assert marked_checkpoints(run) == []
    resume_until(run, "checkpoint-4/manifest.jsonl")
    assert [path.name for path in marked_checkpoints(run)] == ["checkpoint-2"]
    resume_until(run, "step-000005.parquet")  # in the third pass over the problems
    resume_until(run, "checkpoint-2/manifest.jsonl")  # about to be removed, after the last is marked
    assert [path.name for path in marked_checkpoints(run)] == ["checkpoint-2", "checkpoint-4", "checkpoint-5"]
    resume_until(run, "checkpoints/checkpoint-2")  # it has lost its mark
    assert [path.name for path in marked_checkpoints(run)] == ["checkpoint-4", "checkpoint-5"]
    assert (run.checkpoints / "checkpoint-2").exists()
    resume_whole(run)
    assert_equal_runs(run, whole)


@pytest.mark.slow
def test_a_run_of_an_adapter_killed_at_every_file_of_its_end_resumes_equal(tmp_path: Path):
    expected = train_whole(tiny(tmp_path / "whole", "run", **ADAPTER))
    run = train_until(tiny(tmp_path, "run", **ADAPTER), "/adapter")
    for file in ("after.json", "/model", "learning-curve.png"):
        resume_until(run, file)
    resume_whole(run)
    assert_equal_runs(run, expected)


@pytest.mark.slow
def test_a_run_counted_in_epochs_trains_no_step_too_many(tmp_path: Path):
    """Its last step stands in no setting."""
    epochs = {"trl": {"max_steps": -1, "num_train_epochs": 2, "save_steps": 3}}
    expected = train_whole(tiny(tmp_path / "whole", "run", **epochs))
    run = train_until(tiny(tmp_path, "run", **epochs), "after.json")
    resume_whole(run)
    assert_equal_runs(run, expected)
    assert open_run(run.path).metrics[-1]["step"] == 4


@pytest.mark.slow
def test_a_run_of_a_comparison_goes_on_after_its_last_step(whole: RunFolder, tmp_path: Path):
    config = with_template(tiny(tmp_path, "run"))  # as in the plan of a comparison
    run = train_until(config, "after.json")
    source = tmp_path / "run.yaml"
    source.write_text(dump_config(config))
    assert in_process(cell.run_cell, str(source), [], 0.0) == 0
    assert len(run.read_run().resume_times) == 1
    (run.path / "result.json").unlink()  # a run on its own has none
    assert_equal_runs(run, whole)
    (run.path / "model" / "model.safetensors").unlink()
    shutil.rmtree(run.checkpoints / "checkpoint-5")
    run.update_run(status="interrupted")
    (run.checkpoints / "checkpoint-4" / "optimizer.pt").write_bytes(b"")
    assert in_process(cell.run_cell, str(source), [], 0.0) == 0  # nothing whole to go on from: anew
    assert run.read_run().resume_times == []
    (run.path / "result.json").unlink()  # a run on its own has none
    assert_equal_runs(run, whole)


# Damaged.


def test_a_damaged_checkpoint_is_passed_over_with_a_sentence(whole: RunFolder, run: RunFolder):
    (run.checkpoints / "checkpoint-5" / "optimizer.pt").write_bytes(b"cut")
    (run.path / "evaluation" / "before.json").write_text('{"step": 0, "sets": {"te')
    said = resume_whole(run)
    assert "checkpoint-5 cannot be resumed from: optimizer.pt is not what was written" in said
    assert "after step 4" in said
    assert "before.json is not what was written" in said
    assert "The policy is evaluated again." in said
    assert_equal_runs(run, whole)


@pytest.mark.slow
def test_an_evaluation_with_another_number_is_measured_again(whole: RunFolder, run: RunFolder):
    path = run.path / "evaluation" / "before.json"
    values = json.loads(path.read_text())
    next(iter(values["sets"].values()))["problems"][0]["num_correct"] += 1
    path.write_text(json.dumps(values))
    run.update_run(status="interrupted")
    said = resume_whole(run)
    assert "before.json is not what was written" in said
    assert "The policy is evaluated again." in said
    assert_equal_runs(run, whole)


def test_a_run_without_a_whole_checkpoint_is_refused_and_left_alone(run: RunFolder):
    (run.checkpoints / "checkpoint-4" / "scheduler.pt").unlink()
    (run.checkpoints / "checkpoint-5" / MANIFEST).write_text("")
    before = content(run)
    said = refused_resume(run)
    assert "RecordError" in said
    assert "no checkpoint is whole. checkpoint-5 cannot be resumed from:" in said
    assert "checkpoint-4 cannot be resumed from: scheduler.pt is missing. Nothing was changed." in said
    assert content(run) == before


def test_records_stay_until_the_checkpoint_is_loaded(run: RunFolder):
    (run.checkpoints / "checkpoint-5" / "rng_state.pth").write_bytes(b"no random state")
    (run.checkpoints / "checkpoint-5" / "optimizer.pt").write_bytes(b"no optimizer")
    (run.checkpoints / "checkpoint-5" / MANIFEST).unlink()
    seal_checkpoint(run, 5)
    before = content(run)
    assert "checkpoint-5: cannot be loaded: " in refused_resume(run)
    assert content(run) == before


# Changed.


def edit(run: RunFolder, before: str, after: str) -> None:
    path = run.path / "config.yaml"
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def test_edited_settings_are_refused_unless_overridden_and_then_recorded(run: RunFolder):
    edit(run, "max_steps: 5", "max_steps: 6")
    assert "trl.max_steps was 5, is 6" in refused_resume(run)
    resume_whole(run, allow_config_change=True)
    record = run.read_run()
    assert [entry["changes"] for entry in record.overrides] == [{"trl.max_steps": [5, 6]}]
    assert record.overrides[0]["after_step"] == 5
    assert [row["step"] for row in open_run(run.path).metrics] == [2, 3, 4, 5, 6]
    assert read_resumption(run).changes == {}  # from now on these are the run's settings


def test_settings_that_a_checkpoint_holds_are_not_overridden(run: RunFolder):
    edit(run, "learning_rate: 0.01", "learning_rate: 0.02")
    resumption = read_resumption(run, allow_config_change=True)
    with pytest.raises(ConfigError, match=r"trl\.learning_rate cannot be overridden: .* checkpoint-5"):
        resumption.with_checkpoint(1)


def test_damaged_metrics_are_an_error_that_nothing_overrides(run: RunFolder):
    """Both checkpoints know what stood in the metrics before them."""
    run.metrics_path.write_text(run.metrics_path.read_text().replace('"step": 2', '"step": 1'))
    with pytest.raises(RecordError, match=r"checkpoint-4 .*: metrics\.jsonl is not what was written"):
        read_resumption(run, allow_config_change=True).with_checkpoint(1)


def test_lost_rollouts_are_made_again_from_the_checkpoint_before(run: RunFolder):
    run.rollouts_path(5).write_bytes(b"PAR1")
    resumption = read_resumption(run).with_checkpoint(1)
    assert resumption.step == 4
    assert "checkpoint-5 cannot be resumed from:" in resumption.notes[0]
    run.rollouts_path(3).unlink()
    with pytest.raises(RecordError, match=r"checkpoint-4 .*: rollouts/step-000003\.parquet is missing"):
        read_resumption(run).with_checkpoint(1)


@pytest.fixture
def begun(tmp_path: Path) -> RunFolder:
    """A run that has its settings and nothing else."""
    config = tiny(tmp_path, "begun", trl={"learning_rate": 1e-6})
    run = RunFolder.create(tmp_path, "begun")
    values = config.model_dump(mode="json")
    run.write_run(seed=0, command=["gar"], config=values, config_text=dump_config(config), data_hash="d" * 64)
    return run


def test_settings_come_back_as_they_were(begun: RunFolder):
    resumption = read_resumption(begun)
    assert resumption.changes == {}
    assert resumption.config.trl["learning_rate"] == 1e-6
    assert resumption.notes == []


@pytest.mark.parametrize("allow_config_change", [False, True])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: "", "no settings in it. Was the file emptied or cut off?"),
        (lambda text: text[: text.index("trl:")], "settings are missing, among them trl.max_steps, trl.save_steps"),
        (lambda text: text[: text.index("reward:")], "settings are missing, among them reward.bonus_weight"),
        (lambda text: text[: text.index("save_steps")], "among them trl.save_steps, trl.logging_steps"),
        (lambda text: text.replace("reward:", "reward: ["), "not valid YAML"),
        (lambda text: text.replace("bonus_weight: 0.5", "bonus_weight: many"), r"reward\.bonus_weight must be .*many"),
    ],
    ids=["empty", "without trl", "cut", "cut in trl", "no yaml", "no number"],
)
def test_cut_settings_are_an_error_that_nothing_overrides(
    begun: RunFolder, change: Callable[[str], str], words: str, allow_config_change: bool
):
    path = begun.path / "config.yaml"
    path.write_text(change(path.read_text()))
    with pytest.raises(ConfigError, match=words):
        read_resumption(begun, allow_config_change=allow_config_change)


def test_edited_settings_are_named_with_their_values(begun: RunFolder):
    path = begun.path / "config.yaml"
    text = path.read_text().replace("bonus_weight: 0.5", "bonus_weight: 0.25").replace("max_steps: 5", "max_steps: 9")
    path.write_text(text)
    with pytest.raises(
        ConfigError, match=r"reward\.bonus_weight was 0\.5, is 0\.25; trl\.max_steps was 5, is 9\. Put the old"
    ):
        read_resumption(begun)


def test_changed_data_are_refused_unless_overridden(begun: RunFolder):
    assert read_resumption(begun).with_data("d" * 64).changes == {}
    with pytest.raises(DataError, match=r"was dddddddddddd\.\.\., is eeeeeeeeeeee\.\.\.\. Was arithmetic changed"):
        read_resumption(begun).with_data("e" * 64)
    changed = read_resumption(begun, allow_config_change=True).with_data("e" * 64)
    assert changed.changes == {"data_hash": ["d" * 64, "e" * 64]}


def test_other_versions_of_packages_are_named(begun: RunFolder):
    record = begun.read_run()
    begun.run_path.write_text(record_text(replace(record, versions={**record.versions, "torch": "1.0"})))
    (note,) = read_resumption(begun).notes
    assert note.startswith("Package versions have changed: torch was 1.0, is 2.")


def test_every_default_setting_survives_the_file(tmp_path: Path):
    """What is written and read back has the hash of what was meant."""
    values = RunConfig().model_dump(mode="json")
    assert parse_yaml(dump_config(RunConfig())) == values
