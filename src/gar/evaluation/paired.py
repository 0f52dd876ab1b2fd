"""Is one model or method better than another on the same problems? The one comparison behind every table and verdict.

`gar eval table`, `gar compare` and `gar report` all use it. It compares differences, method minus reference, in which
the difficulty of a problem or a seed cancels. It knows nothing of runs or files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gar.evaluation.statistics import (
    LEVEL,
    bootstrap_interval,
    holm_adjusted,
    mean_and_sd,
    minimum_detectable_effect,
    paired_t_p_value,
    sign_flip_p_value,
)
from gar.evaluation.text_tables import NONE

VerdictWords = Literal["better", "worse", "no difference shown", "no test: one seed"]
Rates = NDArray[np.float64]
"""pass@k or maj@k, [seeds, problems]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedComparison:
    """A method compared with a reference on the same problems.

    Attributes:
        num_problems: Paired problems.
        num_seeds: Paired seeds.
        score: Mean of the method over seeds and problems.
        reference: The same mean of the reference.
        difference: Mean difference of the pairs.
        low: Lower end of the 95 % bootstrap interval of the difference.
        high: Upper end.
        all_equal: All differences are the same number, so that the interval has no width and says nothing.
        pairs: The pairs of the tests: seeds where there are several, else problems.
        t_p_value: Two-sided paired t-test. None for one pair, and where all pairs differ by one number other than 0.
        permutation_p_value: Two-sided, by flipping signs. None for one pair.
        holm_p_value: The p-value that counts, corrected for all comparisons made together. None without a test.
        minimum_detectable_effect: The true difference that a test of this many pairs with this spread detects four
            times in five. None without spread.
        verdict: The conclusion, by `holm_p_value`.
    """

    num_problems: int
    num_seeds: int
    score: float
    reference: float
    difference: float
    low: float
    high: float
    all_equal: bool
    pairs: Literal["problems", "seeds"]
    t_p_value: float | None
    permutation_p_value: float | None
    holm_p_value: float | None
    minimum_detectable_effect: float | None
    verdict: VerdictWords


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """A method, or a group of runs, against a reference, on one evaluation set at one k.

    Attributes:
        label: The method.
        against: The reference; "before" for the same runs before training.
        set_name: Evaluation set.
        k: The k of pass@k.
        result: The comparison.
    """

    label: str
    against: str
    set_name: str
    k: int
    result: PairedComparison


def compare_paired(
    pairs: Sequence[tuple[Rates, Rates]], *, test_problems: bool = True, num_tests: int | None = None
) -> list[PairedComparison]:
    """Compare methods with references, and correct for all the comparisons together.

    With several seeds the pairs are seeds, and the t-test decides, as in the paper. With one seed the pairs are
    problems, the permutation test decides, and the result applies only to these two models, not to their training
    methods.

    Args:
        pairs: Rates of a method and of its reference, each [seeds, problems], the same seeds and problems in both.
        test_problems: With one seed, test over the problems. False: no test with one seed.
        num_tests: Comparisons to correct for, if planned ones are missing. None counts `pairs`.

    Returns:
        A comparison per pair, in their order.

    Raises:
        ValueError: Rates that are not finite or not [seeds, problems], or fewer tests than p-values.
    """
    results = [_uncorrected(np.asarray(rates), np.asarray(reference), test_problems) for rates, reference in pairs]
    holm = iter(
        holm_adjusted([result.holm_p_value for result in results if result.holm_p_value is not None], num_tests)
    )
    corrected = [None if result.holm_p_value is None else next(holm) for result in results]
    return [
        replace(result, holm_p_value=p_value, verdict=verdict(result.difference, p_value))
        for result, p_value in zip(results, corrected, strict=True)
    ]


def verdict(mean_difference: float, p_value: float | None) -> VerdictWords:
    """The conclusion about a difference, at the level 0.05. A tie is never a win.

    Args:
        mean_difference: Method minus reference; higher is better.
        p_value: Corrected for the number of tests; None without a test.
    """
    if p_value is None:
        return "no test: one seed"
    if p_value >= LEVEL or mean_difference == 0:
        return "no difference shown"
    return "better" if mean_difference > 0 else "worse"


def p_text(p_value: float | None) -> str:
    """A p-value with three digits, never as zero: `0.031`, `<0.001`; `-` without a test."""
    if p_value is None:
        return NONE
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def result_cells(result: PairedComparison) -> tuple[str, str, str, str, str]:
    """Difference, interval, corrected p-value, detectable effect and verdict, for a table."""
    effect = result.minimum_detectable_effect
    return (
        f"{result.difference:+.3f}",
        f"{result.low:+.3f} to {result.high:+.3f}",
        p_text(result.holm_p_value),
        NONE if effect is None else f"{effect:.3f}",
        result.verdict,
    )


def _uncorrected(rates: Rates, reference: Rates, test_problems: bool) -> PairedComparison:
    """A comparison with its uncorrected p-value and no verdict yet."""
    differences = rates - reference
    low, high = bootstrap_interval(differences)
    one_seed = len(differences) == 1
    values = differences[0] if one_seed and test_problems else differences.mean(axis=1)
    mean, sd = mean_and_sd(values)
    by_t, by_flips = (None, None) if sd is None else (paired_t_p_value(values), sign_flip_p_value(values))
    return PairedComparison(
        num_problems=differences.shape[1],
        num_seeds=differences.shape[0],
        score=float(rates.mean()),
        reference=float(reference.mean()),
        difference=mean,
        low=low,
        high=high,
        all_equal=not np.ptp(differences),
        pairs="problems" if one_seed else "seeds",
        t_p_value=by_t,
        permutation_p_value=by_flips,
        holm_p_value=by_flips if one_seed or by_t is None else by_t,
        minimum_detectable_effect=minimum_detectable_effect(sd, len(values)) if sd else None,
        verdict="no test: one seed",
    )
