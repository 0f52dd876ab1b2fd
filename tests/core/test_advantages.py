"""Group advantages: by hand, against Python's statistics, reduced to plain GRPO, and the amplification trap."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.core import group_advantages
from tests.support.rewards import gradient_aligned_rewards

PAPER = {"scale": "std", "ddof": 0, "eps": 1e-6}
TRL = {"scale": "std", "ddof": 1, "eps": 1e-4}


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def one_group(size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.long)


@pytest.mark.parametrize(
    ("ddof", "right", "wrong"),
    # K 16, 5 right: mean 5/16, population std sqrt(5 * 11) / 16. (1 - 5/16) / std = sqrt(11/5), -(5/16) / std =
    # -sqrt(5/11). Bessel: std grows by sqrt(16/15).
    [(0, 1.4832397, -0.6741999), (1, 1.4361407, -0.6527912)],
)
def test_group_advantages_of_five_right_among_sixteen_by_hand(ddof, right, wrong):
    rewards = torch.tensor([1.0] * 5 + [0.0] * 11)
    found = group_advantages(rewards, one_group(16), scale="std", ddof=ddof, eps=0.0)
    torch.testing.assert_close(found, torch.tensor([right] * 5 + [wrong] * 11), rtol=1e-7, atol=0)


def test_group_advantages_of_interleaved_groups_by_hand():
    # Group 9: 1, 3, 5, mean 3, population std sqrt(8/3). Group -4: 0 and 10, mean 5, std 5. Group 2: alone.
    rewards = f64(1.0, 0.0, 3.0, 7.0, 10.0, 5.0)
    groups = torch.tensor([9, -4, 9, 2, -4, 9])
    step = 2 / math.sqrt(8 / 3)
    found = group_advantages(rewards, groups, scale="std", ddof=0, eps=0.0)
    torch.testing.assert_close(found, f64(-step, -1.0, 0.0, 0.0, 1.0, step), rtol=1e-15, atol=0)
    centered = group_advantages(rewards, groups, scale="none", ddof=0, eps=0.0)
    assert centered.tolist() == [-2.0, -5.0, 0.0, 0.0, 5.0, 2.0]


@pytest.mark.parametrize(
    ("options", "expected"),
    # Rewards 0 and 2: mean 1, population std 1, Bessel std sqrt(2).
    [
        ({"ddof": 0, "eps": 0.25}, 1 / 1.25),
        ({"ddof": 0, "eps": 0.25, "min_std": 0.5}, 1 / 1.25),  # a floor below the std does nothing
        ({"ddof": 0, "eps": 0.25, "min_std": 4.0}, 1 / 4.25),  # eps comes on top of the floor
        ({"ddof": 1, "eps": 0.25}, 1 / (math.sqrt(2) + 0.25)),
        ({"ddof": 1, "eps": 0.0, "min_std": 1.2}, 1 / math.sqrt(2)),
    ],
)
def test_group_advantages_denominator_by_hand(options, expected):
    found = group_advantages(f64(2.0, 0.0), one_group(2), scale="std", **options)
    torch.testing.assert_close(found, f64(expected, -expected), rtol=1e-15, atol=0)


ROWS = st.lists(st.tuples(st.floats(-10, 10, width=16), st.integers(0, 3)), max_size=20)


@given(rows=ROWS, ddof=st.sampled_from([0, 1]), eps=st.sampled_from([1e-6, 1e-4]), floor=st.sampled_from([0.0, 0.1]))
def test_group_advantages_agree_with_pythons_statistics(rows, ddof, eps, floor):
    rewards = torch.tensor([reward for reward, _ in rows], dtype=torch.float64)
    groups = torch.tensor([group for _, group in rows], dtype=torch.long)
    found = group_advantages(rewards, groups, scale="std", ddof=ddof, eps=eps, min_std=floor)
    for i, (reward, group) in enumerate(rows):
        mine = [r for r, g in rows if g == group]
        expected = 0.0
        if len(mine) > 1:
            std = statistics.stdev(mine) if ddof else statistics.pstdev(mine)
            expected = (reward - statistics.fmean(mine)) / (max(std, floor) + eps)
        # 1e-15 of rewards up to 10, over a denominator that may be as small as eps
        assert found[i].item() == pytest.approx(expected, rel=1e-8, abs=1e-8)


@given(
    rows=st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(-1, 1), st.integers(0, 3)), min_size=1, max_size=20)
)
def test_group_advantages_of_rewards_with_beta_0_are_plain_grpo_bit_for_bit(rows):
    eligible, good_format, alignment, groups = (torch.tensor(column) for column in zip(*rows, strict=True))
    penalty = torch.where(good_format, 0.0, -0.6)
    shaped = gradient_aligned_rewards(eligible, alignment, penalty, groups, beta=0.0)
    for options in (PAPER, TRL, {"scale": "none", "ddof": 0, "eps": 0.0}):
        plain = group_advantages(eligible.float() + penalty, groups, **options)
        assert torch.equal(group_advantages(shaped, groups, **options), plain)


def test_group_advantages_blow_a_tiny_cosine_gap_up_unless_a_floor_holds_it():
    """The amplification trap: four correct responses, cosines 0.002 apart, the bonus of the upper two beta * 0.001."""
    cosines, right = f64(0.862, 0.862, 0.860, 0.860), torch.ones(4, dtype=torch.bool)
    for beta in (0.01, 0.5, 50.0):
        rewards = gradient_aligned_rewards(right, cosines, torch.zeros(4).double(), one_group(4), beta=beta)
        found = group_advantages(rewards, one_group(4), scale="std", ddof=0, eps=0.0)
        torch.testing.assert_close(found, f64(1, 1, -1, -1), rtol=1e-9, atol=0)  # 1 + 1e-5 keeps 1e-11 of the bonus
        # std is beta * 0.0005, below the floor of 0.1: the advantage is beta * 0.0005 / 0.1.
        found = group_advantages(rewards, one_group(4), scale="std", ddof=0, eps=0.0, min_std=0.1)
        torch.testing.assert_close(found, f64(1, 1, -1, -1) * beta * 0.005, rtol=1e-9, atol=0)
