"""A result holds what the run recorded, and comes back from its file unchanged or not at all."""

import shutil

import pytest

from gar.comparison.result import _prompts_hash, collected_result, finished_result, step_times, thinned
from gar.errors import RecordError
from gar.records import open_run
from tests.comparison.finished import result, rollouts, write_run
from tests.support.damage import damages
from tests.support.errors import raises
from tests.support.runs import begun_run, relist


def step(seconds: float, generation: float | None = None, gar: float = 0.0) -> dict:
    row = {"time/step_seconds": seconds, "time/gar_seconds": gar}
    return row if generation is None else row | {"time/generation_seconds": generation}


def test_step_times_are_medians_over_generations_of_the_mean_step():
    # Two updates per generation. The first generation warms up and does not count.
    metrics = [step(9, 9), step(9), step(3, 2, 1), step(1, 0), step(5, 2, 1), step(1, 0), step(4, 2, 2), step(2, 0)]
    seconds, shares = step_times(metrics)
    assert seconds == {"step": 3.0, "generation": 1.0, "gar": 0.5}  # means 2, 3, 3 and 0.5, 0.5, 1
    assert shares == {"generation": 0.33333, "gar": 0.25}  # of 1/2, 1/3, 1/3 and 1/4, 1/6, 1/3
    assert step_times([step(3, 1), step(1)])[0]["step"] == 2.0
    assert step_times([{"step": 1, "eval/test/pass@1": 0.5}]) == ({}, {})


def test_thinned_keeps_what_is_short_and_averages_what_is_long():
    metrics = [{"step": s, "reward": float(s)} for s in range(1, 8)] + [{"step": 8, "loss": 1.0}]
    assert thinned(metrics, "reward") == {"step": list(range(1, 8)), "value": list(range(1, 8))}
    assert thinned(metrics, "reward", 3) == {"step": [2.0, 5.0, 7.0], "value": [2.0, 5.0, 7.0]}
    assert thinned(metrics, "nothing") == {}
    unknown = [{"step": 1, "x": None}, {"step": 2, "x": 0.5}, {"step": 3, "x": None}]
    assert thinned(unknown, "x", 2) == {"step": [1.5, 3], "value": [0.5, None]}


def test_prompts_hash_tells_other_problems_order_and_steps_apart(tmp_path):
    def hashed(name: str, *steps: tuple[int, list[str]]) -> str:
        folder = begun_run(tmp_path, name)
        folder.append_metrics({"step": 1})
        for number, ids in steps:
            folder.write_rollouts(rollouts(number, ids))
        return _prompts_hash(open_run(folder.path))

    usual = (1, ["p", "q"]), (3, ["r", "r"])
    others = [
        ((1, ["q", "p"]), (3, ["r", "r"])),
        ((1, ["p", "q"]), (3, ["s", "r"])),
        ((1, ["p", "q"]), (2, ["r", "r"])),
        ((1, ["p", "q"]),),
    ]
    assert len({hashed(f"run-{i}", *steps) for i, steps in enumerate([usual, usual, *others])}) == 5
    with raises(RecordError):
        hashed("none")


def test_a_result_holds_what_the_run_recorded_and_comes_back_from_its_file(plan):
    _, planned = plan()
    assert finished_result(planned[1]) is None
    made = result(planned[1], {"test": [4, 0, 2]})
    assert (made.label, made.seed, made.steps, made.resumed) == ("gar-grpo", 0, 4, False)
    assert (made.wall_seconds, made.cpu_seconds, made.peak_memory_bytes) == (60.0, 50.0, 500 * 2**20)
    assert made.settings == planned[1].settings
    assert made.sets["test"].num_correct == {"test-0": 4, "test-1": 0, "test-2": 2}
    assert made.sets["test"].known_rates == {1: 0.5, 4: pytest.approx(2 / 3)}
    assert made.curves["reward"] == {"step": [1, 3], "value": [0.1, 0.3]}
    assert made.curves["gar/alignment_mean"]["value"] == [None, None]
    assert "gar/zero_std_group_fraction_shaped" not in made.curves
    assert finished_result(planned[1]) == made
    (planned[1].folder / "result.json").unlink()  # as a kill between its line and the file leaves it
    assert finished_result(planned[1]) is None


def test_a_damaged_or_edited_result_is_an_error_that_names_it(plan):
    _, planned = plan()
    result(planned[0], {"test": [1, 2]})
    path = planned[0].folder / "result.json"
    whole = path.read_bytes()
    ways = {name: damage for name, damage in damages(path).items() if name != "gone"}
    for old, new in ((b'"num_correct": 2', b'"num_correct": 3'), (b'"num_samples"', b'"num_sampler"')):
        assert whole.count(old)
        ways[new.decode()] = lambda path, pair=(old, new): path.write_bytes(whole.replace(*pair))
    for damage in ways.values():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.write_bytes(whole)
        damage(path)
        with raises(RecordError, None, "result.json"):
            finished_result(planned[0])
    shutil.rmtree(planned[0].folder)
    result(planned[0], {"test": [1, 2]})
    planned[0].folder.rename(planned[1].folder)
    with raises(RecordError, "other-settings"):
        finished_result(planned[1])


def test_a_run_that_is_not_finished_has_no_result(plan):
    _, planned = plan()
    write_run(planned[0].config).update_run(status="interrupted")
    assert collected_result(planned[0]) is None


def test_a_run_that_was_changed_on_the_way_has_no_result(plan):
    _, (planned,) = plan(seeds=[0], runs=["grpo"])
    folder = write_run(planned.config)
    settings = planned.config.model_dump(mode="json")
    changed = settings | {"reward": settings["reward"] | {"correct_reward": 3.0}}
    folder.record_override({"reward.correct_reward": [1.0, 3.0]}, step=2, config=changed, data_hash="d")
    relist(folder.path)
    with raises(RecordError, "other-settings", f"{planned.folder}: ", "reward.correct_reward was 3.0, is 1.0"):
        collected_result(planned)
    folder.record_override({"reward.correct_reward": [3.0, 1.0]}, step=3, config=settings, data_hash="d")
    relist(folder.path)
    with raises(RecordError, "other-settings", "they were changed while it ran"):
        collected_result(planned)
