"""`gar eval table` of models whose numbers are known, because they were made up."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from gar.cli.main import main
from gar.errors import ConfigError, DataError, RecordError
from gar.evaluation.benchmark_table import benchmark_table, load_model
from tests.evaluation.made_up import write_evaluation


@pytest.fixture
def make(tmp_path):
    """Write a finished evaluation with so many right samples of each problem: `make("a", [3, 0, 8])`."""
    return partial(write_evaluation, tmp_path)


def compare(*models, ks=()):
    table = benchmark_table([load_model(model) for model in models], ks=ks)
    assert not table.notes
    return list(table.tests.itertuples())


def notes(*models):
    table = benchmark_table([load_model(model) for model in models])
    assert table.tests.empty
    return table.notes


def test_table_of_one_seed_pairs_the_problems(make):
    a, b = np.random.default_rng(1).integers(0, 9, size=(2, 12))
    (row,) = compare(f"A={make('a', a)}", f"B={make('b', b)}", ks=[1])
    assert (row.label, row.against, row.pairs, row.num_problems, row.num_seeds) == ("B", "A", "problems", 12, 1)
    assert (row.score, row.reference) == pytest.approx((b.mean() / 8, a.mean() / 8))
    assert row.p_t == pytest.approx(stats.ttest_rel(b, a).pvalue)
    flips = stats.permutation_test((b - a,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert row.p_permutation == row.p == row.p_corrected == pytest.approx(flips.pvalue)
    assert row.low < row.difference < row.high


def test_table_of_several_seeds_pairs_the_seeds(make):
    a, b = np.random.default_rng(2).integers(0, 9, size=(2, 5, 6))
    paths = [
        ",".join(make(f"{name}{seed}", values) for seed, values in enumerate(seeds))
        for name, seeds in (("a", a), ("b", b))
    ]
    (row,) = compare(f"A={paths[0]}", f"B={paths[1]}", ks=[1])
    assert (row.pairs, row.num_seeds) == ("seeds", 5)
    expected = stats.ttest_rel(b.mean(axis=1), a.mean(axis=1)).pvalue
    assert row.p_t == row.p == row.p_corrected == pytest.approx(expected)
    assert row.detectable > 0


def test_table_calls_a_clear_difference_better_its_reverse_worse_and_a_tie_no_win(make):
    low, high = make("low", [1, 2] * 10), make("high", [6, 7] * 10)
    for first, second, word in ((low, high, "better"), (high, low, "worse")):
        assert {row.verdict for row in compare(first, second) if row.k == 1} == {word}
    rows = compare(make("a", [3, 0, 8, 5]), make("b", [3, 0, 8, 5]))
    assert [(row.measure, row.k) for row in rows] == [("pass", 1), ("pass", 4), ("majority", 8)]
    assert {(row.difference, row.verdict) for row in rows} == {(0.0, "no difference shown")}


def test_table_corrects_over_models_and_sets(make):
    generator = np.random.default_rng(3)
    paths = {
        name: make(name, generator.integers(0, 9, size=10), benchmark=benchmark)
        for name in "abc"
        for benchmark in ("one", "two")
    }
    rows = compare(*paths.values(), ks=[1])
    assert [(row.set_name, row.label) for row in rows] == [("one", "b"), ("one", "c"), ("two", "b"), ("two", "c")]
    smallest = min(rows, key=lambda row: row.p)
    assert smallest.p_corrected == pytest.approx(min(1, 4 * smallest.p))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"benchmark__problems_sha256": "other"}, "the problems (p and other)"),
        ({"prompt__prompts_sha256": "other"}, "the prompts (q and other)"),
        ({"prompt__form": "think-answer"}, "prompt.form (boxed and think-answer)"),
        ({"num_samples": 9}, "the number of samples (8 and 9)"),
        ({"sampling__temperature": 0.5}, "sampling.temperature (1.0 and 0.5)"),
        ({"sampling__max_new_tokens": 5}, "sampling.max_new_tokens (9 and 5)"),
        ({"format": "none"}, "the format they were graded with (boxed and none)"),
    ],
)
def test_table_does_not_compare_what_was_evaluated_otherwise(make, change, text):
    (note,) = notes(make("a", [1, 2]), make("b", [2, 2], **change))
    assert f"cannot be compared, since they differ in {text}. Evaluate both" in note
    assert compare(make("c", [1, 2]), make("d", [2, 2], sampling__seed=7))


def test_table_names_numbers_of_seeds_and_problems_that_allow_no_test(make):
    a, b = make("a", [1, 2]), make("b", [2, 2])
    assert "B has 2 seeds and a has 1: a pair is one seed of each" in notes(a, f"B={b},{make('d', [1, 1])}")[0]
    assert "hand has one problem: a paired test needs at least two" in notes(make("e", [1]), make("f", [1]))[0]


def test_load_model_rejects_what_is_no_set_of_seeds(make, tmp_path):
    a, b = make("a", [1, 2]), make("b", [2, 2], prompt__form="as-is")
    for argument, kind, text in (
        (f"{a},{a}", ConfigError, "with each folder once"),
        (f"{a},{b}", DataError, r"differ in prompt\.form"),
        (f"{a},{make('c', [1, 2], benchmark='other')}", DataError, "1 of 2 folders hold"),
        (str(tmp_path), RecordError, "no evaluation in this folder"),
    ):
        with pytest.raises(kind, match=text):
            load_model(argument)


# The command.


def shown(capsys, *arguments):
    assert main(["eval", "table", *arguments]) == 0
    return capsys.readouterr().out


def test_eval_table_shows_benchmarks_by_models_with_tests(make, capsys, tmp_path):
    low, high = [1, 2] * 10, [6, 7] * 10
    for name, correct in (("base", low), ("better", high), ("part", low)):
        make(name, correct, benchmark="gsm8k")
        if name != "part":
            make(name, correct, benchmark="math-500")
    models = [str(tmp_path / name) for name in ("base", "better", "part")]
    lines = shown(capsys, *models, "--pass-at-k", "1").splitlines()
    assert lines[1:4] == [
        "benchmark        problems                    base                  better                    part",
        "gsm8k pass@1           20  0.188 (0.163 to 0.213)  0.812 (0.787 to 0.838)  0.188 (0.163 to 0.213)",
        "math-500 pass@1        20  0.188 (0.163 to 0.213)  0.812 (0.787 to 0.838)                       -",
    ]
    tests = [line.split()[2:] for line in lines if line.startswith("gsm8k")][1:]
    assert [(cells[0], cells[1], cells[5], cells[-1]) for cells in tests] == [
        ("better", "+0.625", "<0.001", "better"), ("part", "+0.000", "1.000", "shown"),
    ]  # fmt: skip
    assert max(map(len, lines[4:])) <= 90  # no word is broken; the longest verdict alone takes 19
    markdown = shown(capsys, *models, "--pass-at-k", "1", "--format", "markdown")
    assert "| math-500 pass@1 | 20 | 0.188 (0.163 to 0.213) | 0.812 (0.787 to 0.838) | - |\n" in markdown
    assert "Differences" not in shown(capsys, models[0])
    for arguments, text in (
        ([models[0]] * 2, "two models are called base. Name them: LABEL=FOLDER."),
        ([models[0], "--pass-at-k", "9"], "pass@9 needs 9 samples per problem"),
    ):
        assert main(["eval", "table", *arguments]) == 1
        assert text in capsys.readouterr().err


def test_eval_table_says_what_it_cannot_compare(make, capsys):
    text = shown(capsys, make("base", [1, 2, 3]), make("other", [2, 2, 2], sampling__temperature=0.5))
    assert "No test of other on hand: " in text
    assert "0.250" in text
