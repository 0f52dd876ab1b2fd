"""Advantages over tokens: whitening over the batch, and REINFORCE++; by hand and by plain loops."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gar.core import (
    reinforce_plus_plus_advantages,
)


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


@pytest.mark.parametrize("responses", [0, 2])
def test_advantages_without_counted_tokens_are_zero(responses):
    none = torch.zeros(responses, dtype=torch.long)
    found = whitened_advantages(torch.full((responses,), 3.0), none, ddof=1, eps=0.0)
    assert torch.equal(found, torch.zeros(responses))
