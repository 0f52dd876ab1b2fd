"""`gar eval table` of evaluations whose numbers are known."""

from functools import partial

import pytest

from gar.cli.main import main
from tests.evaluation.made_up import write_evaluation


@pytest.fixture
def make(tmp_path):
    return partial(write_evaluation, tmp_path)


@pytest.fixture
def models(make):
    """A base with two benchmarks; one far better on both; one that has the first alone."""
    low, high = [1, 2] * 10, [6, 7] * 10
    base = make("base", low, benchmark="gsm8k")
    make("base", low, benchmark="math-500")
    better = make("better", high, benchmark="gsm8k")
    make("better", high, benchmark="math-500")
    return [base, better, make("part", low, benchmark="gsm8k")]


def shown(capsys, *arguments):
    assert main(["eval", "table", *arguments]) == 0
    return capsys.readouterr().out


def test_eval_table_shows_benchmarks_by_models_with_tests(models, capsys):
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


def test_eval_table_writes_markdown(models, capsys):
    markdown = shown(capsys, *models, "--pass-at-k", "1", "--format", "markdown")
    assert "| math-500 pass@1 | 20 | 0.188 (0.163 to 0.213) | 0.812 (0.787 to 0.838) | - |\n" in markdown


def test_eval_table_of_one_model_has_no_tests(models, capsys):
    assert "Differences" not in shown(capsys, models[0])


def test_eval_table_says_what_it_cannot_compare(make, capsys):
    base, other = make("base", [1, 2, 3]), make("other", [2, 2, 2], sampling__temperature=0.5)
    text = shown(capsys, base, other)
    assert "No test of other on hand: " in text
    assert "they differ in sampling.temperature (1.0 and 0.5)" in text
    assert "0.250" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["{base}", "{base}"], "two models are called base; name them: LABEL=FOLDER."),
        (["{base}", "--pass-at-k", "9"], "pass@9 needs 9 samples per problem"),
    ],
)
def test_eval_table_refuses_and_says_why(models, capsys, arguments, text):
    assert main(["eval", "table", *(word.format(base=models[0]) for word in arguments)]) == 1
    assert text in capsys.readouterr().err
