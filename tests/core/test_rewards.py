"""Bonuses: by hand, against a literal algorithm 1, at the edges."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core import gradient_aligned_bonuses
from tests.core.conftest import columns, f64, flags


def test_gradient_aligned_bonuses_by_hand():
    # Group 3: 0.7, 0.5, 0.3 are in Q(x), mean 0.5; the 0.9 is wrong. Group 0: 0.4 alone in Q(x), nan has no anchor.
    eligible, scored = flags("1101111"), flags("1111110")
    alignment, groups = f64(0.7, 0.5, 0.9, 0.3, 0.4, 0.1, math.nan), torch.tensor([3, 3, 3, 3, 0, 8, 0])
    for options, expected in (
        ({}, (0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),  # 0.5 * 0.2; at the mean; wrong; below it; alone; alone; no anchor
        ({"bonus_weight": 2.0}, (0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
        ({"clip": False}, (0.1, 0.0, 0.0, -0.1, 0.0, 0.0, 0.0)),
        ({"center": False}, (0.35, 0.25, 0.0, 0.15, 0.2, 0.05, 0.0)),
    ):
        found = gradient_aligned_bonuses(eligible, alignment, groups, scored=scored, **options)
        torch.testing.assert_close(found, f64(*expected), rtol=1e-14, atol=1e-16)


# A response: eligible, scored, alignment, group.
ROWS = st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(-1, 1, width=32), st.integers(-2, 2)), max_size=20)


@given(rows=ROWS, beta=st.floats(0, 10), center=st.booleans(), clip=st.booleans())
def test_gradient_aligned_bonuses_agree_with_algorithm_1(rows, beta, center, clip):
    eligible, scored, alignment, groups = columns(rows, torch.bool, torch.bool, torch.float64, torch.long)
    options = {"scored": scored, "bonus_weight": beta, "center": center, "clip": clip}
    found = gradient_aligned_bonuses(eligible, alignment, groups, **options)
    for i, (correct, usable, b, group) in enumerate(rows):
        bonus = 0.0
        if correct and usable:
            peers = [row[2] for row in rows if row[0] and row[1] and row[3] == group]
            bonus = b if not center else b - math.fsum(peers) / len(peers)
            bonus = beta * (max(0.0, bonus) if clip else bonus)
        # float64: 2e-16 relative on b and its mean, times beta up to 10
        assert found[i].item() == pytest.approx(bonus, abs=1e-14)
