"""The watchdog on rollouts with one known fault each."""

from dataclasses import replace

import pytest

from gar.errors import CollapseError
from gar.integrations.slime.settings import SLIME
from gar.integrations.watchdog import _FAULTS, SamplingWatch, Watchdog
from gar.records import RolloutRecord
from gar.response import Response
from gar.settings import WatchdogSettings
from gar.step import Step, plan_shaping
from gar.types import Status, Verdict
from tests.support.errors import raises
from tests.support.rows import rollout

RIGHT = rollout(response="7")
WRONG = replace(RIGHT, eligible=False, verified=False, response="8")
EMPTY = replace(WRONG, response=" \n")
CUT = replace(WRONG, truncated=True)
UNREAD = replace(WRONG, status="unparsed")


def response_of(row: RolloutRecord) -> Response:
    verdict = Verdict(status=Status(row.status), grade=0.0, verified=row.eligible, well_formatted=True)
    return Response(empty=not row.response.strip(), truncated=row.truncated, verdict=verdict)


def watch(steps, *, mode="warn", patience=3) -> list[tuple[str, str]]:
    """Steps and kind of each reported fault: equal for the records of TRL and for the facts of any engine."""
    told: list[str] = []
    of_facts: list[str] = []
    watchdog, another = (Watchdog(WatchdogSettings(mode=mode, steps=patience), to.append) for to in (told, of_facts))
    for step, rows in steps:
        another.watch(step, Step(plan_shaping(SLIME, "grpo"), [response_of(row) for row in rows]))
        watchdog.watch_records(step, rows)
    assert told == of_facts
    kinds = {fault: kind for kind, fault in _FAULTS.items()}
    return [(steps, kinds[fault]) for steps, _, fault in (text.partition(") ") for text in told)]


def test_a_collapse_is_reported_once_with_its_cause():
    for row, kind in ((EMPTY, "empty"), (CUT, "cut off"), (UNREAD, "unparsed"), (WRONG, "none right")):
        told = watch([(4, [RIGHT, row]), *((step, [row, row]) for step in range(5, 12))])
        assert told == [("For 3 steps (5 to 7", kind)]


def test_what_counts_as_lasting():
    sound = [(1, [EMPTY]), (2, [EMPTY]), (3, [EMPTY, RIGHT]), (4, [EMPTY]), (5, [EMPTY])]
    assert watch(sound) == []  # a sound response restarts the count
    assert len(watch([*sound, (6, [EMPTY])])) == 1
    ((_, kind),) = watch([(1, [EMPTY]), (2, [EMPTY]), (3, [CUT])])
    assert kind == "none right"  # true of both faults, though neither lasts
    assert watch([(1, [WRONG]), (1, [WRONG]), (1, [WRONG])]) == []  # generations of one step
    assert len(watch([(1, [WRONG]), (3, [WRONG])])) == 1  # two updates per rollout
    assert watch([(step, [EMPTY]) for step in range(9)], mode="off") == []


def test_a_fault_since_the_start_is_reported_after_three_steps_and_each_kind_once():
    steps = [*((step, [CUT, EMPTY]) for step in range(1, 5)), (5, [RIGHT]), *((step, [CUT]) for step in range(6, 20))]
    told = watch(steps, patience=10)
    assert told == [("For 3 steps (1 to 3", "none right"), ("For 10 steps (6 to 15", "cut off")]
    assert watch(steps[:4], mode="stop", patience=10) == told[:1]  # a warning alone


def test_stop_ends_the_run():
    watchdog = Watchdog(WatchdogSettings(mode="stop", steps=1))
    watchdog.watch_records(1, [])
    with pytest.warns(UserWarning, match="WATCHDOG"), raises(CollapseError):
        watchdog.watch_records(1, [EMPTY])


def test_a_ratio_of_probabilities_outside_its_bounds_is_told_once():
    told: list[str] = []
    watch = SamplingWatch(told.append)
    for step, ratio in enumerate((1.0, 0.91, 1.09, 0.75, 0.5), start=1):
        watch.watch(step, ratio)
    assert len(told) == 1
    assert "In step 4 the mean importance sampling ratio is 0.75, expected 0.9 to 1.1" in told[0]
