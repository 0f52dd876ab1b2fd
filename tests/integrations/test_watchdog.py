"""The watchdog, on rollouts that collapse in one known way each."""

from dataclasses import replace

import pytest

from gar.errors import CollapseError
from gar.integrations.slime.settings import SLIME
from gar.integrations.watchdog import Collapse, Watchdog
from gar.records import RolloutRecord
from gar.settings import WatchdogSettings
from gar.step import ResponseFacts, Row, Step, plan_shaping
from tests.support.errors import raises
from tests.support.rows import rollout

RIGHT = rollout(response="7")
WRONG = replace(RIGHT, eligible=False, verified=False, response="8")
EMPTY = replace(WRONG, response=" \n")
CUT = replace(WRONG, truncated=True)


def facts_of(row: RolloutRecord) -> Row:
    facts = ResponseFacts(
        group_index=0, status="ok", verified=row.eligible, well_formatted=True, empty=not row.response.strip(),
        truncated=row.truncated,
    )  # fmt: skip
    return Row(facts=facts)


def watch(steps, *, mode="warn", patience=3) -> list[Collapse]:
    """What is told of rollouts by step, the same by the records of TRL and by the facts of any engine."""
    told: list[Collapse] = []
    of_facts: list[Collapse] = []
    watchdog, another = (Watchdog(WatchdogSettings(mode=mode, steps=patience), to.append) for to in (told, of_facts))
    for step, rows in steps:
        another.look_at(step, Step(plan_shaping(SLIME, "grpo"), [facts_of(row) for row in rows]))
        watchdog.look(step, rows)
    assert told == of_facts
    return told


@pytest.mark.parametrize(("row", "kind"), [(EMPTY, "empty"), (CUT, "cut off"), (WRONG, "none right")])
def test_a_collapse_is_told_once_with_its_cause(row, kind):
    told = watch([(4, [RIGHT, row]), *((step, [row, row]) for step in range(5, 12))])
    assert [(found.kind, found.first_step, found.last_step) for found in told] == [(kind, 5, 7)]
    assert told[0].text.startswith("For 3 steps (5 to 7) ")


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


def test_stop_ends_the_run():
    watchdog = Watchdog(WatchdogSettings(mode="stop", steps=1))
    with pytest.warns(UserWarning, match="WATCHDOG"), raises(CollapseError):
        watchdog.look(1, [EMPTY])


def test_off_and_nothing_to_look_at_tell_nothing():
    assert watch([(step, [EMPTY]) for step in range(9)], mode="off") == []
    assert Watchdog(WatchdogSettings(steps=1)).look(1, []) is None
