"""The comparison behind `gar eval table`, `gar compare` and `gar report`, against the statistics it is made of."""

import numpy as np
import pytest

from gar.evaluation.paired import compare_paired, verdict
from gar.evaluation.statistics import (
    bootstrap_interval,
    minimum_detectable_effect,
    paired_t_p_value,
    sign_flip_p_value,
)

DIFFERENCES = np.array([0.31, -0.05, 0.12, 0.22, 0.02, -0.11, 0.27])
RATES = np.random.default_rng(0).random((7, 9))


def compare(differences, **options):
    """A method that differs from its reference by these [seeds, problems]."""
    differences = np.array(differences)
    reference = np.zeros_like(differences)
    (result,) = compare_paired([(differences, reference)], **options)
    return result


def test_compare_paired_holds_the_numbers_of_its_seeds():
    rates, reference = RATES + DIFFERENCES[:, None], RATES
    (result,) = compare_paired([(rates, reference)])
    differences = rates - reference
    by_seed = differences.mean(axis=1)
    assert (result.num_seeds, result.num_problems, result.pairs) == (7, 9, "seeds")
    assert (result.score, result.reference) == (rates.mean(), reference.mean())
    assert result.difference == pytest.approx(DIFFERENCES.mean())
    assert (result.low, result.high) == bootstrap_interval(differences)
    assert result.t_p_value == result.holm_p_value == paired_t_p_value(by_seed)
    assert result.permutation_p_value == sign_flip_p_value(by_seed)
    assert result.minimum_detectable_effect == minimum_detectable_effect(by_seed.std(ddof=1), 7)


def test_compare_paired_of_one_seed_tests_the_problems_by_permutation():
    result = compare(DIFFERENCES[None])
    assert (result.num_seeds, result.pairs) == (1, "problems")
    assert result.holm_p_value == sign_flip_p_value(DIFFERENCES)
    assert result.t_p_value == paired_t_p_value(DIFFERENCES)


def test_compare_paired_of_one_seed_makes_no_test_where_it_would_speak_of_methods():
    result = compare(DIFFERENCES[None], test_problems=False)
    assert (result.t_p_value, result.holm_p_value, result.minimum_detectable_effect) == (None, None, None)
    assert (result.difference, result.verdict) == (pytest.approx(DIFFERENCES.mean()), "no test: one seed")
    assert result.low < result.high


def test_compare_paired_of_equal_rates_is_a_tie():
    result = compare([[0.0], [0.0], [0.0]])
    assert (result.holm_p_value, result.permutation_p_value, result.minimum_detectable_effect) == (1.0, 1.0, None)
    assert (result.all_equal, result.low, result.high, result.verdict) == (True, 0.0, 0.0, "no difference shown")


@pytest.mark.parametrize(("num_seeds", "p_value", "words"), [(10, 2 / 1024, "better"), (2, 0.5, "no difference shown")])
def test_compare_paired_without_spread_counts_sign_patterns(num_seeds, p_value, words):
    result = compare([[0.1]] * num_seeds)
    assert (result.t_p_value, result.holm_p_value, result.verdict) == (None, p_value, words)


def test_compare_paired_corrects_together_and_counts_tests_that_are_missing():
    clear = (RATES + DIFFERENCES[:, None], RATES)
    alone, untested = (RATES[:1] + 0.1, RATES[:1]), {"test_problems": False}
    p_value = compare_paired([clear])[0].t_p_value
    first, second, third = compare_paired([clear, alone, clear], **untested)
    assert first.holm_p_value == third.holm_p_value == pytest.approx(2 * p_value)
    assert second.holm_p_value is None
    assert compare_paired([clear], num_tests=5)[0].holm_p_value == pytest.approx(5 * p_value)
    assert compare_paired([]) == []


@pytest.mark.parametrize(
    ("mean_difference", "p_value", "words"),
    [
        (0.1, 0.049, "better"),
        (-0.1, 0.049, "worse"),
        (0.1, 0.05, "no difference shown"),
        (-0.1, 0.7, "no difference shown"),
        (0.0, 0.0, "no difference shown"),
        (0.4, None, "no test: one seed"),
    ],
)
def test_verdict_says_what_was_shown(mean_difference, p_value, words):
    assert verdict(mean_difference, p_value) == words
