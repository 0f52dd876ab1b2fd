"""The contrast behind `gar eval table`, `gar compare` and `gar report`, against the statistics it is made of."""

import math

import numpy as np
import pytest

from gar.evaluation.paired import contrasts, problem_counts, scores, verdict
from gar.evaluation.statistics import (
    bootstrap_interval,
    minimum_detectable_effect,
    paired_t_p_value,
    sign_flip_p_value,
)
from gar.records import EvaluatedSet, ProblemCount

SAMPLES = 100
REFERENCE = np.random.default_rng(0).integers(20, 60, size=(7, 9))
COUNTS = REFERENCE + np.array([31, -5, 12, 22, 2, -11, 27])[:, None]


def counted(**methods):
    """Correct samples [seeds, problems] of each method."""
    return problem_counts(
        (label, seed, "test", EvaluatedSet(pass_at={}, num_samples=SAMPLES, problems=numbered(problems)))
        for label, seeds in methods.items()
        for seed, problems in enumerate(seeds)
    )


def numbered(problems):
    return [ProblemCount(id=f"q{i}", num_correct=int(count)) for i, count in enumerate(problems)]


def compare(counts, reference, **options):
    """The one contrast of a method with its reference."""
    table = contrasts(counted(a=counts, b=reference), against={"a": ["b"]}, measures={"test": [("pass", 1)]}, **options)
    assert len(table) == 1
    return table.iloc[0]


def test_contrasts_hold_the_numbers_of_their_seeds():
    row = compare(COUNTS, REFERENCE)
    rates, reference = COUNTS / SAMPLES, REFERENCE / SAMPLES
    by_seed = (rates - reference).mean(axis=1)
    assert (row.num_seeds, row.num_problems, row.pairs) == (7, 9, "seeds")
    assert (row.score, row.reference) == pytest.approx((rates.mean(), reference.mean()))
    assert row.difference == pytest.approx(by_seed.mean())
    assert (row.low, row.high) == pytest.approx(bootstrap_interval(rates - reference))
    assert row.p == row.p_t == row.p_corrected == pytest.approx(paired_t_p_value(by_seed))
    assert row.p_permutation == sign_flip_p_value(by_seed)
    assert row.detectable == pytest.approx(minimum_detectable_effect(by_seed.std(ddof=1), 7))


def test_one_seed_tests_the_problems_by_permutation_unless_it_would_speak_of_methods():
    row = compare(COUNTS[:1, :8] + np.arange(8), REFERENCE[:1, :8])
    differences = (COUNTS[0, :8] + np.arange(8) - REFERENCE[0, :8]) / SAMPLES
    assert (row.num_seeds, row.pairs, row.p) == (1, "problems", sign_flip_p_value(differences))
    assert row.p_t == pytest.approx(paired_t_p_value(differences))
    row = compare(COUNTS[:1, :8] + np.arange(8), REFERENCE[:1, :8], pair_by="seed")
    assert all(math.isnan(value) for value in (row.p_t, row.p, row.p_corrected, row.detectable))
    assert (row.difference, row.verdict) == (pytest.approx(differences.mean()), "no test: one seed")
    assert row.low < row.high


def test_differences_without_spread_are_a_tie_or_count_sign_patterns():
    row = compare(REFERENCE, REFERENCE)
    assert (row.p, row.p_permutation, row.all_equal, row.verdict) == (1.0, 1.0, True, "no difference shown")
    assert (row.low, row.high, math.isnan(row.detectable)) == (0.0, 0.0, True)
    for num_seeds, p_value, words in ((10, 2 / 1024, "better"), (2, 0.5, "no difference shown")):
        row = compare([[60]] * num_seeds, [[50]] * num_seeds)
        assert (math.isnan(row.p_t), row.p, row.verdict) == (True, p_value, words)


def test_p_values_of_a_family_are_corrected_together_and_count_tests_that_are_missing():
    counts = counted(a=COUNTS, b=REFERENCE, c=COUNTS, d=COUNTS[:1])
    options = {"measures": {"test": [("pass", 1), ("pass", 2)]}, "pair_by": "seed"}
    table = contrasts(counts, against={label: ["b"] for label in "acd"}, **options)
    assert table["p_corrected"].tolist()[:4] == pytest.approx([2 * p for p in table["p"][:4]])
    assert table["p_corrected"].isna().tolist() == [False] * 4 + [True] * 2
    table = contrasts(counts, against={"a": ["b"]}, num_tests=5, **options)
    assert table["p_corrected"].tolist() == pytest.approx([5 * p for p in table["p"]])
    table = contrasts(counts, against={"a": ["b"]}, family=(["set_name"]), **options)
    assert min(table["p_corrected"]) == pytest.approx(2 * min(table["p"]))
    assert contrasts(counts, against={}, **options).empty


def test_contrasts_use_what_both_sides_have():
    counts = counted(a=COUNTS[:, :4], b=REFERENCE)
    counts = counts[~((counts["label"] == "b") & (counts["seed"] == 3))]
    table = contrasts(counts, against={"a": ["b", "gone"]}, measures={"test": [("pass", 1), ("pass", 101)], "x": []})
    assert table[["num_seeds", "num_problems", "k"]].values.tolist() == [[6, 4, 1]]
    counts.loc[(counts["label"] == "b") & (counts["seed"] < 2), "num_samples"] = 60
    table = contrasts(counts, against={"a": ["b"], "b": ["a"]}, measures={"test": [("pass", 61)]})
    assert table["num_seeds"].tolist() == [4, 4]


def test_scores_are_means_over_seeds_with_their_spread():
    table = scores(counted(a=COUNTS, b=COUNTS[:1]), measures={"test": [("pass", 1)]}, intervals=True)
    several, one = table.itertuples()
    rates = COUNTS / SAMPLES
    assert (several.mean, several.sd) == pytest.approx((rates.mean(), rates.mean(axis=1).std(ddof=1)))
    assert (several.low, several.high) == pytest.approx(bootstrap_interval(rates))
    assert (one.num_seeds, math.isnan(one.sd)) == (1, True)


def test_verdict_says_what_was_shown():
    shown = {(0.1, 0.049): "better", (-0.1, 0.049): "worse", (0.4, math.nan): "no test: one seed"}
    shown |= dict.fromkeys([(0.1, 0.05), (-0.1, 0.7), (0.0, 0.0)], "no difference shown")
    assert {case: verdict(*case) for case in shown} == shown
