"""What a resume verifies, and how it ends. `tests/faults` kills and damages runs, and compares what becomes of them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gar.cli.main import main
from gar.config import RunConfig, dump_config, make_config, parse_yaml
from gar.errors import ConfigError, DataError, RecordError
from gar.records import RunFolder, open_run
from gar.records.checkpoints import MANIFEST, seal_checkpoint
from gar.records.run_record import record_text
from gar.train.resume import read_resumption
from tests.support.runs import assert_equal_runs
from tests.train.conftest import FAST, under


def resumed(run: RunFolder, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """Exit status of a resume, and what it printed."""
    capsys.readouterr()
    status = main(["train", "--resume", str(run.path), *flags])
    captured = capsys.readouterr()
    return status, " ".join((captured.out + captured.err).split())


def content(run: RunFolder) -> dict[str, bytes]:
    """Every file but run.json, which says how the run ended."""
    files = (path for path in run.path.rglob("*") if path.is_file() and path != run.run_path)
    return {str(path.relative_to(run.path)): path.read_bytes() for path in files}


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def test_a_resume_after_damage_ends_like_the_whole_run(finished, trained, capsys):
    (trained.checkpoints / "checkpoint-4" / "optimizer.pt").write_bytes(b"cut")
    path = trained.path / "evaluation" / "before.json"
    values = json.loads(path.read_text())
    values["sets"]["test"]["problems"][0]["num_correct"] += 1
    path.write_text(json.dumps(values))
    status, said = resumed(trained, capsys)
    assert status == 0
    assert "checkpoint-4 cannot be resumed from: optimizer.pt is not what was written" in said
    assert "after step 2" in said
    assert "before.json is not what was written" in said
    assert "The policy is evaluated again." in said
    assert_equal_runs(trained, finished)
    status, said = resumed(trained, capsys)
    assert (status, "this run is finished; there is nothing to resume." in said) == (1, True)


def test_records_stay_until_the_checkpoint_is_loaded(trained, capsys):
    newest = trained.checkpoints / "checkpoint-4"
    (newest / "rng_state.pth").write_bytes(b"no random state")
    (newest / "optimizer.pt").write_bytes(b"no optimizer")
    (newest / MANIFEST).unlink()
    seal_checkpoint(trained, 4)
    before = content(trained)
    status, said = resumed(trained, capsys)
    assert (status, "checkpoint-4: cannot be loaded: " in said) == (1, True)
    assert content(trained) == before


def test_edited_settings_are_refused_unless_accepted_and_then_recorded(trained, capsys):
    edit(trained.path / "config.yaml", "max_steps: 4", "max_steps: 5")
    status, said = resumed(trained, capsys)
    assert (status, "trl.max_steps was 4, is 5" in said) == (1, True)
    assert resumed(trained, capsys, "--allow-config-change")[0] == 0
    record = trained.read_run()
    assert [entry["changes"] for entry in record.overrides] == [{"trl.max_steps": [4, 5]}]
    assert record.overrides[0]["after_step"] == 4
    assert [row["step"] for row in open_run(trained.path).metrics] == [1, 2, 3, 4, 5]
    assert read_resumption(trained).changes == {}  # from now on these are the run's settings


@pytest.mark.slow
def test_a_run_counted_in_epochs_trains_no_step_too_many(tmp_path, capsys):
    """Its last step stands in no setting."""
    epochs = ["--trl.max_steps", "-1", "--trl.num_train_epochs", "2", "--data.max_problems", "4"]
    assert main(["train", *FAST, *epochs, *under(tmp_path, "run")]) == 0
    run = RunFolder(tmp_path / "run")
    rows = open_run(run.path).metrics
    shutil.rmtree(run.path / "model")
    run.update_run(status="interrupted")
    assert resumed(run, capsys)[0] == 0
    assert open_run(run.path).metrics == rows


def test_settings_that_a_checkpoint_holds_are_not_changed(trained):
    edit(trained.path / "config.yaml", "learning_rate: 0.0002", "learning_rate: 0.02")
    resumption = read_resumption(trained, allow_config_change=True)
    with pytest.raises(ConfigError, match=r"trl\.learning_rate cannot be overridden: .* checkpoint-4"):
        resumption.with_checkpoint(1)


def test_lost_records_are_made_again_from_the_checkpoint_before_or_are_an_error(trained):
    trained.rollouts_path(3).write_bytes(b"PAR1")
    resumption = read_resumption(trained).with_checkpoint(1)
    assert resumption.step == 2
    assert "checkpoint-4 cannot be resumed from:" in resumption.notes[0]
    edit(trained.metrics_path, '"step": 2,', '"step": 1,')
    with pytest.raises(RecordError, match=r"checkpoint-2 .*: metrics\.jsonl is not what was written"):
        read_resumption(trained, allow_config_change=True).with_checkpoint(1)


@pytest.fixture
def begun(tmp_path: Path) -> RunFolder:
    """A run that has its settings and nothing else."""
    config = make_config({"trl": {"learning_rate": 1e-6, "max_steps": 5}})
    run = RunFolder.create(tmp_path, "begun")
    values = config.model_dump(mode="json")
    run.write_run(seed=0, command=["gar"], config=values, config_text=dump_config(config), data_hash="d" * 64)
    return run


def test_settings_come_back_as_they_were(begun: RunFolder):
    resumption = read_resumption(begun)
    assert (resumption.changes, resumption.notes) == ({}, [])
    assert resumption.config.trl["learning_rate"] == 1e-6
    assert parse_yaml(dump_config(RunConfig())) == RunConfig().model_dump(mode="json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: "", "no settings in it. Was the file emptied or cut off?"),
        (lambda text: text[: text.index("reward:")], "settings are missing, among them reward.bonus_weight"),
        (lambda text: text[: text.index("max_steps")], "among them trl.max_steps"),
        (lambda text: text.replace("reward:", "reward: ["), "not valid YAML"),
        (lambda text: text.replace("bonus_weight: 0.5", "bonus_weight: many"), r"reward\.bonus_weight must be .*many"),
    ],
    ids=["empty", "cut", "cut in trl", "no yaml", "no number"],
)
def test_cut_settings_are_an_error_that_nothing_overrides(begun: RunFolder, change: Callable[[str], str], words: str):
    path = begun.path / "config.yaml"
    path.write_text(change(path.read_text()))
    for allowed in (False, True):
        with pytest.raises(ConfigError, match=words):
            read_resumption(begun, allow_config_change=allowed)


def test_changed_data_are_refused_unless_accepted(begun: RunFolder):
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
