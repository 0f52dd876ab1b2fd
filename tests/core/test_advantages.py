"""Advantages of responses and over tokens: by hand, against Python's statistics, the amplification trap."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core import gradient_aligned_bonuses, group_advantages, reinforce_plus_plus_advantages
from gar.core.groups import in_equal_group
from tests.core.conftest import columns, f64, one_group


def spread(values: list[float], ddof: int) -> float:
    if len(values) <= ddof:
        return 0.0
    return statistics.stdev(values) if ddof else statistics.pstdev(values)


def test_group_advantages_of_interleaved_groups_by_hand():
    # Group 9: 1, 3, 5, mean 3, population std sqrt(8/3). Group -4: 0 and 10, mean 5, std 5. Group 2: alone.
    rewards = f64(1.0, 0.0, 3.0, 7.0, 10.0, 5.0)
    groups = torch.tensor([9, -4, 9, 2, -4, 9])
    step = 2 / math.sqrt(8 / 3)
    found = group_advantages(rewards, groups, scale="std", ddof=0, eps=0.0)
    torch.testing.assert_close(found, f64(-step, -1.0, 0.0, 0.0, 1.0, step), rtol=1e-15, atol=0)
    centered = group_advantages(rewards, groups, scale="none", ddof=0, eps=0.0)
    assert centered.tolist() == [-2.0, -5.0, 0.0, 0.0, 5.0, 2.0]


@pytest.mark.parametrize("reward", [-0.6, 0.1, 1 / 3, 5 / 3, 1e6 / 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rewards_have_the_advantage_0_at_every_group_size(reward: float, dtype: torch.dtype):
    """An engine's float32 mean of such rewards is another number, as sum / n and as sum x (1 / n)."""
    for size in range(1, 129):
        rewards = torch.full((size,), reward, dtype=dtype)
        for scale in ("std", "none"):
            found = group_advantages(rewards, torch.zeros(size, dtype=torch.long), scale=scale, ddof=0, eps=1e-6)
            assert not found.any(), size
        assert in_equal_group(rewards, torch.zeros(size, dtype=torch.long)).all()


@given(
    rows=st.lists(st.tuples(st.floats(-10, 10, width=16), st.integers(0, 3)), max_size=20),
    ddof=st.sampled_from([0, 1]),
    eps=st.sampled_from([1e-6, 1e-4]),
    floor=st.sampled_from([0.0, 0.1]),
)
def test_group_advantages_agree_with_pythons_statistics(rows, ddof, eps, floor):
    rewards, groups = columns(rows, torch.float64, torch.long)
    found = group_advantages(rewards, groups, scale="std", ddof=ddof, eps=eps, min_std=floor)
    for i, (reward, group) in enumerate(rows):
        mine = [r for r, g in rows if g == group]
        alone = len(mine) == 1
        expected = 0.0 if alone else (reward - statistics.fmean(mine)) / (max(spread(mine, ddof), floor) + eps)
        # 1e-15 of rewards up to 10, over a denominator that may be as small as eps
        assert found[i].item() == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_group_advantages_blow_a_tiny_cosine_gap_up_unless_a_floor_holds_it():
    """The amplification trap: cosines 0.002 apart give two of four correct responses a bonus of beta * 0.001."""
    cosines, right = f64(0.862, 0.862, 0.860, 0.860), torch.ones(4, dtype=torch.bool)
    for beta in (0.01, 0.5, 50.0):
        rewards = 1.0 + gradient_aligned_bonuses(right, cosines, one_group(4), bonus_weight=beta)
        found = group_advantages(rewards, one_group(4), scale="std", ddof=0, eps=0.0)
        torch.testing.assert_close(found, f64(1, 1, -1, -1), rtol=1e-9, atol=0)  # 1 + 1e-5 keeps 1e-11 of the bonus
        # std is beta * 0.0005, below the floor of 0.1: the advantage is beta * 0.0005 / 0.1.
        found = group_advantages(rewards, one_group(4), scale="std", ddof=0, eps=0.0, min_std=0.1)
        torch.testing.assert_close(found, f64(1, 1, -1, -1) * beta * 0.005, rtol=1e-9, atol=0)


@given(
    rows=st.lists(st.tuples(st.floats(-10, 10, width=16), st.integers(0, 6), st.integers(-2, 2)), max_size=12),
    baseline=st.booleans(),
    ddof=st.sampled_from([0, 1]),
)
def test_reinforce_plus_plus_advantages_agree_with_a_loop_over_tokens(rows, baseline, ddof):
    rewards, counts, groups = columns(rows, torch.float64, torch.long, torch.long)
    found = reinforce_plus_plus_advantages(rewards, counts, groups, baseline=baseline, ddof=ddof, eps=1e-6)
    values = [r - baseline * statistics.fmean(q for q, _, h in rows if h == g) for r, _, g in rows]
    tokens = [value for value, (_, count, _) in zip(values, rows, strict=True) for _ in range(count)]
    for i, (_, count, _) in enumerate(rows):
        expected = 0.0
        if count:
            expected = (values[i] - statistics.fmean(tokens)) / math.sqrt(spread(tokens, ddof) ** 2 + 1e-6)
        # 1e-15 of rewards up to 10, over a denominator of at least 1e-3
        assert found[i].item() == pytest.approx(expected, rel=1e-8, abs=1e-9)
