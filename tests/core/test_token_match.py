"""Matches of single tokens against loops over all of them, and over all pairings that keep the order."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gar.core.similarity import ResponseTokens, mean_similarity
from gar.core.token_match import ordered_match, ordered_match_shares, token_match
from tests.core.token_groups import INDEX, cosine, group, tokens_of


@pytest.mark.parametrize("memory_bytes", [2**28, 40 * len(INDEX), 90 * len(INDEX)])
def test_token_match_agrees_with_loops(memory_bytes):
    responses, anchor = group(1)
    match = token_match(responses, anchor, memory_bytes=memory_bytes)
    shares = torch.zeros(len(INDEX), dtype=torch.float64)
    for i in range(3):
        rows = (responses.response_index == i).nonzero()[:, 0].tolist()
        table = [[cosine(responses.vectors[t], u) for u in anchor] for t in rows]
        assert match.precision[i].item() == pytest.approx(sum(map(max, table)) / len(table), abs=1e-6)
        columns = list(zip(*table, strict=True))
        assert match.recall[i].item() == pytest.approx(sum(map(max, columns)) / len(columns), abs=1e-6)
        for column in columns:
            shares[rows[column.index(max(column))]] += max(column) / len(columns)
    torch.testing.assert_close(match.recall_shares.double(), shares, atol=1e-6, rtol=0)
    precision = torch.zeros(4).index_add_(0, INDEX, match.precision_shares)
    torch.testing.assert_close(precision, match.precision, atol=1e-6, rtol=0)
    torch.testing.assert_close(match.f_score, (match.recall + match.precision) / 2)
    assert match.scored.tolist() == [True, True, True, False]
    assert match.recall[3] == match.precision[3] == 0


def test_token_match_by_hand():
    # cosines with the anchor's tokens: (1, 0), (0.6, 0.8), and none for the token without direction
    responses = ResponseTokens(torch.tensor([[2.0, 0.0], [3.0, 4.0], [0.0, 0.0]]), torch.tensor([0, 0, 0]), 1)
    match = token_match(responses, torch.tensor([[1.0, 0.0], [0.0, 9.0]]))
    assert match.recall.item() == pytest.approx(0.9)
    assert match.precision.item() == pytest.approx(0.6)
    torch.testing.assert_close(match.recall_shares, torch.tensor([0.5, 0.4, 0.0]))


def test_token_match_gives_ties_to_the_first_token():
    responses = ResponseTokens(torch.tensor([[1.0, 0.0], [5.0, 0.0]]), torch.tensor([0, 0]), 1)
    assert token_match(responses, torch.tensor([[1.0, 0.0]])).recall_shares.tolist() == [1.0, 0.0]


@given(seed=st.integers(0, 10_000))
def test_token_match_ignores_order_and_lengths_of_tokens(seed):
    responses, anchor = group(seed)
    order = torch.randperm(len(INDEX), generator=torch.Generator().manual_seed(seed))
    scales = torch.rand(len(INDEX), 1, generator=torch.Generator().manual_seed(seed)) + 0.1
    other = ResponseTokens((responses.vectors * scales)[order], INDEX[order], 4)
    one, two = token_match(responses, anchor), token_match(other, anchor.flip(0))
    torch.testing.assert_close(one.recall, two.recall, atol=1e-6, rtol=0)
    torch.testing.assert_close(one.precision, two.precision, atol=1e-6, rtol=0)
    torch.testing.assert_close(one.recall_shares[order], two.recall_shares, atol=1e-6, rtol=0)


@pytest.mark.parametrize("match", [token_match, ordered_match])
def test_match_without_a_direction_is_not_scored(match):
    certain = ResponseTokens(torch.tensor([[1e-31, 0.0], [0.0, 1e-29]]), torch.tensor([0, 1]), 2)
    assert match(certain, torch.eye(2)).scored.tolist() == [False, True]
    assert not match(certain, torch.eye(2) * 1e-31).scored.any()


def test_token_match_sees_a_swapped_token_that_a_mean_cannot():
    sound = torch.eye(4)
    flawed = torch.stack([torch.tensor([1.0, 1, 0, 0]), torch.tensor([0.0, 0, 1, 1])])  # the same mean direction
    responses = ResponseTokens(torch.cat([sound, flawed]), torch.tensor([0, 0, 0, 0, 1, 1]), 2)
    torch.testing.assert_close(mean_similarity(responses, sound), torch.ones(2))
    torch.testing.assert_close(token_match(responses, sound).recall, torch.tensor([1.0, 0.5**0.5]))


def test_token_match_without_an_anchor_token_is_not_scored():
    responses, anchor = group()
    match = token_match(responses, anchor[:0])
    assert not match.scored.any()
    assert match.recall.tolist() == match.precision.tolist() == [0.0] * 4


# ---------------------------------------------------------------------------------------------------------- in order


def best_sum(table: list[list[float]]) -> float:
    """Over all pairings that keep the order, tried one by one."""
    rows, columns = range(len(table)), range(len(table[0]))
    return max(
        sum(table[t][s] for t, s in zip(ts, ss, strict=True))
        for size in range(min(len(rows), len(columns)) + 1)
        for ts, ss in itertools.product(itertools.combinations(rows, size), itertools.combinations(columns, size))
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("memory_bytes", [2**28, 40 * 4 * 5])
def test_ordered_match_agrees_with_all_pairings(seed, memory_bytes):
    responses, anchor = group(seed)
    match = ordered_match(responses, anchor, memory_bytes=memory_bytes)
    for i in range(3):
        own = tokens_of(responses, i)
        best = best_sum([[cosine(u, v) for v in anchor] for u in own])
        assert match.recall[i].item() == pytest.approx(best / len(anchor), abs=1e-6)
        assert match.precision[i].item() == pytest.approx(best / len(own), abs=1e-6)
    assert match.scored.tolist() == [True, True, True, False]
    assert match.recall[3] == match.precision[3] == 0


@pytest.mark.parametrize("memory_bytes", [2**28, 40 * 4 * 5])
def test_ordered_match_shares_add_up(memory_bytes):
    responses, anchor = group(2)
    shares = ordered_match_shares(responses, anchor, memory_bytes=memory_bytes)
    found = torch.zeros(4).index_add_(0, INDEX, shares)
    torch.testing.assert_close(found, ordered_match(responses, anchor).recall, atol=1e-6, rtol=0)


def test_ordered_match_shares_by_hand():
    # cosines (1, 0), (0.6, 0.8), (0, 1): the first and the third token are partners of the anchor's
    responses = ResponseTokens(torch.tensor([[2.0, 0.0], [3.0, 4.0], [0.0, 5.0]]), torch.tensor([0, 0, 0]), 1)
    shares = ordered_match_shares(responses, torch.eye(2))
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.0, 0.5]))


def test_ordered_match_sees_steps_that_changed_places_and_repetitions():
    steps = torch.eye(4)
    swapped, repeated = steps[[0, 2, 1, 3]], steps[[0, 1, 1, 3]]
    index = torch.arange(3).repeat_interleave(4)
    match = ordered_match(ResponseTokens(torch.cat([steps, swapped, repeated]), index, 3), steps)
    torch.testing.assert_close(match.recall, torch.tensor([1.0, 0.75, 0.75]))


def test_ordered_match_takes_a_group_s_tokens_in_any_interleaving():
    responses, anchor = group(3)
    order = torch.argsort(INDEX, stable=True)
    sorted_ = ResponseTokens(responses.vectors[order], INDEX[order], 4)
    torch.testing.assert_close(ordered_match(responses, anchor).recall, ordered_match(sorted_, anchor).recall)


def test_ordered_match_without_tokens_is_not_scored():
    responses, anchor = group()
    assert not ordered_match(responses, anchor[:0]).scored.any()
    nothing = ResponseTokens(responses.vectors[:0], INDEX[:0], 2)
    assert ordered_match(nothing, anchor).recall.tolist() == [0.0, 0.0]
    assert ordered_match_shares(nothing, anchor).tolist() == []
