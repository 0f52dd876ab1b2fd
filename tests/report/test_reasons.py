"""Sentences from the recorded numbers: why a response has its reward, what the bonus pays for, how problems end."""

from dataclasses import asdict

from gar.records import open_run
from gar.report import ReportOptions
from gar.report.build import make_report
from gar.report.reasons import reward_reasons
from gar.report.runs import group_runs
from gar.report.tables import problem_table
from gar.settings import RewardSettings
from tests.report.runs import PROBLEMS, make_run, rollout, wrong

SETTINGS = RewardSettings(bonus_weight=0.5)


def paid(index: int, alignment: float, bonus: float, **own) -> dict:
    return asdict(rollout(1, 0, index, alignment=alignment, bonus=bonus, reward=1 + bonus, penalty=0.0, **own))


def test_a_reward_is_a_sum_of_its_parts():
    penalized = asdict(wrong(1, 0, 2, penalty=-0.6, reward=-0.6))
    group = [paid(0, 1.0, 0.37), paid(1, -0.48, 0.0), penalized]
    assert reward_reasons(group, SETTINGS) == [
        "1.37 = 1 (right) + 0.5 × (1.00 − 0.26, the mean of the group's 2 right ones)",
        "1 = 1 (right) + 0 (−0.48 is not above 0.26, the mean of the group's 2 right ones)",
        "−0.6 = 0 (wrong) − 0.6 (bad format)",
    ]
    assert reward_reasons([paid(0, 0.4, 0.0), penalized], SETTINGS)[0] == (
        "1 = 1 (right) + 0 (no other right response to compare with)"
    )
    assert "(−0.25), the mean" in reward_reasons([paid(0, 0.5, 0.375), paid(1, -1.0, 0.0)], SETTINGS)[0]


def test_a_bonus_that_the_formula_does_not_give_stands_as_it_was_recorded():
    group = [paid(0, 1.0, 0.2), paid(1, 0.0, 0.0)]
    assert reward_reasons(group, SETTINGS)[0] == "1.2 = 1 (right) + 0.2 (bonus)"
    group = [paid(0, 1.0, 0.37), paid(1, -0.48, 0.0)]
    for settings in (None, RewardSettings(center=False), RewardSettings(clip=False)):
        assert reward_reasons(group, settings)[0] == "1.37 = 1 (right) + 0.37 (bonus)"
    unpaid = [paid(0, 1.0, 0.0), paid(1, 0.0, 0.0)]  # measured and not paid
    assert reward_reasons(unpaid, SETTINGS) == ["1 = 1 (right)"] * 2


def test_the_report_has_a_sentence_about_what_the_bonus_pays_for(tmp_path):
    expert = PROBLEMS[10].anchors[0].text
    group = [
        rollout(1, 0, 0, response=expert, alignment=1.0, bonus=0.5, num_tokens=12),
        rollout(1, 0, 1, response="five", alignment=-1.0, bonus=0.0, num_tokens=10),
        wrong(1, 0, 2),
    ]
    run = open_run(make_run(tmp_path, rollouts={1: group}))
    (text,) = make_report([run], ReportOptions()).bonus
    assert text == (
        "In 1 groups of the last quarter of the steps it paid 1 right responses, and not the other 1. The paid ones "
        "are 2.0 tokens longer than the others of their group. 100% of them repeat the expert solution word for word, "
        "and 0% of the others. 50% of the alignments are above 0.9 and 50% below −0.9. At two ends the bonus chooses "
        "between wordings, and does not grade them."
    )
    unscored = rollout(1, 0, 3, response="four", alignment=None, bonus=0.0, num_tokens=10)
    beside = open_run(make_run(tmp_path, "beside", rollouts={1: [*group, unscored]}))
    assert "50% of the alignments are above 0.9 and 50% below" in make_report([beside], ReportOptions()).bonus[0]
    plain = open_run(make_run(tmp_path, "plain", rollouts={1: [rollout(1, 0, 0, bonus=0.0), wrong(1, 0, 1)]}))
    assert make_report([plain], ReportOptions()).bonus == []


def test_problems_are_lost_never_solved_gained_or_unchanged(tmp_path):
    run = open_run(make_run(tmp_path, evaluations={"before": [1, 0, 2, 3, 4], "after": [4, 0, 1, 3, 0]}))
    table, sentences = problem_table(group_runs([run]))
    assert table.to_numpy().tolist() == [
        ["test", "p4", "4 of 4", "0 of 4", "lost"],
        ["test", "p2", "2 of 4", "1 of 4", "lost"],
        ["test", "p1", "0 of 4", "0 of 4", "never solved"],
        ["test", "p0", "1 of 4", "4 of 4", "gained"],
        ["test", "p3", "3 of 4", "3 of 4", "unchanged"],
    ]
    assert sentences == ["test, 5 problems: 2 lost, 1 never solved, 1 gained, 1 unchanged."]
    after = open_run(make_run(tmp_path, "after", evaluations={"after": [0, 2]}))
    assert problem_table(group_runs([after]))[0]["outcome"].tolist() == ["unsolved", "solved"]


def test_problems_are_summed_over_the_seeds_of_a_group(tmp_path):
    settings = ({}, {}, {"method": "grpo"})
    runs = [
        make_run(tmp_path, f"r{i}", seed=i % 2, settings=each, evaluations={"before": [i], "after": [1]})
        for i, each in enumerate(settings)
    ]
    table, sentences = problem_table(group_runs([open_run(run) for run in runs]))
    assert table.to_numpy().tolist() == [
        ["grpo", "test", "p0", "2 of 4", "1 of 4", "lost"],
        ["gar-grpo", "test", "p0", "1 of 8", "2 of 8", "gained"],
    ]
    assert sentences[0] == "gar-grpo, test, 1 problems: 1 gained."
