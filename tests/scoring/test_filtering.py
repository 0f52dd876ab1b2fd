"""Which groups have one key, so that an engine's filter drops them."""

from typing import Any

import numpy as np
import pytest

from gar.integrations.slime.settings import SLIME
from gar.response import Response, TokenSequence
from gar.scoring.filtering import signal_key
from gar.step import plan_shaping
from gar.types import Status, Verdict


def response(ids: list[int], *, right: bool, formatted: bool = True, scored: int | None = None) -> Response:
    status = Status.OK if right else Status.WRONG
    return Response(
        sequence=TokenSequence(context_ids=[3], ids=ids, positions=range(len(ids) if scored is None else scored)),
        verdict=Verdict(status=status, grade=float(right), verified=right, well_formatted=formatted),
    )


RIGHT, OTHER_RIGHT = response([5, 6, 1], right=True), response([5, 7, 1], right=True)
WRONG, OTHER_WRONG = response([8, 1], right=False), response([9, 1], right=False)
ILL_FORMED = response([9], right=False, formatted=False)
OTHER_END = response([5, 6, 2], right=True, scored=2)
"""The scored tokens of one that begins as `RIGHT`."""

GROUPS: list[tuple[str, list[Response], bool, bool]] = [
    ("right and wrong", [RIGHT, WRONG, WRONG], True, True),
    ("all right", [RIGHT, OTHER_RIGHT, RIGHT], True, False),
    ("all right and the same", [RIGHT, RIGHT, RIGHT], False, False),
    ("all wrong", [WRONG, OTHER_WRONG, WRONG], False, False),
    ("all wrong, one without the format", [WRONG, ILL_FORMED], True, True),
    ("the same up to the last scored token", [response([5, 6, 1], right=True, scored=2), OTHER_END], False, False),
    ("nothing scored", [response([5], right=True, scored=0), response([6], right=True, scored=0)], False, False),
]


def kept(group: list[Response], *, method: str = "gar-grpo", has_anchor: bool = True, **reward: Any) -> bool:
    shaping = plan_shaping(SLIME, method, {"reward": {"bonus_weight": 0.5} | reward} if reward else {})
    keys = [signal_key(shaping, each, has_anchor=has_anchor) for each in group]
    return float(np.std([float(key) for key in keys])) != 0.0  # as verl's filter reads them


@pytest.mark.parametrize(("group", "by_gar", "by_outcome"), [row[1:] for row in GROUPS], ids=[row[0] for row in GROUPS])
def test_a_group_is_kept_if_its_outcomes_differ_or_its_right_responses_do(group, by_gar, by_outcome):
    assert kept(group) == by_gar
    assert kept(group, has_anchor=False) == by_outcome
    assert kept(group, method="grpo") == by_outcome


def test_the_cosine_alone_pays_wrong_responses_too():
    assert kept([WRONG, OTHER_WRONG], method="alignment-only")
    assert not kept([WRONG, WRONG], method="alignment-only")


@pytest.mark.parametrize("size", [7, 10, 16])
def test_equal_keys_have_no_deviation_in_any_size_of_group(size: int):
    """A mean of ten times -0.6 is not -0.6 in floating point."""
    assert not kept([ILL_FORMED] * size)
    assert not kept([RIGHT] * size)
