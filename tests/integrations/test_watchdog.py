"""The watchdog, on rollouts that collapse in one known way each."""

from dataclasses import replace

import pytest

from gar.errors import CollapseError
from gar.integrations.slime.settings import SLIME
from gar.integrations.watchdog import Collapse, Watchdog
from gar.records import RolloutRecord
from gar.settings import WatchdogSettings
from gar.step import ResponseFacts, Row, Step, plan_shaping
from gar.types import Status

RIGHT = RolloutRecord(
    step=1, problem_id="p", group_index=0, response_index=0, prompt="3+4=", response="7", gold="7", answer="7",
    status=Status.OK, verified=True, well_formatted=True, eligible=True, anchor=True, alignment=None, bonus=0.0,
    penalty=0.0, reward=1.0, advantage=0.0, num_tokens=2, truncated=False, num_scored_tokens=1, signal_norm=None,
    prompt_tokens=4,
)  # fmt: skip
WRONG = replace(RIGHT, eligible=False, verified=False, response="8")
EMPTY = replace(WRONG, response=" \n")
CUT = replace(WRONG, truncated=True)


def watch(steps, *, mode="warn", patience=3) -> list[Collapse]:
    """What is told of rollouts by step."""
    told: list[Collapse] = []
    watchdog = Watchdog(WatchdogSettings(mode=mode, steps=patience), told.append)
    for step, rows in steps:
        watchdog.look(step, rows)
    return told


@pytest.mark.parametrize(
    ("row", "kind", "words"),
    [
        (EMPTY, "empty", "For 3 steps (5 to 7) every response was empty. The policy has learned to end at once"),
        (CUT, "cut off", "For 3 steps (5 to 7) every response was cut off at trl.max_completion_length. The policy do"),
        (WRONG, "none right", "For 3 steps (5 to 7) no response was right and well formatted. Groups without a right"),
    ],
)
def test_a_collapse_is_told_once_with_its_cause(row, kind, words):
    told = watch([(4, [RIGHT, row]), *((step, [row, row]) for step in range(5, 12))])
    assert [(found.kind, found.first_step, found.last_step) for found in told] == [(kind, 5, 7)]
    assert told[0].text.startswith(words)
    assert "--trl.learning_rate" in told[0].text


def test_one_sound_response_begins_the_count_anew():
    steps = [(1, [EMPTY]), (2, [EMPTY]), (3, [EMPTY, RIGHT]), (4, [EMPTY]), (5, [EMPTY])]
    assert watch(steps) == []
    assert len(watch([*steps, (6, [EMPTY])])) == 1


def test_different_faults_are_different_counts_and_wrong_holds_of_both():
    """Empty, then cut off: neither lasts, but there was no right answer in any of the steps."""
    (told,) = watch([(1, [EMPTY]), (2, [EMPTY]), (3, [CUT])])
    assert told.kind == "none right"


def test_several_generations_of_a_step_count_once_and_skipped_steps_count():
    assert watch([(1, [WRONG]), (1, [WRONG]), (1, [WRONG])]) == []
    assert len(watch([(1, [WRONG]), (3, [WRONG])])) == 1  # two updates per rollout


def test_stop_ends_the_run_and_says_how_to_go_on():
    with pytest.raises(CollapseError, match=r"For 1 step \(1 to 1\) every response was empty.*--watchdog.mode warn"):
        watch([(1, [EMPTY])], mode="stop", patience=1)


def test_off_and_nothing_to_look_at_tell_nothing():
    assert watch([(step, [EMPTY]) for step in range(9)], mode="off") == []
    assert watch([(step, []) for step in range(9)]) == []


def responses(*facts: ResponseFacts) -> Step:
    return Step(plan_shaping(SLIME, "grpo"), [Row(facts=fact) for fact in facts])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"empty": True}, "For 2 steps (1 to 2) every response was empty"),
        ({"truncated": True}, "For 2 steps (1 to 2) every response was cut off at its limit"),
        ({}, "For 2 steps (1 to 2) no response was right and well formatted"),
    ],
)
def test_a_collapse_is_told_of_the_facts_of_any_engine(change, words):
    """As slime and verl look, in words without flags of `gar train`."""
    told: list[Collapse] = []
    watchdog = Watchdog(WatchdogSettings(steps=2), told.append)
    wrong = ResponseFacts(group_index=0, status="wrong", verified=False, well_formatted=True, **change)
    watchdog.look_at(1, responses(wrong, wrong))
    assert told == []
    watchdog.look_at(2, responses(wrong, wrong))
    assert told[0].text.startswith(words)
    assert "--trl" not in told[0].text


def test_one_right_response_in_any_group_is_no_collapse_of_any_engine():
    right = ResponseFacts(group_index=1, status="ok", verified=True, well_formatted=True)
    wrong = ResponseFacts(group_index=0, status="wrong", verified=False, well_formatted=True)
    watchdog = Watchdog(WatchdogSettings(mode="stop", steps=1))
    watchdog.look_at(1, responses(wrong, right))
    with pytest.warns(UserWarning, match="WATCHDOG"), pytest.raises(CollapseError, match=r"gar\.watchdog\.mode warn"):
        watchdog.look_at(2, responses(wrong, wrong))
