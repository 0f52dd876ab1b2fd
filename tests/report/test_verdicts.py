"""What is said of runs: the right pairs, the right test, and never a win that was not shown."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gar.evaluation.statistics import paired_t_p_value, sign_flip_p_value
from gar.records import RunFolder, open_run
from gar.records.evaluations import ProblemCount
from gar.report.runs import differing_settings, group_runs
from gar.report.verdicts import changes, contests, contrast_table, headline, scope
from tests.report.runs import EVALUATION, evaluation, make_run, rollout
from tests.support.runs import relist, write_evaluation

BEFORE, AFTER = (np.array(EVALUATION[moment]) for moment in ("before", "after"))


def only(table):
    """The one contrast of a table."""
    (row,) = table.itertuples()
    return row


def groups_of(tmp_path, *runs):
    """(method, seed, right samples after training) of each run."""
    evaluations = [EVALUATION | {"after": list(after)} for *_, after in runs]
    return group_runs(
        [
            open_run(make_run(tmp_path, f"{method}-{seed}", seed=seed, settings={"method": method}, evaluations=each))
            for (method, seed, _), each in zip(runs, evaluations, strict=True)
        ]
    )


def test_changes_of_one_run_pair_its_problems_and_of_several_seeds_the_seeds(tmp_path):
    table = changes(groups_of(tmp_path / "one", ("gar-grpo", 0, AFTER)))
    contrast, differences = only(table), (AFTER - BEFORE) / 4
    assert contrast.p_corrected == pytest.approx(sign_flip_p_value(differences))
    assert (contrast.num_seeds, contrast.num_problems, contrast.verdict) == (1, 8, "better")
    assert contrast.difference == pytest.approx(differences.mean())
    assert headline(table, []) == "After training: better on test."
    assert "This is one run" in scope(table, 1)
    afters = [AFTER, AFTER - 1, np.minimum(AFTER + 1, 4)]
    table = changes(groups_of(tmp_path, *(("gar-grpo", seed, after) for seed, after in enumerate(afters))))
    assert only(table).p_corrected == pytest.approx(paired_t_p_value([(each - BEFORE).mean() / 4 for each in afters]))
    assert only(table).num_seeds == 3
    assert "seeds of one method" in scope(table, 1)


def test_equal_runs_and_an_unchanged_model_show_no_difference(tmp_path):
    groups = groups_of(tmp_path, *((method, seed, BEFORE) for method in ("grpo", "gar-grpo") for seed in (0, 1)))
    table = contests(groups, [])
    assert (only(table).difference, only(table).verdict) == (0, "no difference shown")
    assert contrast_table(table, ("reference", "these runs"))["95% interval"].tolist() == ["–"]
    assert headline(table, []) == "gar-grpo against grpo: no difference shown on test."
    assert "does not mean that there is none" in scope(table, 2)
    assert headline(changes({"grpo": groups["grpo"]}), []) == "After training: no difference shown on test."


def test_contests_pair_by_seed_name_the_winner_and_make_no_test_of_one_seed(tmp_path):
    runs = [("grpo", seed, BEFORE + (seed == 2)) for seed in (2, 0, 1)]
    runs += [("gar-grpo", seed, np.minimum(AFTER + (seed == 2), 4)) for seed in (0, 1, 2)]
    table = contests(groups_of(tmp_path / "3", *runs), [])
    assert (only(table).num_seeds, only(table).verdict) == (3, "better")
    assert headline(table, []) == "gar-grpo against grpo: better on test."
    table = contests(groups_of(tmp_path, ("grpo", 0, BEFORE), ("gar-grpo", 0, AFTER)), [])
    assert (math.isnan(only(table).p_corrected), only(table).verdict) == (True, "no test: one seed")
    assert only(table).low < only(table).high
    assert headline(table, []) == "No test: with one seed each, nothing can be said of the methods."


def test_contests_use_the_problems_that_both_were_measured_on(tmp_path):
    evaluated = {"grpo": ([1, 2, 0, 3, 4, 4], 4), "gar-grpo": ([8, 8, 8, 8], 8)}
    runs = [make_run(tmp_path, name, settings={"method": name}, steps=1, evaluations={}) for name in evaluated]
    for run, counts in zip(runs, evaluated.values(), strict=True):
        write_evaluation(RunFolder(run), "after", evaluation(*counts))
        relist(run)
    groups = group_runs([open_run(run) for run in runs])
    contrast = only(contests(groups, []))
    assert (contrast.num_problems, contrast.difference) == (4, pytest.approx(1 - 6 / 16))
    sets = groups["gar-grpo"][0].evaluations["after"]
    sets["test"] = replace(sets["test"], problems=[ProblemCount(id="q", num_correct=1)])
    notes: list[str] = []
    table = contests(groups, notes)
    assert "gar-grpo and grpo have no seed and problem in common" in notes[0]
    assert headline(table, notes) == f"No verdict: {notes[0]}."


def test_runs_on_other_training_problems_are_not_compared(tmp_path):
    runs = [
        make_run(tmp_path, name, settings={"method": method}, rollouts={1: [rollout(1, g, 0) for g in order]})
        for name, method, order in (("a", "grpo", (0, 1)), ("b", "gar-grpo", (0, 1)), ("c", "gar-grpo", (1, 0)))
    ]
    first, same, reordered = (open_run(run) for run in runs)
    same.record = replace(same.record, data_hash="other")
    for second in (same, reordered):
        notes: list[str] = []
        assert contests(group_runs([first, second]), notes).empty
        assert "were not trained on the same problems in the same order (seed 0)" in notes[0]


def test_group_runs_joins_seeds_and_parts_settings_and_the_same_seed(tmp_path):
    beta = make_run(tmp_path, "beta", settings={"reward": {"bonus_weight": 0.25}})
    runs = [open_run(make_run(tmp_path, f"seed-{seed}", seed=seed)) for seed in (0, 1)] + [open_run(beta)]
    sizes = {label: len(members) for label, members in group_runs(runs).items()}
    assert sizes == {"gar-grpo, reward.bonus_weight 0.5": 2, "gar-grpo, reward.bonus_weight 0.25": 1}
    assert differing_settings(runs).to_numpy().tolist() == [["reward.bonus_weight", "0.5", "0.5", "0.25"]]
    assert [*group_runs([runs[0], open_run(make_run(tmp_path, "again"))])] == ["gar-grpo", "gar-grpo again"]


def test_a_label_has_a_setting_that_changes_no_training_only_if_nothing_else_differs(tmp_path):
    checked = {"preflight": {"mode": "stop"}}
    mine = {"preflight": {"mode": "off"}, "method": "grpo", "evaluate": {"num_samples": 8}}
    runs = [open_run(make_run(tmp_path, name, settings=settings)) for name, settings in (("a", checked), ("b", mine))]
    assert [*group_runs(runs)] == ["gar-grpo", "grpo"]
    runs[1] = open_run(make_run(tmp_path, "c", settings={"preflight": {"mode": "off"}}))
    assert [*group_runs(runs)] == ["gar-grpo, preflight.mode stop", "gar-grpo, preflight.mode off"]
