"""pass@k against exact arithmetic, and maj@k against every draw written out."""

from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gar.evaluation.metrics import default_ks, majority_at_k, pass_at_k


def exact(num_samples: int, num_correct: int, k: int) -> Fraction:
    return 1 - Fraction(comb(num_samples - num_correct, k), comb(num_samples, k))


@st.composite
def drawn_counts(draw):
    num_samples = draw(st.integers(1, 400))
    return num_samples, draw(st.integers(0, num_samples)), draw(st.integers(1, num_samples))


@given(drawn_counts())
@example((5, 2, 3))  # of C(5, 3) = 10 draws only one holds no correct sample
@example((4000, 7, 2000))  # binomials beyond the floats
def test_pass_at_k_equals_the_exact_binomials(drawn):
    # A product of at most 4,000 factors, each rounded once: 4,000 * 2^-53 = 4.4e-13. Of 400: 4.4e-14.
    assert abs(Fraction(pass_at_k(*drawn)) - exact(*drawn)) < (1e-12 if drawn[0] > 400 else 1e-13)
    num_samples, num_correct, k = drawn
    assert pass_at_k(num_samples, 0, k) == 0.0
    assert pass_at_k(num_samples, num_samples, k) == 1.0
    assert pass_at_k(num_samples, num_correct, num_samples) == float(num_correct > 0)


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


@settings(max_examples=300)
@given(st.integers(0, 40), st.lists(st.integers(1, 40), max_size=20).map(tuple), st.integers(0, 20))
@example(0, (), 3)
@example(5, (5, 5, 4), 2)
def test_majority_at_k_of_all_samples_needs_no_draws(num_right, wrong_votes, num_abstained):
    n = num_right + sum(wrong_votes) + num_abstained
    if n:
        expected = by_all_draws(num_right, wrong_votes, num_abstained, n)  # one draw
        assert majority_at_k(num_right, wrong_votes, num_abstained, n) == expected


@given(st.integers(0, 4), st.lists(st.integers(1, 3), max_size=3).map(tuple), st.integers(0, 2), st.data())
def test_majority_at_k_is_the_mean_over_all_draws(num_right, wrong_votes, num_abstained, data):
    n = num_right + sum(wrong_votes) + num_abstained
    if n:
        k = data.draw(st.integers(1, n))
        expected = by_all_draws(num_right, wrong_votes, num_abstained, k)
        assert majority_at_k(num_right, wrong_votes, num_abstained, k) == pytest.approx(expected, abs=1e-12)
        one, two = majority_at_k(num_right, wrong_votes, num_abstained, 1), min(2, n)
        assert one == pytest.approx(pass_at_k(n, num_right, 1), abs=1e-12)
        assert num_abstained or majority_at_k(num_right, wrong_votes, 0, two) == pytest.approx(one, abs=1e-12)


def test_pass_at_k_rejects_impossible_counts():
    for arguments in ((4, 2, 5), (4, 2, 0), (4, 2, -1), (0, 0, 1), (4, 5, 1), (4, -1, 1)):
        with pytest.raises(ValueError, match="num_samples"):
            pass_at_k(*arguments)


def test_default_ks_are_powers_of_2_and_the_number_of_samples():
    assert [default_ks(n) for n in (1, 8, 12)] == [(1,), (1, 2, 4, 8), (1, 2, 4, 8, 12)]
