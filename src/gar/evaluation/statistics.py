"""Statistics of paired differences, method minus reference: means, p-values, intervals and detectable effects."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_EXACT_PAIRS = 16
_NUM_FLIPS, _NUM_RESAMPLES = 100_000, 10_000
LEVEL = 0.05
"""Significance level of every test, two-sided. Intervals cover the rest."""
_POWER = 0.8
_VALUES_AT_ONCE = 2**16  # random numbers in memory at one time: few enough for a cache, which is three times as fast
_MOST_KEPT = 5_000  # problems: 50 MB
_ROUNDING = 1e-9  # differences of averaged shares that agree to this, relative to their size, are equal


def mean_and_sd(values: ArrayLike) -> tuple[float, float | None]:
    """Mean and Bessel's standard deviation. Exactly 0 if all values agree to rounding, None for one value.

    Raises:
        ValueError: There is no value, or one is not finite.
    """
    numbers = _finite(values)
    mean = float(numbers.mean())
    if len(numbers) == 1:
        return mean, None
    spread = float(np.ptp(numbers))
    return mean, 0.0 if spread <= _ROUNDING * float(np.abs(numbers).max()) else float(numbers.std(ddof=1))


def paired_t_p_value(differences: ArrayLike) -> float | None:
    """Two-sided paired t-test, as the paper reports over ten seeds.

        t = mean / (sd / sqrt(n)),  p = 2 P(T_{n-1} > |t|)

    Args:
        differences: [pairs], at least two.

    Returns:
        p. Exactly 1 if every difference is 0. None if all differences are equal but not 0, since then sd is 0.

    Raises:
        ValueError: Fewer than two pairs.

    Example:
        >>> round(paired_t_p_value([1.0, 2.0, 3.0]), 4)
        0.0742
    """
    values = _finite(differences, least=2)
    mean, sd = mean_and_sd(values)
    if not sd:
        return None if mean else 1.0
    from scipy.special import stdtr  # `scipy.stats` takes a second to import

    t = mean / (sd / math.sqrt(len(values)))
    return 2 * float(stdtr(len(values) - 1, -abs(t)))


def sign_flip_p_value(differences: ArrayLike) -> float:
    """Two-sided paired permutation test: if the methods were equal, both signs of a difference would be equally likely.

    p is the share of sign patterns with a mean at least as far from 0 as the observed mean. Up to 16 pairs it is
    exact, over all 2^n patterns. Beyond that, random patterns and the observed one are used, so that p is never 0.
    n pairs cannot give a p below 2^(1-n): five seeds never fall below 0.0625.

    `scipy.stats.permutation_test` is not used: it misses ties where differences add up to 0 except for rounding, and
    takes 3 to 70 times as long.

    Raises:
        ValueError: Fewer than two pairs.

    Example:
        >>> sign_flip_p_value([1.0, 2.0, 3.0])
        0.25
    """
    values = _finite(differences, least=2)
    # Sums of the same numbers differ by rounding, so a tie with the observed sum has a margin.
    n = len(values)
    least = abs(values.sum()) - _ROUNDING * np.abs(values).sum()
    if n <= _EXACT_PAIRS:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return int(np.sum(np.abs(signs @ values) >= least)) / 2**n
    generator, extreme = np.random.default_rng(0), 0
    for size in _parts(_NUM_FLIPS, n):
        signs = generator.choice([-1.0, 1.0], size=(size, n))
        extreme += int(np.sum(np.abs(signs @ values) >= least))
    return (extreme + 1) / (_NUM_FLIPS + 1)


def bootstrap_interval(differences: ArrayLike) -> tuple[float, float]:
    """95% percentile interval of the mean difference, from 10,000 resamples over seeds and problems at once.

    Every resample draws seeds and problems with replacement, the same problems for all its seeds. With one seed the
    interval covers only the choice of problems. Few seeds make it too narrow.

    Raises:
        ValueError: Not two axes, one of them empty, or a difference that is not finite.

    References:
        Owen 2007, The pigeonhole bootstrap, arXiv 0712.1111: for such crossed data the interval errs on the wide side.
    """
    values = np.asarray(differences, dtype=float)
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise ValueError(f"differences must be finite numbers [seeds, problems], got shape {values.shape}")
    num_seeds, num_problems = values.shape
    draws = _kept_resamples if num_problems <= _MOST_KEPT else _resamples
    parts = [
        np.sum((by_seed @ values) * (by_problem.astype(float) / num_problems), axis=1)
        for by_seed, by_problem in draws(num_seeds, num_problems)
    ]
    means = np.concatenate(parts)
    low, high = np.quantile(means, [(1 - 0.95) / 2, (1 + 0.95) / 2])
    return float(low), float(high)


def _resamples(num_seeds: int, num_problems: int) -> Iterator[tuple[NDArray[np.float64], NDArray[np.uint8]]]:
    """Some resamples at a time: the shares of the seeds, and how often each problem is drawn."""
    generator, start = np.random.default_rng(0), 0
    by_seed = generator.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=_NUM_RESAMPLES) / num_seeds
    for size in _parts(_NUM_RESAMPLES, num_problems):
        by_problem = generator.multinomial(num_problems, np.full(num_problems, 1 / num_problems), size=size)
        yield by_seed[start : start + size], by_problem.astype(np.uint8)  # no problem is drawn 256 times
        start += size


@lru_cache(maxsize=1)
def _kept_resamples(num_seeds: int, num_problems: int) -> list[tuple[NDArray[np.float64], NDArray[np.uint8]]]:
    """All of them, since drawing takes most of the time and the measures of a table share them."""
    return list(_resamples(num_seeds, num_problems))


def holm_adjusted(p_values: Sequence[float], num_tests: int | None = None) -> list[float]:
    """p-values corrected for several tests by Holm's step-down method, so that the level holds for all together.

        adjusted p of rank i = max over ranks j <= i of min(1, (m - j + 1) p_j),  ranks from the smallest

    Args:
        p_values: In any order.
        num_tests: m, if planned tests are missing. None counts the values.

    Returns:
        Adjusted values, in the order of `p_values`.

    Raises:
        ValueError: A value outside [0, 1], or more values than tests.

    Example:
        >>> holm_adjusted([0.04, 0.01, 0.02])
        [0.04, 0.03, 0.04]
    """
    m = len(p_values) if num_tests is None else num_tests
    if len(p_values) > m or not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"expected at most num_tests = {m} p-values in [0, 1], got {list(p_values)}")
    # From the smallest p-value on: each is multiplied by the number of tests left, and none is below one before it.
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (m - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def minimum_detectable_effect(sd: float, num_pairs: int) -> float:
    """The true mean difference that a two-sided paired t-test at level 0.05 detects with 80% power.

    Solves 0.8 = P(|T| > t_{0.975}) for the noncentrality effect / (sd / sqrt(n)) of T. A smaller difference may
    exist and go unseen.

    Args:
        sd: Standard deviation of the differences.
        num_pairs: n, at least two.

    Raises:
        ValueError: sd <= 0, or fewer than two pairs.

    Example:
        >>> round(minimum_detectable_effect(1.0, 10), 3)
        0.996
    """
    if sd <= 0 or num_pairs < 2:
        raise ValueError(f"needs sd > 0 and num_pairs >= 2, got sd {sd} and num_pairs {num_pairs}")
    from scipy import optimize, special  # as above

    freedom = num_pairs - 1
    critical = -float(special.stdtrit(freedom, LEVEL / 2))

    def power(noncentrality: float) -> float:
        # P(T < -c) by symmetry: SciPy's cdf is NaN for some noncentralities there.
        inside = special.nctdtr(freedom, noncentrality, critical) + special.nctdtr(freedom, -noncentrality, critical)
        return 2 - float(inside)

    # Power grows with the noncentrality: double the upper end until it suffices, then find the root between.
    high = critical
    while power(high) < _POWER:
        high *= 2
    noncentrality: Any = optimize.brentq(lambda value: power(value) - _POWER, 0.0, high, xtol=1e-14)
    return noncentrality * sd / math.sqrt(num_pairs)


def _parts(num_rows: int, num_columns: int) -> list[int]:
    """Sizes of the parts in which to draw the rows, in bounded memory."""
    most = max(1, _VALUES_AT_ONCE // num_columns)
    return [min(most, num_rows - start) for start in range(0, num_rows, most)]


def _finite(values: ArrayLike, least: int = 1) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=float)
    if numbers.ndim != 1 or numbers.size < least or not np.isfinite(numbers).all():
        raise ValueError(f"expected {least} or more finite numbers, got {np.array2string(numbers, threshold=8)}")
    return numbers
