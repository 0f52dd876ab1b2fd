"""majority_at_k against every draw written out, and against numbers by hand."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gar.evaluation.metrics import majority_at_k, pass_at_k


def by_all_draws(num_right, wrong_votes, num_abstained, k):
    """The definition: every draw of k samples, its plurality answers, the right one's share of them."""
    votes = ["right"] * num_right + [i for i, count in enumerate(wrong_votes) for _ in range(count)]
    votes += [None] * num_abstained
    shares = []
    for draw in combinations(votes, k):
        counts = Counter(vote for vote in draw if vote is not None)
        first = [vote for vote, count in counts.items() if count == max(counts.values())]
        shares.append(("right" in first) / len(first) if first else 0.0)
    return sum(shares) / len(shares)


@pytest.mark.parametrize(
    ("num_right", "wrong_votes", "num_abstained", "k", "expected"),
    [
        (2, [1], 0, 3, 1.0),
        (1, [1], 0, 2, 0.5),  # a tie of two
        (1, [1, 1], 0, 3, 1 / 3),  # a tie of three
        (0, [2], 1, 2, 0.0),
        (1, [], 3, 4, 1.0),  # those without an answer do not vote
        (0, [], 4, 2, 0.0),  # nobody votes
        (1, [], 3, 2, 0.5),
        (2, [1], 1, 2, 4 / 6),  # 6 draws: RR 1, RW twice a half, RA twice 1, WA 0
    ],
)
def test_majority_at_k_by_hand(num_right, wrong_votes, num_abstained, k, expected):
    assert majority_at_k(num_right, wrong_votes, num_abstained, k) == pytest.approx(expected, abs=1e-15)


counts = st.integers(0, 4)


@given(counts, st.lists(st.integers(1, 3), max_size=3), st.integers(0, 2), st.data())
def test_majority_at_k_is_the_mean_over_all_draws(num_right, wrong_votes, num_abstained, data):
    n = num_right + sum(wrong_votes) + num_abstained
    if n:
        k = data.draw(st.integers(1, n))
        expected = by_all_draws(num_right, wrong_votes, num_abstained, k)
        assert majority_at_k(num_right, wrong_votes, num_abstained, k) == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 64), st.lists(st.integers(1, 20), max_size=6), st.integers(0, 20))
def test_majority_at_1_and_at_2_are_pass_at_1(num_right, wrong_votes, num_abstained):
    n = num_right + sum(wrong_votes) + num_abstained
    if n:
        expected = pass_at_k(n, num_right, 1)
        assert majority_at_k(num_right, wrong_votes, num_abstained, 1) == pytest.approx(expected, abs=1e-12)
        if n > 1 and not num_abstained:
            assert majority_at_k(num_right, wrong_votes, 0, 2) == pytest.approx(expected, abs=1e-12)


@given(st.integers(1, 40), st.lists(st.integers(1, 20), max_size=6), st.integers(0, 20), st.randoms())
def test_majority_at_k_does_not_depend_on_the_order_of_the_others(num_right, wrong_votes, num_abstained, random):
    n = num_right + sum(wrong_votes) + num_abstained
    shuffled = random.sample(wrong_votes, len(wrong_votes))
    k = random.randint(1, n)
    value = majority_at_k(num_right, wrong_votes, num_abstained, k)
    assert 0 <= value <= 1
    assert value == majority_at_k(num_right, shuffled, num_abstained, k)


def test_majority_at_all_samples_is_the_plain_vote():
    assert majority_at_k(13, [12, 7], 0, 32) == 1.0
    assert majority_at_k(12, [13, 7], 0, 32) == 0.0
    assert majority_at_k(12, [12, 8], 0, 32) == 0.5


@pytest.mark.parametrize(("right", "wrong", "k"), [(2, [1], 4), (2, [1], 0), (-1, [3], 1), (1, [-1, 3], 1)])
def test_majority_at_k_refuses_what_cannot_be_drawn(right, wrong, k):
    with pytest.raises(ValueError, match="maj@k needs counts of at least 0 and 1 <= k <= num_samples, got"):
        majority_at_k(right, wrong, 0, k)
