"""Each statistic against a second route: SciPy's own test, a brute-force loop, or a simulation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import gar.evaluation.statistics
from gar.evaluation.statistics import (
    bootstrap_interval,
    holm_adjusted,
    mean_and_sd,
    minimum_detectable_effect,
    paired_t_p_value,
    sign_flip_p_value,
)

DIFFERENCES = [0.31, -0.05, 0.12, 0.22, 0.02, -0.11, 0.27]

samples = st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=2, max_size=7)


def test_mean_and_sd_by_hand_take_rounding_for_no_spread():
    assert mean_and_sd([1, 2, 6]) == (3.0, pytest.approx(7**0.5))  # squares 4 + 1 + 9 over 2
    assert mean_and_sd([0.25]) == (0.25, None)
    assert mean_and_sd([0.1 + 0.2, 0.3, 0.3])[1] == 0.0
    assert mean_and_sd([0.3, 0.3 + 1e-6])[1] == pytest.approx(1e-6 / 2**0.5, rel=1e-6)


@given(samples)
def test_paired_t_p_value_is_scipys_except_that_equal_differences_are_no_certainty(differences):
    ours = paired_t_p_value(differences)
    if np.ptp(differences) == 0:  # SciPy gives p = 0 here, and two seeds that gain one response would be a proof
        assert ours == (None if differences[0] else 1.0)
    else:
        reference = np.linspace(0.1, 0.9, len(differences))
        theirs = stats.ttest_rel(reference + differences, reference).pvalue
        assert ours == paired_t_p_value(np.negative(differences)) == pytest.approx(theirs, rel=1e-6)


@given(samples)
def test_sign_flip_p_value_is_the_share_of_all_sign_patterns(differences):
    seen = abs(sum(differences))
    patterns = itertools.product([1, -1], repeat=len(differences))
    sums = [abs(sum(sign * x for sign, x in zip(signs, differences, strict=True))) for signs in patterns]
    assert sign_flip_p_value(differences) == sum(total >= seen - 1e-9 for total in sums) / len(sums)


def test_sign_flip_p_value_counts_ties_that_rounding_hides_from_scipy():
    theirs = stats.permutation_test((DIFFERENCES,), np.mean, permutation_type="samples").pvalue
    assert sign_flip_p_value(DIFFERENCES) == pytest.approx(theirs)
    differences = np.array([-5.0, 5, -7, 8, 5, -7, -7, 8]) / 192 + 0.1 - 0.1
    assert 0 < abs(differences.sum()) < 1e-15  # the exact sum is 0, so every pattern is at least as far
    assert sign_flip_p_value(differences) == 1.0
    theirs = stats.permutation_test((differences,), np.mean, permutation_type="samples", vectorized=True)
    assert theirs.pvalue < 1


def test_sign_flip_p_value_of_many_pairs_is_sampled_and_never_zero():
    assert sign_flip_p_value([0.5] * 40) == 1 / 100_001
    # The exact value by convolution; a hundred thousand patterns have a standard error below 0.0003.
    whole, ways = [round(100 * x) for x in DIFFERENCES * 3], {0: 1}
    for x in whole:
        grown: dict[int, int] = {}
        for total, count in ways.items():
            for signed in (total + x, total - x):
                grown[signed] = grown.get(signed, 0) + count
        ways = grown
    exact = sum(count for total, count in ways.items() if abs(total) >= abs(sum(whole))) / 2 ** len(whole)
    assert sign_flip_p_value(DIFFERENCES * 3) == pytest.approx(exact, abs=0.001)


def test_bootstrap_interval_is_that_of_resampling_by_hand_and_for_one_seed_scipys():
    values = np.random.default_rng(1).normal(0.1, 0.3, size=(5, 20))
    generator = np.random.default_rng(2)
    draws = [(generator.integers(5, size=5), generator.integers(20, size=20)) for _ in range(20_000)]
    means = [values[np.ix_(seeds, problems)].mean() for seeds, problems in draws]
    # Quantiles of twenty thousand draws with standard deviation 0.05: standard error 0.001.
    assert bootstrap_interval(values) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.006)
    assert bootstrap_interval(np.zeros((3, 4))) == (0.0, 0.0)
    coins = np.repeat([[0.0, 1.0]], 148, axis=1)  # of 296 fair coins 131 or fewer are heads in 2.75% of all draws
    assert bootstrap_interval(coins) == pytest.approx((131 / 296, 165 / 296))
    values = np.random.default_rng(3).normal(0, 1, size=200)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", rng=np.random.default_rng(4)).confidence_interval
    assert bootstrap_interval(values[None]) == pytest.approx((theirs.low, theirs.high), abs=0.01)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_adjusted_is_the_closed_bonferroni_test(p_values):
    # A hypothesis falls when Bonferroni rejects every set of hypotheses that holds it.
    everything = range(len(p_values))
    sets = [s for size in range(1, len(p_values) + 1) for s in itertools.combinations(everything, size)]
    expected = [max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in sets if i in s) for i in everything]
    assert holm_adjusted(p_values) == pytest.approx(expected)
    assert holm_adjusted(p_values, len(p_values) + 2) == pytest.approx(holm_adjusted([*p_values, 1, 1])[:-2])


def test_minimum_detectable_effect_is_found_four_times_in_five_and_scales_with_the_spread():
    for num_pairs in (3, 5, 10):
        effect = minimum_detectable_effect(0.2, num_pairs)
        draws = np.random.default_rng(0).normal(effect, 0.2, size=(40_000, num_pairs))
        found = np.mean(stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05)
        assert found == pytest.approx(0.8, abs=0.008)  # standard error 0.002
    assert minimum_detectable_effect(3.0, 10) == pytest.approx(3 * minimum_detectable_effect(1.0, 10))
    assert minimum_detectable_effect(1.0, 10) == pytest.approx(0.996, abs=0.001)  # as in tables of Cohen's d
    assert minimum_detectable_effect(1.0, 10_000) == pytest.approx((1.95996 + 0.84162) / 100, rel=1e-3)  # normal limit


NO_ANSWER = [
    (mean_and_sd, ([],)),
    (mean_and_sd, ([1.0, float("nan")],)),
    (mean_and_sd, ([[1.0, 2.0]],)),
    (paired_t_p_value, ([0.5],)),
    (sign_flip_p_value, ([0.5],)),
    (bootstrap_interval, ([1.0, 2.0],)),
    (bootstrap_interval, (np.zeros((0, 3)),)),
    (bootstrap_interval, ([[float("nan")]],)),
    (holm_adjusted, ([1.5],)),
    (holm_adjusted, ([0.1, 0.2], 1)),
    (minimum_detectable_effect, (0.0, 5)),
    (minimum_detectable_effect, (1.0, 1)),
]


def test_statistics_reject_what_has_no_answer():
    for statistic, arguments in NO_ANSWER:
        with pytest.raises(ValueError, match=r"expected|needs|must"):
            statistic(*arguments)


def test_drawing_in_parts_or_keeping_the_parts_changes_no_number(monkeypatch):
    differences = np.random.default_rng(3).choice([-1.0, 0.0, 1.0], size=(3, 40))
    found = [(bootstrap_interval(differences), sign_flip_p_value(differences[0]))]
    monkeypatch.setattr(gar.evaluation.statistics, "_MOST_KEPT", 0)
    for values_at_once in (2**23, 1234):
        monkeypatch.setattr(gar.evaluation.statistics, "_VALUES_AT_ONCE", values_at_once)
        found.append((bootstrap_interval(differences), sign_flip_p_value(differences[0])))
    assert found[0] == found[1] == found[2]
