"""Analyses of run folders: the numbers, and what is said of folders that are not whole."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from gar.analysis.alignment import alignment_course, alignment_figure
from gar.analysis.intervals import clustered_mean
from gar.analysis.step_times import generation_times
from gar.analysis.zero_std_groups import zero_std_groups
from gar.errors import RecordError
from gar.records import ROLLOUT_SCHEMA, open_run
from tests.rows import rollout


def words(figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))


# ---------------------------------------------------------------------------------------------------------- intervals


def test_clustered_mean_with_one_value_each_is_students_interval():
    values = [0.1, 0.4, 0.35, 0.8]
    found = clustered_mean(values, range(4))
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose((found.low, found.high), expected)


def test_clustered_mean_of_copies_is_no_surer_than_of_the_originals():
    once = clustered_mean([0.1, 0.4, 0.8], [0, 1, 2])
    copied = clustered_mean(np.repeat([0.1, 0.4, 0.8], 5), np.repeat([0, 1, 2], 5))
    np.testing.assert_allclose((copied.low, copied.high), (once.low, once.high))
    assert (copied.num_values, copied.num_clusters) == (15, 3)


def test_clustered_mean_of_nothing_and_of_one_cluster_has_no_interval():
    assert str(clustered_mean([np.nan], [0])) == "-"
    assert str(clustered_mean([0.5, 0.7], [3, 3])) == "0.600"


# ---------------------------------------------------------------------------------------------------------- alignment


def two_steps() -> list:
    first = [rollout(1, 0, i, alignment=b) for i, b in enumerate((0.1, 0.3))]
    gated = rollout(1, 0, 2, eligible=False, verified=False, alignment=0.9, reward=0.0)
    second = [rollout(2, 1, 0, alignment=0.6), rollout(2, 1, 1, alignment=None)]
    return [*first, gated, *second]


def test_alignment_course_is_of_correct_responses_alone(write_run):
    course = alignment_course(open_run(write_run(two_steps()).path, strict=False))
    np.testing.assert_allclose([mean.mean for mean in course.means], [0.2, 0.6])
    assert (course.num_correct, course.num_scored) == (4, 3)
    assert [(window.first_step, len(window.alignments)) for window in course.windows] == [(1, 2), (2, 1)]
    assert len(course.alignments) == 3
    assert "1 of 4 correct responses have no alignment" in course.notes[0]


def test_alignment_course_takes_the_steps_and_window_it_is_told(write_run):
    records = [rollout(step, 0, 0, alignment=step / 10) for step in range(1, 7)]
    course = alignment_course(open_run(write_run(records).path, strict=False), at_steps=[2, 5], window_steps=2)
    assert [window.label for window in course.windows] == ["steps 2 to 3", "steps 5 to 6"]
    np.testing.assert_allclose([window.mean.mean for window in course.windows], [0.25, 0.55])


def test_alignment_figure_says_n(write_run):
    assert "n = 3 correct responses" in words(
        alignment_figure(alignment_course(open_run(write_run(two_steps()).path, strict=False)))
    )


def test_alignment_without_correct_responses_says_so(write_run):
    wrong = [rollout(1, 0, i, eligible=False, alignment=None, reward=0.0) for i in range(2)]
    course = alignment_course(open_run(write_run(wrong).path, strict=False))
    assert "No response is correct" in course.notes[0]
    assert "not recorded" in words(alignment_figure(course))


def test_analyses_of_a_run_that_is_being_written_say_so(write_run):
    notes = alignment_course(open_run(write_run(two_steps(), status="running").path, strict=False)).notes
    assert "still running (or it was killed): shown is what was written up to step 2" in notes[0]


def test_analyses_of_an_older_run_say_what_they_could_not_read(write_run):
    folder = write_run(two_steps(), config="method: gar-grpo\nretired: 1\n")
    folder.run_path.write_text('{"status": "finished"}')
    notes = " ".join(zero_std_groups(open_run(folder.path, strict=False)).notes)
    assert "another version of gar" in notes
    assert "config.yaml is from another version of gar" in notes
    assert "retired" in notes


def test_analyses_leave_out_a_damaged_step_and_say_so(write_run):
    folder = write_run(two_steps())
    folder.rollouts_path(2).write_bytes(b"PAR1")
    course = alignment_course(open_run(folder.path, strict=False))
    assert list(course.steps) == [1]
    assert "step-000002.parquet is not what was written" in course.notes[0]


def test_analyses_without_rollouts_say_why_that_may_be(write_run, tmp_path):
    with pytest.raises(RecordError, match="no rollouts, so there is nothing to analyze"):
        alignment_course(open_run(write_run([]).path, strict=False))
    with pytest.raises(RecordError, match="no such folder"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(RecordError, match=r"no run\.json, metrics\.jsonl or rollouts"):
        open_run(tmp_path)


def test_analyses_take_a_hundred_thousand_rollouts_of_one_step(write_run):
    folder = write_run([])
    row = {name: getattr(rollout(1, 0, 0), name) for name in ROLLOUT_SCHEMA.names}
    one = pa.Table.from_pylist([row], ROLLOUT_SCHEMA)
    many = one.take([0] * 100_000)
    number = np.arange(100_000)
    for name, values in (("group_index", number // 8), ("response_index", number % 8), ("alignment", np.sin(number))):
        many = many.set_column(many.schema.get_field_index(name), many.schema.field(name), pa.array(values))
    folder.rollouts_path(1).parent.mkdir()
    pq.write_table(many, folder.rollouts_path(1))
    folder.manifest().add(folder.rollouts_path(1))
    assert len(alignment_course(open_run(folder.path, strict=False)).alignments) == 100_000
    assert zero_std_groups(open_run(folder.path, strict=False)).num_groups == 12_500


# ------------------------------------------------------------------------------------------------------ zero-std groups


def four_groups() -> list:
    """All correct with bonus, all correct without, all wrong, mixed."""
    bonus = [rollout(1, 0, 0, bonus=0.1, reward=1.1), rollout(1, 0, 1)]
    equal = [rollout(1, 1, i) for i in range(2)]
    wrong = [rollout(1, 2, i, eligible=False, reward=0.0) for i in range(2)]
    mixed = [rollout(1, 3, 0), rollout(1, 3, 1, eligible=False, reward=0.0)]
    return [*bonus, *equal, *wrong, *mixed]


def test_zero_std_groups_by_hand(write_run):
    groups = zero_std_groups(open_run(write_run(four_groups()).path, strict=False))
    assert groups.counts == {"all correct": 2, "all wrong": 1, "equal otherwise": 0, "mixed": 1}
    assert groups.num_rescued == {"all correct": 1, "all wrong": 0, "equal otherwise": 0, "mixed": 0}
    assert groups.data["zero_std_shaped"].to_pylist() == [False, True, True, False]
    np.testing.assert_allclose(groups.data["reward_std"].to_numpy(), [0.05, 0, 0, 0.5], atol=1e-12)


def test_zero_std_groups_show_that_a_floor_shrinks_rescued_groups_alone(write_run):
    groups = zero_std_groups(
        open_run(write_run(four_groups(), config="advantage: {ddof: 0, eps: 0.0}").path, strict=False)
    )
    floors = dict(zip((0, 0.01, 0.02, 0.05, 0.1, 0.2), groups.advantages["rescued"], strict=True))
    np.testing.assert_allclose([floors[0], floors[0.05], floors[0.1], floors[0.2]], [1, 1, 0.5, 0.25])
    np.testing.assert_allclose(groups.advantages["mixed"], 1)


def test_zero_std_groups_with_bad_format_are_mixed(write_run):
    wrong = [rollout(1, 0, 0, eligible=False, reward=0.0), rollout(1, 0, 1, eligible=False, reward=-0.6, penalty=-0.6)]
    groups = zero_std_groups(open_run(write_run(wrong).path, strict=False))
    assert groups.counts["mixed"] == 1
    assert any("No response is correct" in note for note in groups.notes)


def test_zero_std_groups_of_a_whitened_run_say_that_groups_were_not_normalized(write_run):
    notes = zero_std_groups(
        open_run(write_run(four_groups(), config="method: gar-reinforce-plus-plus").path, strict=False)
    ).notes
    assert any("does not normalize within groups (reinforce-plus-plus" in note for note in notes)


# --------------------------------------------------------------------------------------------------------------- cost


def times(generation: float, step: float) -> dict:
    return {
        "time/step_seconds": step, "time/generation_seconds": generation, "time/verification_seconds": 0.0,
        "time/gar_seconds": 0.1, "time/update_seconds": step - generation - 0.1,
    }  # fmt: skip


def test_generation_times_count_a_generation_once_and_leave_out_the_first():
    metrics = [times(9, 20), times(0, 3), times(2, 4), times(0, 2), {"step": 5}]
    (row,) = generation_times(metrics)
    assert row == pytest.approx({"step": 3, "generation": 1, "verification": 0, "gar": 0.1, "update": 1.9})
