"""Comparisons of models whose numbers are known, because they were made up."""

import re
from functools import partial

import numpy as np
import pytest
from scipy import stats

from gar.errors import ConfigError, DataError, RecordError
from gar.evaluation.benchmark_table import benchmark_table, load_model
from tests.evaluation.made_up import write_evaluation


@pytest.fixture
def make(tmp_path):
    """Write a finished evaluation with so many right samples of each problem: `make("a", [3, 0, 8])`."""
    return partial(write_evaluation, tmp_path)


def compare(models, ks=()):
    table = benchmark_table(models, ks=ks)
    assert not table.notes
    return list(table.tests.itertuples())


def refusals(*models):
    table = benchmark_table([load_model(model) for model in models])
    assert table.tests.empty
    return table.notes


def test_compare_of_one_seed_pairs_the_problems(make):
    generator = np.random.default_rng(1)
    a, b = generator.integers(0, 9, size=(2, 12))
    rows = compare([load_model(f"A={make('a', a)}"), load_model(f"B={make('b', b)}")], ks=[1])
    (row,) = rows
    assert (row.label, row.against, row.pairs, row.num_problems, row.num_seeds) == (
        "B",
        "A",
        "problems",
        12,
        1,
    )
    assert row.difference == pytest.approx((b - a).mean() / 8)
    assert (row.score, row.reference) == pytest.approx((b.mean() / 8, a.mean() / 8))
    assert row.p_t == pytest.approx(stats.ttest_rel(b, a).pvalue)
    flips = stats.permutation_test((b - a,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert row.p_permutation == row.p == row.p_corrected == pytest.approx(flips.pvalue)
    assert row.low < row.difference < row.high


def test_compare_of_several_seeds_pairs_the_seeds(make):
    generator = np.random.default_rng(2)
    a, b = generator.integers(0, 9, size=(2, 5, 6))
    paths = [
        [make(f"{name}{seed}", values) for seed, values in enumerate(seeds)] for name, seeds in (("a", a), ("b", b))
    ]
    (row,) = compare([load_model(f"{label}={','.join(own)}") for label, own in zip("AB", paths, strict=True)], ks=[1])
    assert (row.pairs, row.num_seeds) == ("seeds", 5)
    expected = stats.ttest_rel(b.mean(axis=1), a.mean(axis=1)).pvalue
    assert row.p_t == row.p == row.p_corrected == pytest.approx(expected)
    assert row.detectable > 0


def test_compare_calls_a_clear_difference_better_and_its_reverse_worse(make):
    low, high = make("low", [1, 2] * 10), make("high", [6, 7] * 10)
    for first, second, word in ((low, high, "better"), (high, low, "worse")):
        rows = compare([load_model(first), load_model(second)])
        assert {row.verdict for row in rows if row.k == 1} == {word}


def test_compare_never_calls_a_tie_a_win(make):
    same = [3, 0, 8, 5]
    rows = compare([load_model(make("a", same)), load_model(make("b", same)), load_model(make("c", same[::-1]))])
    assert {row.verdict for row in rows} == {"no difference shown"}
    assert {row.difference for row in rows if row.label == "b"} == {0.0}


def test_compare_corrects_over_models_and_sets(make):
    generator = np.random.default_rng(3)
    for name in "abc":
        for benchmark in ("one", "two"):
            make(name, generator.integers(0, 9, size=10), benchmark=benchmark)
    folder = re.sub("a$", "", make("a", generator.integers(0, 9, size=10), benchmark="one"))
    rows = compare([load_model(f"{folder}{name}") for name in "abc"], ks=[1])
    assert [(row.set_name, row.label) for row in rows] == [("one", "b"), ("one", "c"), ("two", "b"), ("two", "c")]
    smallest = min(rows, key=lambda row: row.p)
    assert smallest.p_corrected == pytest.approx(min(1, 4 * smallest.p))


def test_compare_chooses_pass_at_1_and_half_and_the_vote_of_all(make):
    rows = compare([load_model(make("a", [1, 2])), load_model(make("b", [2, 2]))])
    assert [(row.measure, row.k) for row in rows] == [("pass", 1), ("pass", 4), ("majority", 8)]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"benchmark__problems_sha256": "other"}, "the problems (p and other)"),
        ({"prompt__prompts_sha256": "other"}, "the prompts (q and other)"),
        ({"prompt__form": "think-answer"}, "prompt.form (boxed and think-answer)"),
        ({"num_samples": 9}, "the number of samples (8 and 9)"),
        ({"sampling__temperature": 0.5}, "sampling.temperature (1.0 and 0.5)"),
        ({"sampling__max_new_tokens": 5}, "sampling.max_new_tokens (9 and 5)"),
    ],
)
def test_compare_refuses_what_was_evaluated_otherwise(make, change, text):
    (note,) = refusals(make("a", [1, 2]), make("b", [2, 2], **change))
    assert f"cannot be compared, since they differ in {text}. Evaluate both" in note


def test_compare_refuses_another_format_of_grading(make):
    models = [make("a", [1, 2]), make("b", [2, 2], format="none")]
    assert "the format they were graded with (boxed and none)" in refusals(*models)[0]


def test_compare_may_differ_in_seed_and_model(make):
    compare([load_model(make("a", [1, 2])), load_model(make("b", [2, 2], sampling__seed=7))])


def test_compare_refuses_other_ks_and_numbers_of_seeds(make):
    a, b = make("a", [1, 2]), make("b", [2, 2])
    with pytest.raises(ConfigError, match="pass@9 needs 9 samples per problem"):
        compare([load_model(a), load_model(b)], ks=[9])
    for models, text in (
        ([a, f"B={b},{make('d', [1, 1])}"], "B has 2 seeds and a has 1: a pair is one seed of each"),
        ([make("e", [1]), make("f", [1])], "hand has one problem: a paired test needs at least two"),
    ):
        assert text in refusals(*models)[0]


def test_load_model_refuses_what_is_no_set_of_seeds(make, tmp_path):
    a, b = make("a", [1, 2]), make("b", [2, 2], prompt__form="as-is")
    with pytest.raises(ConfigError, match="with each folder once"):
        load_model(f"{a},{a}")
    with pytest.raises(DataError, match=r"differ in prompt\.form"):
        load_model(f"{a},{b}")
    with pytest.raises(DataError, match="1 of 2 folders hold"):
        load_model(f"{a},{make('c', [1, 2], benchmark='other')}")
    with pytest.raises(RecordError, match="no evaluation in this folder"):
        load_model(str(tmp_path))
    (tmp_path / "a" / "hand" / "metrics.json").unlink()
    with pytest.raises(RecordError, match=r"metrics\.json is missing"):
        load_model(a)
