"""Tables against numbers worked out by hand, and what is said of runs that are missing, failed or not paired."""

import math
import shutil
from dataclasses import replace

import pytest
from scipy import stats

from gar.comparison.pairing import check_paired
from gar.comparison.report import comparison_numbers, write_report
from gar.comparison.tables import on_screen
from gar.errors import RecordError
from tests.comparison.finished import result, write_run

# Right responses of 4 to two problems, by seed.
COUNTS = {"grpo": [[0, 2], [1, 1], [2, 2]], "gar-grpo": [[1, 3], [1, 2], [3, 4]]}


@pytest.fixture
def made(plan):
    """A comparison of two rows and three seeds, with all results."""
    comparison, planned = plan()
    results = {
        (run.label, run.seed): result(
            run,
            {"test": COUNTS[run.label][run.seed]},
            step_seconds=0.5 if run.label == "grpo" else 0.6,
            peak_memory_bytes=(500 + 50 * (run.label != "grpo") + 10 * run.seed) * 2**20,
        )
        for run in planned
    }
    return comparison, planned, results


def fail(planned, label, seed):
    """Leave the folder of a run that failed."""
    (run,) = [run for run in planned if (run.label, run.seed) == (label, seed)]
    write_run(run.config).update_run(status="failed")


def only(rows, **wanted):
    rows = rows if isinstance(rows, list) else list(rows.itertuples())
    (row,) = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    return row


def test_scores_are_means_over_seeds_of_means_over_problems(made):
    numbers = comparison_numbers(*made)
    # pass@1 by seed: 2/8, 2/8, 4/8; squares (1/12)^2 twice and (1/6)^2, over 2
    score = only(numbers.scores, label="grpo", k=1)
    assert (score.mean, score.sd) == pytest.approx((1 / 3, (1 / 48) ** 0.5))
    # pass@4 of 4 samples is whether any is right: seed 0 solves one problem of two.
    assert only(numbers.scores, label="grpo", k=4).mean == pytest.approx(5 / 6)


def test_differences_are_paired_by_seed(made):
    numbers = comparison_numbers(*made)
    result = only(numbers.differences, k=1)
    assert (result.label, result.against, result.num_seeds) == ("gar-grpo", "grpo", 3)
    # 4/8 - 2/8, 3/8 - 2/8, 7/8 - 4/8
    assert result.difference == pytest.approx(0.25)
    t = 0.25 / (0.125 / 3**0.5)
    assert result.p_t == pytest.approx(2 * stats.t.sf(t, 2))
    assert result.p_permutation == 0.25
    assert result.p_corrected == result.p_t  # the only comparison
    assert result.low <= 0.25 <= result.high
    assert result.verdict == "no difference shown"  # p is 0.07


def test_differences_use_only_seeds_that_both_have(made):
    comparison, planned, results = made
    del results["grpo", 1], results["gar-grpo", 2]
    numbers = comparison_numbers(comparison, planned, results)
    assert numbers.num_finished["grpo"] == 2
    result = only(numbers.differences, k=1)
    assert (result.num_seeds, result.difference) == (1, pytest.approx(0.25))
    assert (math.isnan(result.p), result.verdict) == (True, "no test: one seed")


def test_holm_counts_planned_comparisons_that_have_not_run(made, plan):
    _, planned, results = made
    comparison, planned = plan(runs=["grpo", "gar-grpo", "maspo", "g2rl"])
    numbers = comparison_numbers(comparison, planned, results)
    result = only(numbers.differences, k=1)
    assert numbers.num_tests == 3
    assert result.p_corrected == pytest.approx(3 * result.p_t)


def test_identical_results_are_a_tie(made):
    comparison, planned, results = made
    same = {key: replace(value, sets=results["grpo", key[1]].sets) for key, value in results.items()}
    for tie in comparison_numbers(comparison, planned, same).differences.itertuples():
        assert (tie.p_t, tie.p_permutation, tie.p_corrected) == (1.0, 1.0, 1.0)
        assert (tie.low, tie.high, tie.verdict) == (0.0, 0.0, "no difference shown")


def test_costs_are_told_against_the_first_row_of_the_same_seed(made):
    numbers = comparison_numbers(*made)
    cost = only(numbers.costs, label="gar-grpo")
    assert cost.seconds_per_step == {"step": 0.6, "generation": 0.3, "update": 0.3}
    assert cost.step_ratio == pytest.approx((1.2, 1.2, 1.2))
    assert cost.peak_memory_bytes == 560 * 2**20
    assert cost.memory_ratio == pytest.approx((560 / 510, 570 / 520, 550 / 500))


def test_costs_leave_out_a_run_that_was_resumed(made):
    comparison, planned, results = made
    results["gar-grpo", 0] = replace(results["gar-grpo", 0], resumed=True)
    numbers = comparison_numbers(comparison, planned, results)
    assert only(numbers.costs, label="gar-grpo").num_seeds == 2
    assert "Interrupted and resumed, so without a cost: gar-grpo seed 0." in numbers.notes


def test_report_writes_every_table_and_figure(made):
    _, paths = write_report(*made)
    assert [path.name for path in paths] == [
        "table.md", "curves.png", "curves.svg", "cost.png", "cost.svg",
    ]  # fmt: skip
    assert all(path.stat().st_size > 100 for path in paths)
    assert "| grpo | 3 of 3 | 0.333 ± 0.144 | 0.833 ± 0.289 |" in paths[0].read_text()
    assert "| gar-grpo | 3 of 3 | 0.583 ± 0.260 (+75.0%) | 1.000 ± 0.000 (+20.0%) |" in paths[0].read_text()


def test_screen_shows_scores_and_tests_in_80_columns(made, plan):
    assert on_screen(comparison_numbers(*made)).splitlines()[:4] == [
        "test pass@1, against grpo",
        "row       seeds   mean  difference               95%      p  verdict",
        "grpo        3/3  0.333           -                 -      -  -",
        "gar-grpo    3/3  0.583      +0.250  +0.083 to +0.417  0.074  no difference shown",
    ]
    _, _, results = made
    comparison, planned = plan(runs=["grpo", "gar-grpo", {"method": "maspo", "against": ["grpo", "gar-grpo"]}])
    fail(planned, "maspo", 1)
    shown = on_screen(comparison_numbers(comparison, planned, results))
    assert "maspo       0/3      -           -                 -      -  -" in shown
    assert "Failed: maspo, seed 1.\nNot run: maspo, seeds 0, 2." in shown
    assert max(map(len, shown.partition("difference: from")[0].splitlines())) <= 80


def test_report_lists_what_is_missing_and_fills_in_nothing(made):
    comparison, planned, results = made
    for seed in (0, 1, 2):
        del results["gar-grpo", seed]
        shutil.rmtree(next(run.folder for run in planned if (run.label, run.seed) == ("gar-grpo", seed)))
    fail(planned, "gar-grpo", 1)
    text = write_report(comparison, planned, results)[1][0].read_text()
    assert "| gar-grpo | not run | - | - |" in text
    assert "- Failed: gar-grpo, seed 1.\n- Not run: gar-grpo, seeds 0, 2.\n" in text
    assert "better" not in text


def test_report_of_nothing_says_so(plan):
    comparison, planned = plan()
    _, paths = write_report(comparison, planned, {})
    assert [path.name for path in paths] == ["table.md"]
    assert "| grpo | not run |" in paths[0].read_text()


def test_notes_tell_of_mixed_versions_and_machines(made):
    comparison, planned, results = made
    other = results["grpo", 2]
    results["grpo", 2] = replace(other, versions={**other.versions, "torch": "0.1"}, platform="abacus")
    notes = comparison_numbers(comparison, planned, results).notes
    assert any(note.startswith("The runs come from different versions of torch: 0.1, ") for note in notes)
    assert "6 runs of 60 s each (50 s of processor time; medians), 0.10 hours in sum" in notes[-1]
    assert "; abacus, " in notes[-1]


def test_check_paired_refuses_other_problems_in_training(made):
    _, _, results = made
    check_paired(results)
    results["gar-grpo", 1] = replace(results["gar-grpo", 1], prompts_hash="other")
    with pytest.raises(RecordError, match="gar-grpo and grpo of seed 1 were not trained on the same problems in the"):
        check_paired(results)


def test_check_paired_refuses_seeds_of_a_row_that_were_trained_on_other_data(made):
    """Ids alone do not tell: without a column of ids they are numbers of rows."""
    _, _, results = made
    results["gar-grpo", 1] = replace(results["gar-grpo", 1], data_hash="other")
    with pytest.raises(RecordError, match=r"gar-grpo: seeds 0 and 1 were not trained on the same data, .*'arith"):
        check_paired(results)
    unknown = replace(results["gar-grpo", 1], data_hash=None), replace(results["gar-grpo", 1], versions={})
    for results["gar-grpo", 1] in unknown:
        check_paired(results)


def test_check_paired_leaves_out_runs_whose_steps_have_no_rollouts(made):
    _, _, results = made
    results["grpo", 1] = replace(results["grpo", 1], prompts_hash="")
    check_paired(results)
    results["gar-grpo", 1] = replace(results["gar-grpo", 1], prompts_hash="")
    check_paired(results)


def test_check_paired_lets_seeds_differ(made):
    _, _, results = made
    check_paired({key: replace(value, prompts_hash=f"of seed {key[1]}") for key, value in results.items()})


@pytest.mark.parametrize(
    "change", [{"num_samples": 8}, {"problem_ids": ["test-1", "test-0"]}, {"problems_hash": "other"}]
)
def test_check_paired_refuses_other_problems_in_evaluation(made, change):
    _, _, results = made
    assert results["grpo", 0].sets["test"].problems_hash == "e"
    earlier = replace(results["grpo", 1].sets["test"], problems_hash=None)  # as an earlier version wrote it
    results["grpo", 1] = replace(results["grpo", 1], sets={"test": earlier})
    check_paired(results)
    other = results["gar-grpo", 2]
    results["gar-grpo", 2] = replace(other, sets={"test": replace(other.sets["test"], **change)})
    with pytest.raises(
        RecordError, match=r"gar-grpo, seed 2, and grpo, seed 0, were not evaluated on the same problems"
    ):
        check_paired(results)


def test_check_paired_refuses_a_set_that_one_run_lacks(made):
    _, _, results = made
    first = results["grpo", 0]
    results["grpo", 0] = replace(first, sets={**first.sets, "harder": first.sets["test"]})
    with pytest.raises(RecordError, match="on the same problems of 'harder' with the same number of samples"):
        check_paired(results)
