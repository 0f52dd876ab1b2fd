"""Rewards and bonuses: by hand, against a literal algorithm 1, reduced to the outcome, at the edges."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.core import gradient_aligned_bonuses, gradient_aligned_rewards


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def flags(text: str) -> Tensor:
    return torch.tensor([character == "1" for character in text])


# Group 3: 0.7, 0.5, 0.3 are in Q(x), mean 0.5; the 0.9 is wrong. Group 0: 0.4 alone in Q(x), nan has no anchor.
ELIGIBLE = flags("1101111")
SCORED = flags("1111110")
ALIGNMENT = f64(0.7, 0.5, 0.9, 0.3, 0.4, 0.1, math.nan)
GROUPS = torch.tensor([3, 3, 3, 3, 0, 8, 0])
PENALTY = f64(0.0, 0.0, -0.6, 0.0, 0.0, 0.0, 0.0)


def test_gradient_aligned_rewards_by_hand():
    found = gradient_aligned_rewards(ELIGIBLE, ALIGNMENT, PENALTY, GROUPS, scored=SCORED)
    # 1 + 0.5 * 0.2; at the mean; wrong and badly formatted; below the mean; alone: no bonus; alone; no anchor.
    torch.testing.assert_close(found, f64(1.1, 1.0, -0.6, 1.0, 1.0, 1.0, 1.0), rtol=1e-15, atol=0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"beta": 2.0}, (0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
        ({"clip": False}, (0.1, 0.0, 0.0, -0.1, 0.0, 0.0, 0.0)),
        ({"center": False}, (0.35, 0.25, 0.0, 0.15, 0.2, 0.05, 0.0)),
    ],
)
def test_gradient_aligned_bonuses_with_options_by_hand(options, expected):
    found = gradient_aligned_bonuses(ELIGIBLE, ALIGNMENT, GROUPS, scored=SCORED, **options)
    torch.testing.assert_close(found, f64(*expected), rtol=1e-14, atol=1e-16)


def test_gradient_aligned_bonuses_do_not_average_over_responses_without_an_anchor():
    """Three correct, one of them without a vector: the mean is (0.8 + 0.6) / 2, not (0.8 + 0.6 + 0) / 3."""
    found = gradient_aligned_bonuses(flags("111"), f64(0.8, 0.6, 0.0), torch.zeros(3).long(), scored=flags("110"))
    torch.testing.assert_close(found, f64(0.05, 0.0, 0.0), rtol=1e-14, atol=0)


def test_gradient_aligned_rewards_of_a_right_answer_in_bad_format_are_the_penalty_alone():
    """Algorithm 1 and C.5: it is not in P(x). Eq. 6 read alone would pay 1 - 0.6."""
    found = gradient_aligned_rewards(flags("10"), f64(0.5, 0.9), f64(0.0, -0.6), torch.tensor([0, 0]))
    assert found.tolist() == [1.0, -0.6]


def test_gradient_aligned_rewards_of_an_all_wrong_group_say_nothing():
    found = gradient_aligned_rewards(flags("00"), f64(0.9, 0.1), f64(0.0, 0.0), torch.tensor([1, 1]))
    assert found.tolist() == [0.0, 0.0]


ROWS = st.lists(
    st.tuples(
        st.booleans(),  # eligible
        st.booleans(),  # scored
        st.floats(-1, 1, width=32),  # alignment
        st.sampled_from([0.0, -0.6]),  # penalty
        st.integers(-2, 2),  # group
    ),
    max_size=20,
)


def columns(rows) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    eligible, scored, alignment, penalty, group = zip(*rows, strict=True) if rows else ((),) * 5
    return (
        torch.tensor(eligible, dtype=torch.bool),
        torch.tensor(alignment, dtype=torch.float64),
        torch.tensor(penalty, dtype=torch.float64),
        torch.tensor(group, dtype=torch.long),
        torch.tensor(scored, dtype=torch.bool),
    )


@given(
    rows=ROWS,
    beta=st.floats(0, 10),
    correct_reward=st.sampled_from([0.0, 0.1, 1.0]),
    center=st.booleans(),
    clip=st.booleans(),
)
def test_gradient_aligned_rewards_agree_with_algorithm_1(rows, beta, correct_reward, center, clip):
    eligible, alignment, penalty, groups, scored = columns(rows)
    found = gradient_aligned_rewards(
        eligible,
        alignment,
        penalty,
        groups,
        scored=scored,
        beta=beta,
        correct_reward=correct_reward,
        center=center,
        clip=clip,
    )
    for i, (correct, usable, b, fine, group) in enumerate(rows):
        expected = fine
        if correct:
            bonus = 0.0
            if usable:
                peers = [row[2] for row in rows if row[0] and row[1] and row[4] == group]
                bonus = b if not center else b - math.fsum(peers) / len(peers)
                bonus = beta * (max(0.0, bonus) if clip else bonus)
            expected = correct_reward + bonus + fine
        # float64: 2e-16 relative on b and its mean, times beta up to 10
        assert found[i].item() == pytest.approx(expected, abs=1e-14)


@given(rows=ROWS, correct_reward=st.sampled_from([1.0, 0.1, 5.0]), clip=st.booleans(), center=st.booleans())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_aligned_rewards_with_beta_0_are_the_outcome_bit_for_bit(dtype, rows, correct_reward, clip, center):
    eligible, alignment, penalty, groups, scored = columns(rows)
    found = gradient_aligned_rewards(
        eligible, alignment.to(dtype), penalty.to(dtype), groups, scored=scored, beta=0.0,
        correct_reward=correct_reward, clip=clip, center=center,
    )  # fmt: skip
    outcome = [correct_reward * correct for correct in eligible.tolist()]
    expected = (torch.tensor(outcome, dtype=torch.float64) + penalty.to(dtype)).to(dtype)
    assert torch.equal(found, expected)


@given(rows=ROWS, order=st.randoms(use_true_random=False), labels=st.permutations([-7, 0, 3, 50, 2**40]))
def test_gradient_aligned_rewards_follow_the_responses_wherever_they_stand(rows, order, labels):
    """One group on two ranks, gathered in any order, is one group; what its index is called does not matter."""
    eligible, alignment, penalty, groups, scored = columns(rows)
    moved = list(range(len(rows)))
    order.shuffle(moved)
    relabeled = torch.tensor([labels[group + 2] for group in groups.tolist()], dtype=torch.long)
    found = gradient_aligned_rewards(
        eligible[moved], alignment[moved], penalty[moved], relabeled[moved], scored=scored[moved]
    )
    expected = gradient_aligned_rewards(eligible, alignment, penalty, groups, scored=scored)[moved]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-15)  # the mean's last bit depends on the order


@given(rows=ROWS, shift=st.floats(-1, 1))
def test_gradient_aligned_bonuses_do_not_change_when_all_cosines_move_alike(rows, shift):
    eligible, alignment, _, groups, scored = columns(rows)
    found = gradient_aligned_bonuses(eligible, alignment + shift, groups, scored=scored)
    expected = gradient_aligned_bonuses(eligible, alignment, groups, scored=scored)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-15)


@given(rows=ROWS)
def test_gradient_aligned_bonuses_are_not_negative_and_sum_to_zero_unclipped(rows):
    eligible, alignment, _, groups, scored = columns(rows)
    assert gradient_aligned_bonuses(eligible, alignment, groups, scored=scored).ge(0).all()
    unclipped = gradient_aligned_bonuses(eligible, alignment, groups, scored=scored, clip=False)
    for group in groups.unique():
        assert abs(unclipped[groups == group].sum().item()) < 1e-14


@pytest.mark.parametrize("value", [0.1, 0.862, -0.3])
def test_gradient_aligned_bonuses_of_equal_cosines_are_exactly_zero(value):
    """A mean that is off by one bit would otherwise be blown up to unit advantages."""
    alignment = torch.full((16,), value, dtype=torch.float64)
    for clip in (True, False):
        bonuses = gradient_aligned_bonuses(torch.ones(16).bool(), alignment, torch.zeros(16).long(), clip=clip)
        assert bonuses.eq(0).all()


def test_gradient_aligned_rewards_of_no_responses_are_empty():
    found = gradient_aligned_rewards(*columns([])[:4])
    assert found.tolist() == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gradient_aligned_rewards_work_in_float64_and_keep_the_dtype(dtype):
    alignment = f64(0.75, 0.5, 0.5, 0.25).to(dtype)  # exact in all of them; mean 0.5; the bonus is 0.3 * 0.25
    found = gradient_aligned_rewards(
        flags("1111"), alignment, torch.zeros(4, dtype=dtype), torch.zeros(4).long(), beta=0.3, correct_reward=0.1
    )
    assert found.dtype == dtype
    # 0.1 and 0.3 are not float32 numbers: any step outside float64 shows in the last digits of the float64 result.
    assert found.tolist() == f64(0.1 + 0.3 * 0.25, 0.1, 0.1, 0.1).to(dtype).tolist()


def test_gradient_aligned_rewards_do_not_depend_on_the_default_dtype():
    arguments = (flags("11"), f64(0.7, 0.5), f64(0.0, 0.0), torch.tensor([0, 0]))
    expected = gradient_aligned_rewards(*arguments, correct_reward=0.1)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(gradient_aligned_rewards(*arguments, correct_reward=0.1), expected)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_gradient_aligned_bonuses_refuse_a_cosine_that_is_not_finite(value):
    message = (
        f"alignment must be finite, got {value} at response 2, which is eligible and scored. Was a response without a "
        "usable vector left in `scored`?"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        gradient_aligned_bonuses(flags("1011"), f64(0.1, value, value, 0.2), torch.zeros(4).long())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eligible": flags("11")}, "eligible must have shape (3,), got (2,)"),
        ({"group_index": torch.zeros(4).long()}, "group_index must have shape (3,), got (4,)"),
        ({"scored": flags("1")}, "scored must have shape (3,), got (1,)"),
        ({"penalty": f64(0.0)}, "penalty must have shape (3,), got (1,)"),
        ({"beta": math.nan}, "beta must be finite, got nan"),
    ],
)
def test_gradient_aligned_rewards_refuse(changes, message):
    arguments = {
        "eligible": flags("111"),
        "alignment": f64(0.1, 0.2, 0.3),
        "penalty": f64(0.0, 0.0, 0.0),
        "group_index": torch.zeros(3).long(),
    }
    gradient_aligned_rewards(**arguments)
    with pytest.raises(ValueError, match=re.escape(message)):
        gradient_aligned_rewards(**arguments | changes)
