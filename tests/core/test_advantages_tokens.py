"""Advantages over tokens: whitening over the batch, and REINFORCE++; by hand and by plain loops."""

import math
import re
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.core import (
    group_advantages,
    reinforce_plus_plus_advantages,
)
from tests.support.rewards import gradient_aligned_rewards


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def whitened_advantages(values: Tensor, counts: Tensor, *, ddof: int, eps: float) -> Tensor:
    """REINFORCE++ without a baseline, which reads no group."""
    return reinforce_plus_plus_advantages(values, counts, torch.zeros_like(counts), baseline=False, ddof=ddof, eps=eps)


# A response: value, number of tokens, group.
ROWS = st.lists(st.tuples(st.floats(-10, 10, width=16), st.integers(0, 6), st.integers(-2, 2)), max_size=12)


def row_columns(rows) -> tuple[Tensor, Tensor, Tensor]:
    values, counts, groups = zip(*rows, strict=True) if rows else ((), (), ())
    as_ids = (torch.tensor(column, dtype=torch.long) for column in (counts, groups))
    return torch.tensor(values, dtype=torch.float64), *as_ids


def spread(values: list[float], ddof: int) -> float:
    if len(values) <= ddof:
        return 0.0
    return statistics.stdev(values) if ddof else statistics.pstdev(values)


def test_whitened_advantages_weigh_a_response_by_its_tokens():
    # 4 once and 0 three times: mean 1, variance (9 + 3) / 4 = 3. A mean over responses would be 2.
    found = whitened_advantages(f64(4.0, 0.0), torch.tensor([1, 3]), ddof=0, eps=0.0)
    torch.testing.assert_close(found, f64(3.0, -1.0) / math.sqrt(3), rtol=1e-15, atol=0)


def test_reinforce_plus_plus_advantages_by_hand():
    # Groups {2, 0} and {1, 1}, one token each but three for the 0. Without baseline, counted 2, 0, 0, 0, 1, 1: mean
    # 2/3, variance 6/6 - 4/9 = 5/9. With it 1, -1, -1, -1, 0, 0: mean -1/3, variance 4/6 - 1/9 = 5/9.
    rewards, counts, groups = f64(2.0, 1.0, 0.0, 1.0), torch.tensor([1, 1, 3, 1]), torch.tensor([7, 3, 7, 3])
    plain = reinforce_plus_plus_advantages(rewards, counts, groups, baseline=False, ddof=0, eps=0.0)
    torch.testing.assert_close(plain, f64(4, 1, -2, 1) / math.sqrt(5), rtol=1e-14, atol=0)
    based = reinforce_plus_plus_advantages(rewards, counts, groups, baseline=True, ddof=0, eps=0.0)
    torch.testing.assert_close(based, f64(4, 1, -2, 1) / math.sqrt(5), rtol=1e-14, atol=0)
    # The baseline matters once a problem is easier than another: 2 and 0 against 3 and 3.
    harder = reinforce_plus_plus_advantages(f64(2.0, 3.0, 0.0, 3.0), counts, groups, baseline=True, ddof=0, eps=0.0)
    torch.testing.assert_close(harder, based, rtol=1e-14, atol=0)
    plain = reinforce_plus_plus_advantages(f64(2.0, 3.0, 0.0, 3.0), counts, groups, baseline=False, ddof=0, eps=0.0)
    assert plain[1] > plain[0] > 0 > plain[2]


@given(rows=ROWS, baseline=st.booleans(), ddof=st.sampled_from([0, 1]))
def test_reinforce_plus_plus_advantages_agree_with_a_loop_over_tokens(rows, baseline, ddof):
    rewards, counts, groups = row_columns(rows)
    found = reinforce_plus_plus_advantages(rewards, counts, groups, baseline=baseline, ddof=ddof, eps=1e-6)
    values = [r - baseline * statistics.fmean(q for q, _, h in rows if h == g) for r, _, g in rows]
    tokens = [value for value, (_, count, _) in zip(values, rows, strict=True) for _ in range(count)]
    for i, (_, count, _) in enumerate(rows):
        expected = 0.0
        if count:
            expected = (values[i] - statistics.fmean(tokens)) / math.sqrt(spread(tokens, ddof) ** 2 + 1e-6)
        # 1e-15 of rewards up to 10, over a denominator of at least 1e-3
        assert found[i].item() == pytest.approx(expected, rel=1e-8, abs=1e-9)


@given(rows=ROWS)
def test_whitened_advantages_have_mean_0_and_variance_1_over_tokens(rows):
    values, counts, _ = row_columns(rows)
    found = whitened_advantages(values, counts, ddof=0, eps=0.0)
    tokens = found.repeat_interleave(counts)
    if tokens.numel() and len(set(values[counts > 0].tolist())) > 1:
        assert tokens.mean().item() == pytest.approx(0.0, abs=1e-9)
        assert tokens.square().mean().item() == pytest.approx(1.0, rel=1e-9)
    else:
        assert found.eq(0).all()


@given(rows=ROWS, shift=st.sampled_from([-3.0, 0.5]), scale=st.sampled_from([0.25, 8.0]))
def test_whitened_advantages_ignore_shift_and_scale(rows, shift, scale):
    values, counts, _ = row_columns(rows)
    found = whitened_advantages(values * scale + shift, counts, ddof=1, eps=0.0)
    # Half-precision values up to 10, so that scaling and shifting are exact to 1e-15
    torch.testing.assert_close(found, whitened_advantages(values, counts, ddof=1, eps=0.0), rtol=1e-7, atol=1e-9)


@given(rows=ROWS, baseline=st.booleans(), order=st.randoms(use_true_random=False))
def test_reinforce_plus_plus_advantages_do_not_know_the_rank_or_a_groups_name(rows, baseline, order):
    rewards, counts, groups = row_columns(rows)
    moved = list(range(len(rows)))
    order.shuffle(moved)  # as ranks are gathered
    settings = {"baseline": baseline, "ddof": 0, "eps": 1e-6}
    found = reinforce_plus_plus_advantages(rewards[moved], counts[moved], 100 - groups[moved], **settings)
    expected = reinforce_plus_plus_advantages(rewards, counts, groups, **settings)[moved]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("eps", [0.0, 1e-8])
@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("reward", [0.0, 0.1, -0.6, 1.0005])
def test_advantages_of_equal_values_are_exactly_zero(reward, ddof, eps):
    rewards, counts, groups = torch.full((6,), reward), torch.tensor([3, 1, 4, 1, 5, 9]), torch.arange(6) % 2
    assert whitened_advantages(rewards, counts, ddof=ddof, eps=eps).eq(0).all()
    for baseline in (False, True):
        found = reinforce_plus_plus_advantages(rewards, counts, groups, baseline=baseline, ddof=ddof, eps=eps)
        assert found.eq(0).all()


@pytest.mark.parametrize("value", [0.1, -0.7])
def test_whitened_advantages_of_equal_values_are_zero_though_their_mean_rounds(value):
    for tokens in range(2, 40):
        counts = torch.tensor([1, tokens])
        assert whitened_advantages(f64(value, value), counts, ddof=0, eps=0.0).eq(0).all()


@pytest.mark.parametrize("ddof", [0, 1])
def test_advantages_of_one_token_are_exactly_zero(ddof):
    assert whitened_advantages(f64(3.0), torch.tensor([1]), ddof=ddof, eps=0.0).tolist() == [0.0]


@pytest.mark.parametrize("responses", [0, 2])
def test_advantages_without_counted_tokens_are_zero(responses):
    none = torch.zeros(responses, dtype=torch.long)
    found = whitened_advantages(torch.full((responses,), 3.0), none, ddof=1, eps=0.0)
    assert torch.equal(found, torch.zeros(responses))


def test_reinforce_plus_plus_advantages_leave_a_small_bonus_small():
    """GRPO blows a bonus of 0.0005 in an all-correct group up to 1; whitening over a mixed batch does not."""
    eligible = torch.tensor([True, True, True, False])
    groups = torch.tensor([0, 0, 1, 1])
    rewards = gradient_aligned_rewards(eligible, f64(0.862, 0.860, 0.5, 0.5), torch.zeros(4).double(), groups)
    by_grpo = group_advantages(rewards, groups, scale="std", ddof=0, eps=1e-6)
    by_whitening = reinforce_plus_plus_advantages(rewards, torch.ones(4).long(), groups, baseline=True, ddof=0, eps=0.0)
    torch.testing.assert_close(by_grpo, f64(1, -1, 1, -1), rtol=0, atol=5e-3)
    # 0.00025 and 0.5 over a std of sqrt((0.00025^2 + 0.5^2) / 2) = 0.5 / sqrt(2), but for 1e-7.
    torch.testing.assert_close(by_whitening, f64(5e-4, -5e-4, 1, -1) * math.sqrt(2), rtol=1e-6, atol=0)


def test_reinforce_plus_plus_advantages_of_an_all_correct_batch_blow_a_small_spread_up():
    """The amplification trap holds under REINFORCE++ too: rewards between 1 and 1.0035 get advantages of up to 1.5."""
    alignment, groups = f64(0.614, 0.608, 0.604, 0.602), torch.zeros(4).long()
    rewards = gradient_aligned_rewards(torch.ones(4).bool(), alignment, torch.zeros(4).double(), groups)
    torch.testing.assert_close(rewards, f64(1.0035, 1.0005, 1.0, 1.0), rtol=1e-12, atol=0)
    # Mean 1.001, squares (2.5^2 + 0.5^2 + 2) 1e-6 = 8.5e-6, over ddof 1 and with eps 1e-8: a std of 0.0016862.
    expected = f64(0.0025, -0.0005, -0.001, -0.001) / math.sqrt(8.5e-6 / 3 + 1e-8)
    for baseline in (False, True):
        found = reinforce_plus_plus_advantages(
            rewards, torch.ones(4).long(), groups, baseline=baseline, ddof=1, eps=1e-8
        )
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
        assert found[0].item() == pytest.approx(1.48, abs=0.005)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_advantages_refuse_a_counted_value_that_is_not_finite(value):
    message = re.escape(f"must be finite, got {value} at response 1")
    rewards, ones = f64(0.0, value), torch.ones(2).long()
    for baseline in (False, True):
        with pytest.raises(ValueError, match=f"rewards {message}"):
            reinforce_plus_plus_advantages(rewards, ones, ones, baseline=baseline, ddof=0, eps=0.0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_counts": torch.ones(3).long()}, "token_counts must have shape (2,), got (3,)"),
        ({"group_index": torch.ones(3).long()}, "group_index must have shape (2,), got (3,)"),
        ({"token_counts": torch.tensor([1, -2])}, "token_counts must not be negative, got -2"),
        ({"ddof": 2}, "ddof must be 0 or 1 and eps not negative, got ddof=2, eps=0.0"),
        ({"eps": -1e-8}, "got ddof=0, eps=-1e-08"),
        ({"eps": math.nan}, "got ddof=0, eps=nan"),
    ],
)
def test_reinforce_plus_plus_advantages_refuse(changes, message):
    arguments = {"rewards": f64(0.0, 1.0), "token_counts": torch.ones(2).long(), "group_index": torch.ones(2).long()}
    arguments |= {"baseline": True, "ddof": 0, "eps": 0.0}
    reinforce_plus_plus_advantages(**arguments)
    with pytest.raises(ValueError, match=re.escape(message)):
        reinforce_plus_plus_advantages(**arguments | changes)
