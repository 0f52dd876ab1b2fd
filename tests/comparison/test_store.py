"""A run is finished by its file alone, and only if that was made under the settings of today."""

import json

import pytest

from gar.comparison.store import failures, finished_results, remove_others, write_failure, write_result
from gar.errors import RecordError
from tests.comparison.finished import result


def store(run, num_correct=(1, 2)):
    write_result(run, result(run, {"test": list(num_correct)}))


def edited(run, change) -> None:
    values = json.loads(run.result_path.read_text())
    change(values)
    run.result_path.write_text(json.dumps(values))


def test_finished_results_are_the_files_that_are_there(plan):
    _, planned = plan()
    assert finished_results(planned) == {}
    store(planned[3])
    assert list(finished_results(planned)) == [("gar-grpo", 1)]


def test_finished_results_refuse_other_settings_and_name_them(plan):
    _, planned = plan()
    store(planned[0])
    _, changed = plan(settings={"reward": {"bonus_weight": 0.25}, "trl": {"learning_rate": 1e-4}})
    with pytest.raises(RecordError) as caught:
        finished_results(changed)
    text = str(caught.value)
    assert "results/tiny/grpo-seed-0.json: made under other settings: reward.bonus_weight was 0.5, is 0.25; " in text
    assert "trl.learning_rate was not set, is 0.0001." in text
    assert text.endswith("Give the comparison another name, or run these again with --overwrite.")


def test_finished_results_refuse_a_default_that_has_changed(plan):
    _, planned = plan()
    store(planned[0])

    def change(values):
        values["settings_hash"] = "of an earlier version"
        values["settings"]["evaluate"]["batch_size"] = 64

    edited(planned[0], change)
    with pytest.raises(RecordError, match=r"evaluate\.batch_size was 64, is 256"):
        finished_results(planned)


def test_finished_results_refuse_a_renamed_file(plan):
    _, planned = plan()
    store(planned[0])
    planned[0].result_path.rename(planned[1].result_path)
    with pytest.raises(RecordError, match=r"gar-grpo-seed-0\.json: holds grpo, seed 0\. Was it renamed\?"):
        finished_results(planned)


def test_remove_others_leaves_what_was_made_under_these_settings(plan):
    _, planned = plan()
    store(planned[0])
    _, changed = plan(settings={"reward": {"bonus_weight": 0.25}})
    store(changed[1])
    planned[2].result_path.write_text("torn")
    assert [run.title for run in remove_others(changed)] == ["grpo, seed 0", "grpo, seed 1"]
    assert list(finished_results(changed)) == [("gar-grpo", 0)]
    assert remove_others(changed) == []


def test_failures_are_kept_until_the_run_succeeds(plan):
    _, planned = plan()
    written = write_failure(planned[0], "exit status 1", ["gar train: no such file"])
    assert failures(planned) == {("grpo", 0): written}
    assert finished_results(planned) == {}
    store(planned[0])
    assert failures(planned) == {}
    assert not list(planned[0].result_path.parent.glob("*.failed.json"))


def test_failures_refuse_another_file(plan):
    _, planned = plan()
    write_failure(planned[0], "exit status 1", [])
    planned[0].result_path.with_suffix(".failed.json").write_text('{"why": 1}')
    with pytest.raises(RecordError, match=r"grpo-seed-0\.failed\.json: not a failure record of gar compare"):
        failures(planned)
