"""Rewards and advantages of tokens: attribution and returns, by loops and without tokens."""

import doctest
import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from paper.methods import token_rewards
from paper.methods.token_rewards import (
    attributed_rewards,
    attribution_weights,
    effective_token_counts,
    group_token_advantages,
    last_token_rewards,
    returns_to_go,
)

pytestmark = pytest.mark.paper

# A response: (score, counts) of each token; its outcome; its penalty.
TOKENS = st.lists(st.tuples(st.floats(-100, 100, width=16), st.booleans()), min_size=4, max_size=4)
BATCHES = st.lists(st.tuples(TOKENS, st.floats(-2, 2, width=16), st.sampled_from([0.0, -0.6])), max_size=6)


def columns(batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    scores = torch.tensor([[b for b, _ in tokens] for tokens, *_ in batch], dtype=torch.float64).reshape(-1, 4)
    mask = torch.tensor([[m for _, m in tokens] for tokens, *_ in batch], dtype=torch.bool).reshape(-1, 4)
    outcomes, penalty = (torch.tensor([row[i] for row in batch], dtype=torch.float64) for i in (1, 2))
    return scores, mask, outcomes, penalty


@given(batch=BATCHES, temperature=st.sampled_from([0.3, 1.0, 5.0]))
def test_attributed_rewards_and_returns_agree_with_a_loop(batch, temperature):
    scores, mask, outcomes, penalty = columns(batch)
    weights = attribution_weights(scores, mask, temperature=temperature)
    counts = effective_token_counts(weights)
    found = attributed_rewards(weights, outcomes, penalty, mask)
    returns = returns_to_go(found, mask)
    for i, (tokens, outcome, fine) in enumerate(batch):
        mine = [b for b, counted in tokens if counted]
        std = statistics.pstdev(mine) if mine else 0.0
        powers = [math.exp((b - statistics.fmean(mine)) / (std or 1.0) / temperature) for b in mine]
        shares = iter([power / math.fsum(powers) for power in powers])
        expected = [next(shares) if counted else 0.0 for _, counted in tokens]
        assert weights[i].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-15)
        assert counts[i].item() == pytest.approx(1 / sum(a * a for a in expected) if mine else 0.0, rel=1e-9)
        counted = [t for t, (_, m) in enumerate(tokens) if m]
        rewards = {t: weights[i, t].item() * outcome + (outcome + fine) * (t == counted[-1]) for t in counted}
        assert found[i].tolist() == pytest.approx([rewards.get(t, 0.0) for t in range(4)], abs=1e-14)
        to_go = [sum(r for s, r in rewards.items() if s >= t) if t in rewards else 0.0 for t in range(4)]
        assert returns[i].tolist() == pytest.approx(to_go, abs=1e-13)
        # The first counted token's return is the whole: 2 V + penalty
        assert not counted or returns[i, counted[0]].item() == pytest.approx(2 * outcome + fine, abs=1e-13)


@pytest.mark.parametrize(("responses", "tokens"), [(0, 3), (2, 0), (2, 3)])
def test_token_rewards_without_counted_tokens_are_zero(responses, tokens):
    anything, mask = torch.full((responses, tokens), math.nan), torch.zeros(responses, tokens).bool()
    ones, zeros = torch.ones(responses).double(), torch.zeros(responses, tokens).double()
    weights = attribution_weights(anything, mask)
    assert torch.equal(weights, zeros)
    assert torch.equal(effective_token_counts(weights), torch.zeros(responses).double())
    assert torch.equal(attributed_rewards(anything, ones, ones, mask), zeros)
    assert torch.equal(returns_to_go(anything, mask), zeros)
    assert torch.equal(last_token_rewards(ones, mask), zeros)
    groups = torch.zeros(responses, dtype=torch.long)
    assert torch.equal(group_token_advantages(anything, mask, groups, ddof=1, eps=0.0), zeros)


@given(batch=BATCHES, ddof=st.sampled_from([0, 1]), floor=st.sampled_from([0.0, 0.1]))
def test_group_token_advantages_agree_with_pythons_statistics(batch, ddof, floor):
    values, mask, *_ = columns(batch)
    groups = torch.arange(len(batch)) % 2
    found = group_token_advantages(values, mask, groups, ddof=ddof, eps=1e-4, min_std=floor)
    for i, (tokens, *_) in enumerate(batch):
        mine = [b for others, *_ in batch[i % 2 :: 2] for b, counted in others if counted]
        std = 0.0 if len(mine) <= ddof else statistics.stdev(mine) if ddof else statistics.pstdev(mine)
        for t, (value, counts) in enumerate(tokens):
            expected = (value - statistics.fmean(mine)) / (max(std, floor) + 1e-4) if counts else 0.0
            assert found[i, t].item() == pytest.approx(expected, rel=1e-8, abs=1e-8)
    equal = torch.full((2, 30), 0.1).double()  # 0.1 has no exact mean
    members = torch.ones(2, 30).bool(), torch.tensor([1, 1])
    assert group_token_advantages(equal, *members, ddof=ddof, eps=0.0).eq(0).all()


def test_examples_in_docstrings_print_what_they_say():
    assert doctest.testmod(token_rewards).failed == 0
