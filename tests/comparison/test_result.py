"""A result is made of what the run recorded, by hand and to the digit, and comes back from its file unchanged."""

from pathlib import Path

import pytest

from gar.comparison.result import RunResult, finished_result, prompts_hash, result_of, step_times, thinned
from gar.errors import RecordError
from gar.records import RunFolder, open_run
from gar.records.manifest import Manifest
from tests.comparison.finished import result, rollouts, write_run


def step(seconds: float, generation: float | None = None, gar: float = 0.0) -> dict:
    row = {"time/step_seconds": seconds, "time/gar_seconds": gar}
    return row if generation is None else row | {"time/generation_seconds": generation}


def test_step_times_are_medians_over_generations_of_the_mean_step():
    # Two updates per generation. The first generation warms up and does not count.
    metrics = [step(9, 9), step(9), step(3, 2, 1), step(1, 0), step(5, 2, 1), step(1, 0), step(4, 2, 2), step(2, 0)]
    seconds, shares = step_times(metrics)
    assert seconds == {"step": 3.0, "generation": 1.0, "gar": 0.5}  # means 2, 3, 3 and 0.5, 0.5, 1
    assert shares == {"generation": 0.33333, "gar": 0.25}  # of 1/2, 1/3, 1/3 and 1/4, 1/6, 1/3


def test_step_times_of_one_update_are_medians_over_steps():
    seconds, _ = step_times([step(9, 1), step(1, 1), step(2, 1), step(4, 1)])
    assert seconds["step"] == 2.0


def test_step_times_of_one_generation_count_it():
    assert step_times([step(3, 1), step(1)])[0]["step"] == 2.0
    assert step_times([{"step": 1, "eval/test/pass@1": 0.5}]) == ({}, {})


def test_thinned_keeps_what_is_short_and_averages_what_is_long():
    metrics = [{"step": s, "reward": float(s)} for s in range(1, 8)] + [{"step": 8, "loss": 1.0}]
    assert thinned(metrics, "reward") == {"step": list(range(1, 8)), "value": list(range(1, 8))}
    assert thinned(metrics, "reward", 3) == {"step": [2.0, 5.0, 7.0], "value": [2.0, 5.0, 7.0]}
    assert thinned(metrics, "nothing") == {}
    assert max(len(thinned([{"step": s, "x": 1.0} for s in range(n)], "x")["step"]) for n in (60, 61, 999)) == 60


def test_thinned_has_the_steps_of_values_that_are_unknown():
    metrics = [{"step": 1, "x": None}, {"step": 2, "x": 0.5}, {"step": 3, "x": None}]
    assert thinned(metrics, "x") == {"step": [1, 2, 3], "value": [None, 0.5, None]}
    assert thinned(metrics, "x", 2) == {"step": [1.5, 3], "value": [0.5, None]}


def test_prompts_hash_tells_other_problems_order_and_steps_apart(tmp_path):
    def hashed(name: str, *steps: tuple[int, list[str]]) -> str:
        folder = RunFolder.create(tmp_path, name)
        folder.append_metrics({"step": 1})
        for number, ids in steps:
            folder.write_rollouts(number, rollouts(number, ids))
        return prompts_hash(open_run(folder.path, strict=False))

    same = [hashed("a", (1, ["p", "q"]), (3, ["r", "r"])), hashed("b", (1, ["p", "q"]), (3, ["r", "r"]))]
    others = [
        hashed("order", (1, ["q", "p"]), (3, ["r", "r"])),
        hashed("problem", (1, ["p", "q"]), (3, ["s", "r"])),
        hashed("step", (1, ["p", "q"]), (2, ["r", "r"])),
        hashed("shorter", (1, ["p", "q"])),
    ]
    assert same[0] == same[1]
    assert len({same[0], *others}) == 5
    with pytest.raises(RecordError, match="no rollouts, so it is unknown which problems the run saw"):
        hashed("none")


def test_result_of_holds_what_the_run_recorded(plan):
    _, planned = plan()
    made = result(planned[1], {"test": [4, 0, 2]})
    assert (made.label, made.seed, made.steps, made.resumed) == ("gar-grpo", 0, 4, False)
    assert (made.wall_seconds, made.cpu_seconds, made.peak_memory_bytes) == (60.0, 50.0, 500 * 2**20)
    assert made.settings == planned[1].settings
    assert made.sets["test"].problem_ids == ["test-0", "test-1", "test-2"]
    assert made.pass_at == {"test": {"1": 0.5, "4": pytest.approx(2 / 3)}}
    assert made.curves["reward"] == {"step": [1, 3], "value": [0.1, 0.3]}
    assert made.curves["gar/alignment_mean"]["value"] == [None, None]
    assert "gar/zero_std_group_fraction_shaped" not in made.curves


def test_a_result_comes_back_from_its_file(plan):
    _, planned = plan()
    assert finished_result(planned[0]) is None
    made = result(planned[0], {"test": [1, 2], "harder": [0, 4]})
    assert finished_result(planned[0]) == made
    path = planned[0].folder / "result.json"
    lines = path.read_text().splitlines()
    assert '"label": "grpo",' in lines  # a line each, for a readable diff
    assert path.stat().st_size < 10_000
    (planned[0].folder / "manifest.jsonl").unlink()  # as a kill between both files leaves it
    assert finished_result(planned[0]) is None


def test_run_result_refuses_another_file(plan):
    plan()
    Path("r.json").write_text('{"label": "grpo", "color": 1}')
    Manifest(".").add("r.json")
    with pytest.raises(RecordError, match=r"of this version: missing or unknown: color, cpu_count, "):
        RunResult.read(Path("r.json"))


def test_result_of_refuses_a_run_that_is_not_finished(plan):
    _, planned = plan()
    folder = write_run(planned[0].config)
    folder.update_run(status="interrupted")
    with pytest.raises(RecordError, match="this run is interrupted, not finished"):
        result_of(planned[0])
    manifest = folder.manifest().path
    manifest.write_text("".join(line for line in manifest.read_text().splitlines(True) if "after.json" not in line))
    (folder.path / "evaluation" / "after.json").unlink()
    folder.update_run(status="finished")
    with pytest.raises(RecordError, match=r"no evaluation after training: a comparison needs evaluate\.sources"):
        result_of(planned[0])
