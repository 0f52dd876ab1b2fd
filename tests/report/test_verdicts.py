"""What is said of runs: the right pairs, the right test, and never a win that was not shown."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gar.evaluation.paired import contrasts, problem_counts
from gar.evaluation.statistics import paired_t_p_value, sign_flip_p_value
from gar.records import RunFolder
from gar.records.evaluations import ProblemCount
from gar.report.build import read_run
from gar.report.groups import differing_settings, group_runs
from gar.report.verdicts import changes, contests, headline, scope
from tests.report.runs import EVALUATION, evaluation, make_run, rollout

AFTER = np.array(EVALUATION["after"])
NONE = contrasts(problem_counts([]), against={}, measures={})


def only(table):
    """The one contrast of a table."""
    (row,) = table.itertuples()
    return row


def groups_of(tmp_path, *runs):
    """(method, seed, right samples after training) of each run."""
    return group_runs(
        [
            read_run(
                make_run(
                    tmp_path, f"{method}-{seed}", seed=seed, settings={"method": method},
                    evaluations=EVALUATION | {"after": list(after)},
                )
            )
            for method, seed, after in runs
        ]
    )  # fmt: skip


def test_changes_of_one_run_pair_its_problems(tmp_path):
    groups = groups_of(tmp_path, ("gar-grpo", 0, AFTER))
    table = changes(groups, [])
    contrast = only(table)
    differences = (AFTER - np.array(EVALUATION["before"])) / 4
    assert contrast.p_corrected == pytest.approx(sign_flip_p_value(differences))
    assert (contrast.num_seeds, contrast.num_problems, contrast.verdict) == (1, 8, "better")
    assert contrast.difference == pytest.approx(differences.mean())
    assert contrast.low < contrast.difference < contrast.high
    assert headline(groups, table, NONE) == "After training the model is better on test."
    assert "This is one run" in scope(groups, table, NONE)


def test_changes_of_several_seeds_pair_the_seeds(tmp_path):
    afters = [AFTER, AFTER - 1, np.minimum(AFTER + 1, 4)]
    groups = groups_of(tmp_path, *(("gar-grpo", seed, after) for seed, after in enumerate(afters)))
    table = changes(groups, [])
    contrast = only(table)
    differences = [(after - np.array(EVALUATION["before"])).mean() / 4 for after in afters]
    assert contrast.p_corrected == pytest.approx(paired_t_p_value(differences))
    assert contrast.num_seeds == 3
    assert "3 seeds of gar-grpo" in scope(groups, table, NONE)


def test_equal_runs_and_an_unchanged_model_show_no_difference(tmp_path):
    groups = groups_of(tmp_path, *((m, seed, EVALUATION["before"]) for m in ("grpo", "gar-grpo") for seed in (0, 1)))
    table = contests(groups, [])
    contrast = only(table)
    assert (contrast.difference, contrast.all_equal, contrast.verdict) == (0, True, "no difference shown")
    assert headline(groups, NONE, table) == "No difference between these groups of runs is shown."
    assert "does not mean that there is none" in scope(groups, NONE, table)
    words = headline(groups[:1], changes(groups[:1], []), NONE)
    assert words == "No difference between before and after training is shown on test."


def test_contests_of_one_seed_make_no_test(tmp_path):
    groups = groups_of(tmp_path, ("grpo", 0, EVALUATION["before"]), ("gar-grpo", 0, AFTER))
    table = contests(groups, [])
    contrast = only(table)
    assert (math.isnan(contrast.p_corrected), contrast.verdict) == (True, "no test: one seed")
    assert contrast.low < contrast.high
    assert headline(groups, NONE, table) == "No test: with one seed each, nothing can be said of the methods."


def test_contests_pair_by_seed_and_name_the_winner(tmp_path):
    runs = [("grpo", s, np.array(EVALUATION["before"]) + (s == 2)) for s in (2, 0, 1)]
    runs += [("gar-grpo", s, np.minimum(AFTER + (s == 2), 4)) for s in (0, 1, 2)]
    groups = groups_of(tmp_path, *runs)
    table = contests(groups, [])
    contrast = only(table)
    assert (contrast.num_seeds, contrast.verdict) == (3, "better")
    assert headline(groups, NONE, table) == "gar-grpo against grpo: better on test."


def two_runs(tmp_path, first, second):
    """Runs of two methods with these evaluations after training, as groups."""
    evaluated = {"grpo": first, "gar-grpo": second}
    runs = [make_run(tmp_path, name, settings={"method": name}, steps=1, evaluations={}) for name in evaluated]
    for run, (counts, num_samples) in zip(runs, evaluated.values(), strict=True):
        RunFolder(run).write_json("evaluation/after.json", evaluation(counts, num_samples))
    return group_runs([read_run(run) for run in runs])


def test_contests_use_the_problems_that_both_were_measured_on(tmp_path):
    groups = two_runs(tmp_path, ([1, 2, 0, 3, 4, 4], 4), ([8, 8, 8, 8], 8))
    contrast = only(contests(groups, []))
    assert (contrast.num_problems, contrast.difference) == (4, pytest.approx(1 - 6 / 16))
    sets = groups[1].runs[0].evaluations["after"]
    sets["test"] = replace(sets["test"], problems=[ProblemCount(id="q", num_correct=1)])
    notes: list[str] = []
    assert contests(groups, notes).empty
    assert notes == ["gar-grpo and grpo are not compared on test: they were measured on different problems"]
    assert headline(groups, NONE, NONE, notes) == f"No verdict: {notes[0]}."


def test_runs_on_other_training_problems_are_not_compared(tmp_path):
    runs = [
        make_run(tmp_path, name, settings={"method": method}, rollouts={1: [rollout(1, g, 0) for g in order]})
        for name, method, order in (("a", "grpo", (0, 1)), ("b", "gar-grpo", (0, 1)), ("c", "gar-grpo", (1, 0)))
    ]
    first, same, reordered = (read_run(run) for run in runs)
    same.record["data_hash"] = "other"
    for second in (same, reordered):
        groups, notes = group_runs([first, second]), []
        assert contests(groups, notes).empty
        assert "were not trained on the same problems in the same order (seed 0)" in notes[0]
        assert headline(groups, NONE, NONE) == "No verdict: these runs have no measurement in common."


def test_changes_refuse_other_problems_before_and_after(tmp_path):
    groups = groups_of(tmp_path, ("grpo", 0, [1, 2]))
    notes: list[str] = []
    assert changes(groups, notes).empty
    assert "was not measured on the same problems before and after" in notes[0]
    assert headline(groups, NONE, NONE).startswith("No verdict")


def test_group_runs_joins_seeds_and_parts_settings_and_the_same_seed(tmp_path):
    beta = make_run(tmp_path, "beta", settings={"reward": {"bonus_weight": 0.25}})
    runs = [read_run(make_run(tmp_path, f"seed-{seed}", seed=seed)) for seed in (0, 1)] + [read_run(beta)]
    groups = group_runs(runs)
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("gar-grpo, reward.bonus_weight 0.5", 2), ("gar-grpo, reward.bonus_weight 0.25", 1),
    ]  # fmt: skip
    assert [group.color for group in groups] == ["#0072B2", "#E69F00"]
    assert differing_settings(runs) == {"reward.bonus_weight": [0.5, 0.5, 0.25]}
    groups = group_runs([runs[0], read_run(make_run(tmp_path, "again"))])
    assert [group.label for group in groups] == ["gar-grpo (1)", "gar-grpo (2)"]
