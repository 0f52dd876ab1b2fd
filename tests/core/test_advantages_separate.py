"""Separate bonuses: by hand, against Python's statistics, what they keep in any group, and the amplification trap."""

import math
import re
import statistics
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.core import group_advantages, reinforce_plus_plus_advantages, separate_bonuses

PAPER: Any = {"scale": "std", "ddof": 0, "eps": 1e-6}
CHOSEN: Any = {"beta": 0.5, "noise_floor": 0.05}


class Group(NamedTuple):
    """Arguments of `separate_bonuses`, in its order."""

    advantages: Tensor
    eligible: Tensor
    alignment: Tensor
    group_index: Tensor
    scored: Tensor

    def bonuses(self, beta: float = 0.5, noise_floor: float = 0.05) -> Tensor:
        return separate_bonuses(*self[:4], scored=self.scored, beta=beta, noise_floor=noise_floor)

    def at(self, places: Tensor) -> "Group":
        return Group(*(column[places] for column in self))


def make(
    rewards: list[float], eligible: list[bool], alignment: list[float], groups: list[int], **options: Any
) -> Group:
    index = torch.tensor(groups)
    advantages = group_advantages(torch.tensor(rewards).double(), index, **PAPER)
    scored = torch.tensor(options.get("scored", [True] * len(groups)))
    return Group(advantages, torch.tensor(eligible), torch.tensor(alignment).double(), index, scored)


def test_separate_bonuses_by_hand():
    # b 0.9, 0.5, 0.1 (mean 0.5, sd sqrt(0.32/3) = 0.326599), tau 0.05: z = 0.4 / 0.376599 = 1.062138, beta 0.5.
    # The member of Q alone in group 8, the one without a vector, and wrong ones get 0.
    nan = math.nan
    group = make(
        [1, 1, 1, 1, 1, 0], [True] * 5 + [False], [0.9, 0.3, 0.5, 0.1, nan, nan], [7, 8, 7, 7, 7, 8],
        scored=[True, True, True, True, False, True],
    )  # fmt: skip
    expected = torch.tensor([0.531069, 0, 0, -0.531069, 0, 0]).double()
    torch.testing.assert_close(group.bonuses(), expected, rtol=0, atol=1e-6)
    # b 0, 0, 0, 0, 0, 0, 1 with tau 0: z of the last is sqrt(6) = 2.449, cut to 2; of the others -1 / sqrt(6).
    cut = make([1.0] * 7, [True] * 7, [0.0] * 6 + [1.0], [0] * 7).bonuses(1.0, 0.0)
    torch.testing.assert_close(cut, torch.tensor([-1 / math.sqrt(6)] * 6 + [2.0]).double())
    # Right against wrong: A = 1 and -1, half the gap is 1; z = 0.4 / 0.45, so beta 3 would give 2.67.
    mixed = make([1, 1, 0, 0], [True, True, False, False], [0.9, 0.1, 0.9, 0.9], [0] * 4).bonuses(beta=3.0)
    torch.testing.assert_close(mixed, torch.tensor([1, -1, 0, 0]).double(), rtol=0, atol=1e-5)  # eps is 1e-6


ROWS = st.lists(
    st.tuples(
        st.booleans(), st.booleans(), st.booleans(), st.integers(-100, 100), st.integers(0, 2), st.integers(-3, 0)
    ),
    min_size=1, max_size=12,
)  # fmt: skip


def drawn(rows: list[tuple[bool, bool, bool, int, int, int]]) -> Group:
    """Cosines in steps of 0.01; rewards 1 or 0, and a penalty that is now and then as large as the base reward."""
    eligible, scored, bad, cosines, groups, tenths = zip(*rows, strict=True)
    rewards = [float(e) + (t / 2 if b else 0.0) for e, b, t in zip(eligible, bad, tenths, strict=True)]
    return make(rewards, list(eligible), [c / 100 for c in cosines], list(groups), scored=list(scored))


@given(rows=ROWS, beta=st.sampled_from([0.0, 0.5, 3.0]), floor=st.sampled_from([0.0, 0.05, 1.0]))
def test_separate_bonuses_agree_with_pythons_statistics(rows, beta, floor):
    group = drawn(rows)
    found = group.bonuses(beta, floor).tolist()
    advantages, eligible, b, index, scored = (column.tolist() for column in group)
    for i in range(len(rows)):
        mine = [j for j in range(len(rows)) if index[j] == index[i]]
        members = [b[j] for j in mine if eligible[j] and scored[j]]
        expected = 0.0
        if eligible[i] and scored[i] and len(set(members)) > 1:
            z = (b[i] - statistics.fmean(members)) / (statistics.pstdev(members) + floor)
            right = [advantages[j] for j in mine if eligible[j]]
            wrong = [advantages[j] for j in mine if not eligible[j]]
            half = max(0.0, min(right) - max(wrong)) / 2 if wrong else math.inf
            expected = max(-half, min(half, beta * max(-2.0, min(2.0, z))))
        assert found[i] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(rows=ROWS, beta=st.sampled_from([0.5, 3.0]))
def test_separate_bonuses_keep_right_above_wrong_and_stay_within_two_beta(rows, beta):
    group = drawn(rows)
    bonuses = group.bonuses(beta)
    assert float(bonuses.abs().max()) <= 2 * beta
    total = group.advantages + bonuses
    for number in group.group_index.unique():
        mine = group.group_index == number
        right, wrong = mine & group.eligible, mine & ~group.eligible
        if right.any() and wrong.any() and group.advantages[right].min() > group.advantages[wrong].max():
            assert total[right].min() > total[wrong].max()


@given(rows=ROWS, shift=st.integers(-50, 50), order=st.randoms(use_true_random=False))
def test_separate_bonuses_ignore_a_common_shift_and_the_order(rows, shift, order):
    group = drawn(rows)
    moved = torch.tensor(order.sample(range(len(rows)), len(rows)))
    shifted = group._replace(alignment=group.alignment + shift / 100).at(moved)
    torch.testing.assert_close(shifted.bonuses(), group.bonuses()[moved], rtol=0, atol=1e-12)


@given(alignment=st.floats(-1, 1), size=st.integers(1, 6), floor=st.sampled_from([0.0, 0.05]))
def test_separate_bonuses_of_equal_alignments_are_exactly_zero(alignment, size, floor):
    group = make([1.0] * size, [True] * size, [alignment] * size, [0] * size)
    assert group.bonuses(noise_floor=floor).tolist() == [0.0] * size


@pytest.mark.parametrize("gap", [0.002, 0.02])
def test_a_small_gap_in_an_all_correct_group_earns_little(gap):
    """Under the joint scale both gaps train as hard as right against wrong: `..._blow_a_tiny_cosine_gap_up_...`."""
    group = make([1.0] * 4, [True] * 4, [0.86 + gap, 0.86 + gap, 0.86, 0.86], [0] * 4)
    expected = 0.5 * (gap / 2) / (gap / 2 + 0.05)
    torch.testing.assert_close(group.bonuses(), torch.tensor([1, 1, -1, -1]) * expected, check_dtype=False)


def test_separate_bonuses_beside_whitened_advantages_are_bounded_by_their_gap():
    rewards, index, counts = (
        torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0]),
        torch.tensor([0, 0, 0, 1, 1]),
        torch.ones(5).long(),
    )
    whitened = reinforce_plus_plus_advantages(rewards.double(), counts, index, baseline=False, ddof=0, eps=0.0)
    b = torch.tensor([0.9, 0.1, 0.5, 0.9, 0.1]).double()
    found = separate_bonuses(
        whitened, rewards > 0, b, index, scored=torch.ones(5).bool(), beta=5.0, noise_floor=0.0
    )  # whitened: mean 0.8, sd 0.4: 0.5 and -2, a gap of 2.5; z is 1 and -1
    torch.testing.assert_close(found, torch.tensor([1.25, -1.25, 0, 5, -5]).double())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": -0.1}, "beta and noise_floor must be finite and not negative, got -0.1 and 0.05"),
        ({"noise_floor": math.nan}, "got 0.5 and nan"),
        ({"alignment": torch.tensor([0.1, math.nan])}, "alignment must be finite, got nan at response 1"),
        ({"advantages": torch.tensor([math.inf, 0.0])}, "advantages must be finite, got inf at response 0"),
        ({"scored": torch.ones(3).bool()}, "scored must have shape (2,), got (3,)"),
    ],
)
def test_separate_bonuses_refuse(changes, message):
    arguments = make([1, 1], [True, True], [0.1, 0.2], [0, 0])._asdict() | CHOSEN
    separate_bonuses(**arguments)
    with pytest.raises(ValueError, match=re.escape(message)):
        separate_bonuses(**arguments | changes)
