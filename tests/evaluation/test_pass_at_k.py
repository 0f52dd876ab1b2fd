"""pass_at_k against exact arithmetic."""

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gar.evaluation.metrics import pass_at_k


def exact(num_samples: int, num_correct: int, k: int) -> Fraction:
    return 1 - Fraction(comb(num_samples - num_correct, k), comb(num_samples, k))


@st.composite
def counts(draw, most=400):
    num_samples = draw(st.integers(1, most))
    return num_samples, draw(st.integers(0, num_samples)), draw(st.integers(1, num_samples))


def test_pass_at_k_of_a_worked_example():
    # 5 samples, 2 correct, draws of 3: of C(5, 3) = 10 draws only one, {the 3 wrong ones}, holds no correct sample.
    assert pass_at_k(5, 2, 3) == pytest.approx(0.9, abs=1e-15)


def test_pass_at_k_is_the_share_of_draws_with_a_correct_sample():
    correct = [True, True, False, False, False, False]
    draws = list(combinations(correct, 3))
    assert pass_at_k(6, 2, 3) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-15)


@given(counts())
def test_pass_at_k_equals_the_exact_binomials(drawn):
    # A product of at most 400 factors, each rounded once: 400 * 2^-53 = 4.4e-14.
    assert abs(Fraction(pass_at_k(*drawn)) - exact(*drawn)) < 1e-13


def test_pass_at_k_stays_exact_where_binomials_leave_the_floats():
    assert pass_at_k(4000, 7, 2000) == pytest.approx(float(exact(4000, 7, 2000)), abs=1e-12)


@given(counts())
def test_pass_at_k_is_exact_at_its_ends(drawn):
    num_samples, num_correct, k = drawn
    assert pass_at_k(num_samples, 0, k) == 0.0
    assert pass_at_k(num_samples, num_samples, k) == 1.0
    assert pass_at_k(num_samples, num_correct, num_samples) == float(num_correct > 0)
    assert pass_at_k(num_samples, num_correct, 1) == pytest.approx(num_correct / num_samples, abs=1e-13)


@given(counts(most=60))
def test_pass_at_k_grows_with_k_and_with_the_number_correct(drawn):
    num_samples, num_correct, k = drawn
    value = pass_at_k(num_samples, num_correct, k)
    if k < num_samples:
        assert pass_at_k(num_samples, num_correct, k + 1) >= value - 1e-15
    if num_correct < num_samples:
        assert pass_at_k(num_samples, num_correct + 1, k) >= value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 2, 5), "1 <= k <= num_samples, got k = 5 and num_samples = 4"),
        ((4, 2, 0), "got k = 0"),
        ((4, 2, -1), "got k = -1"),
        ((0, 0, 1), "got k = 1 and num_samples = 0"),
        ((4, 5, 1), r"num_correct must lie in \[0, num_samples = 4\], got 5"),
        ((4, -1, 1), "got -1"),
    ],
)
def test_pass_at_k_refuses_impossible_counts(arguments, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k(*arguments)
