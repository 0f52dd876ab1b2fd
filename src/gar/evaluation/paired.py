"""Is one model or method better than another on the same problems? The one contrast behind every table and verdict.

`gar eval table`, `gar compare` and `gar report` all use it. It compares differences, method minus reference, in which
the difficulty of a problem or a seed cancels. It knows nothing of runs or files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gar.evaluation.metrics import Measure, rate
from gar.evaluation.statistics import (
    LEVEL,
    bootstrap_interval,
    holm_adjusted,
    mean_and_sd,
    minimum_detectable_effect,
    paired_t_p_value,
    sign_flip_p_value,
)
from gar.records import EvaluatedSet

NO_TEST, NOT_SHOWN = "no test: one seed", "no difference shown"
Measures = Mapping[str, Sequence[tuple[Measure, int]]]
"""By set: pass@k as ("pass", k), and maj@k as ("majority", k)."""
_KEY = ("seed", "problem_id")
_COUNTS = ["label", "seed", "set_name", "problem_id", "num_samples", "num_correct", "wrong_votes"]
_TESTS = ["p_t", "p_permutation", "detectable", "p"]
_COLUMNS = [
    "label", "against", "set_name", "measure", "k", "num_seeds", "num_problems", "pairs", "score", "reference",
    "difference", "low", "high", "all_equal", *_TESTS,
]  # fmt: skip  # a list of names


def problem_counts(results: Iterable[tuple[str, Any, str, EvaluatedSet]]) -> pd.DataFrame:
    """The counts that `contrasts` takes, with a row for each problem of a set, seed and method.

    `results` are label, seed, set name, and the result on that set. Votes for wrong answers are needed only for maj@k.
    """
    rows = [
        (label, seed, set_name, each.id, result.num_samples, each.num_correct, each.wrong_votes or ())
        for label, seed, set_name, result in results
        for each in result.problems
    ]
    return pd.DataFrame(rows, columns=_COUNTS)


def contrasts(
    counts: pd.DataFrame,
    *,
    against: Mapping[str, Sequence[str]],
    measures: Measures,
    pair_by: Literal["seed", "seed or problem"] = "seed or problem",
    family: Sequence[str] = ("measure", "k"),
    num_tests: int | None = None,
) -> pd.DataFrame:
    """Compare methods with references on the problems and seeds that both have.

    With several seeds the pairs of a test are seeds, and the t-test decides, as in the paper. With one seed the pairs
    are problems, the permutation test decides, and the result applies to these two models, not to their training
    methods.

    Args:
        counts: As `problem_counts`. Equal seeds of a method and its reference pair.
        against: The methods, each with its references.
        measures: What to compare on each set. Seeds with fewer than k samples are left out.
        pair_by: "seed" makes no test with one seed.
        family: Contrasts that agree in these columns are corrected together, by Holm.
        num_tests: The planned number of contrasts in a family, if some are missing. None counts those that are there.

    Returns:
        A row for each method, reference, set and measure that can be compared, in this order: `label`, `against`,
        `set_name`, `measure`, `k`, the paired `num_seeds` and `num_problems`, `pairs` ("seeds" or "problems"),
        the means `score` and `reference`, `difference` with its 95% bootstrap interval `low` to `high`, `all_equal`
        if all differences are one number, so that the interval is empty, `p_t` and `p_permutation` of both tests,
        `p` (the one that decides), `p_corrected`, `detectable` (the true difference found with 80% power), `verdict`.
        NaN marks a test that was not made.

    Example:
        >>> from gar.records import ProblemCount
        >>> test = EvaluatedSet(pass_at={}, num_samples=4, problems=[ProblemCount(id="q", num_correct=1)])
        >>> results = [(name, seed, "test", test) for seed in (0, 1, 2) for name in ("grpo", "gar-grpo")]
        >>> both = contrasts(problem_counts(results), against={"gar-grpo": ["grpo"]}, measures={"test": [("pass", 1)]})
        >>> both[["difference", "p", "p_corrected", "verdict"]].values.tolist()
        [[0.0, 1.0, 1.0, 'no difference shown']]
    """
    rows = list(_uncorrected(counts, against, measures, pair_by == "seed or problem"))
    table = pd.DataFrame(rows, columns=_COLUMNS).astype(dict.fromkeys(_TESTS, float))
    table["p_corrected"] = np.nan
    for _, part in table[table["p"].notna()].groupby([*family], sort=False):
        table.loc[part.index, "p_corrected"] = holm_adjusted(part["p"].tolist(), num_tests)
    table["verdict"] = [verdict(*each) for each in zip(table["difference"], table["p_corrected"], strict=True)]
    return table


def scores(counts: pd.DataFrame, *, measures: Measures, intervals: bool = False) -> pd.DataFrame:
    """The mean of every method on every set: `label`, `set_name`, `measure`, `k`, `num_seeds`, `num_problems`, `mean`.

    `sd` is Bessel's over seeds, NaN for one seed. With `intervals`, `low` and `high` are the 95% bootstrap interval
    of the mean over seeds and problems, NaN if all rates are equal.
    """
    rows = []
    for label, set_name, part in _parts(counts):
        for measure, k in measures.get(set_name, ()):
            rates = _rates(part, measure, k)
            ends = bootstrap_interval(rates) if intervals and np.ptp(rates) else (np.nan, np.nan)
            rows.append((label, set_name, measure, k, *rates.shape, *mean_and_sd(rates.mean(axis=1)), *ends))
    names = ["label", "set_name", "measure", "k", "num_seeds", "num_problems", "mean", "sd", "low", "high"]
    return pd.DataFrame(rows, columns=names).astype({"sd": float})


def verdict(difference: float, p_corrected: float) -> str:
    """The conclusion about a difference, higher is better, at the level 0.05. A tie is never a win, NaN no test."""
    if np.isnan(p_corrected):
        return NO_TEST
    if p_corrected >= LEVEL or difference == 0:
        return NOT_SHOWN
    return "better" if difference > 0 else "worse"


def _uncorrected(
    counts: pd.DataFrame, against: Mapping[str, Sequence[str]], measures: Measures, test_problems: bool
) -> Iterator[tuple[Any, ...]]:
    parts = {(label, set_name): part for label, set_name, part in _parts(counts)}
    for label, other in ((label, other) for label, others in against.items() for other in others):
        for set_name, columns in measures.items():
            sides = parts.get((label, set_name)), parts.get((other, set_name))
            if sides[0] is None or sides[1] is None:
                continue
            for measure, k in columns:
                both = sides[0].merge(sides[1], on=list(_KEY), suffixes=("", "_reference"))
                both = both.query(f"num_samples >= {k} and num_samples_reference >= {k}")
                rates = [_rates(both, measure, k, suffix) for suffix in ("", "_reference")]
                if rates[0].size:
                    yield label, other, set_name, measure, k, *_difference(rates[0], rates[1], test_problems)


def _difference(rates: NDArray[np.float64], reference: NDArray[np.float64], test_problems: bool) -> tuple[Any, ...]:
    """The columns from `num_seeds` to `p`, from rates [seeds, problems]."""
    differences = rates - reference
    # Seeds are the pairs if there are several: problems of one seed share its weights, and are not independent.
    one_seed = len(differences) == 1
    values = differences[0] if one_seed and test_problems else differences.mean(axis=1)
    mean, sd = mean_and_sd(values)
    by_t, by_flips = (None, None) if sd is None else (paired_t_p_value(values), sign_flip_p_value(values))
    detectable = minimum_detectable_effect(sd, len(values)) if sd else None
    decides = by_flips if one_seed or by_t is None else by_t
    ends, pairs = bootstrap_interval(differences), "problems" if one_seed else "seeds"
    numbers = float(rates.mean()), float(reference.mean()), mean, *ends, not np.ptp(differences)
    return *differences.shape, pairs, *numbers, by_t, by_flips, detectable, decides


def _parts(counts: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    for key, part in counts.groupby(["label", "set_name"], sort=False):
        label, set_name = cast("tuple[str, str]", key)
        yield label, set_name, part


def _rates(counts: pd.DataFrame, measure: Measure, k: int, suffix: str = "") -> NDArray[np.float64]:
    """pass@k or maj@k [seeds, problems] of the problems that every seed has, in the order of the rows."""
    columns = (counts[f"{name}{suffix}"] for name in ("num_samples", "num_correct", "wrong_votes"))
    rates = [rate(measure, k, *values) for values in zip(*columns, strict=True)]
    seeds, problems = (counts[name].unique() for name in _KEY)
    wide = counts.assign(rate=rates).pivot(index="seed", columns="problem_id", values="rate")
    return wide.reindex(index=seeds, columns=problems).dropna(axis="columns").to_numpy(dtype=float)
