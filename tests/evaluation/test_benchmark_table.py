"""`gar eval table` of models whose numbers are known, because they were made up."""

import json
import re
import sys
from functools import partial, reduce
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gar.cli.main import main
from gar.errors import ConfigError, DataError, RecordError
from gar.evaluation.benchmark_table import benchmark_table, load_model
from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.metrics import pass_at_k
from gar.records.sums import file_sum, read_sums, write_sums
from tests.support.errors import raises


def write_evaluation(
    folder, name, correct, *, num_samples=8, benchmark="hand", format="boxed", num_timeouts=0, **change
) -> str:
    """Write a finished evaluation with so many right samples of each problem; the model's folder."""
    written = EvaluationFolder(folder / name / benchmark)
    identity = {
        "benchmark": {"name": benchmark, "problems_sha256": "p", "num_problems": len(correct), "notes": []},
        "prompt": {"template": "boxed", "format": "boxed", "prompts_sha256": "q"},
        "sampling": {"num_samples": num_samples, "temperature": 1.0, "top_p": 1.0, "seed": 0, "max_new_tokens": 9},
        "model": {"path": name},
    }
    for key, value in change.items():
        *parts, field = key.split("__")
        (identity[parts[0]] if parts else identity)[field] = value
    written.begin(identity, [], overwrite=False)
    problems = [
        {"id": f"p{i}", "num_correct": int(c), "wrong_votes": [int(num_samples - c)]} for i, c in enumerate(correct)
    ]
    pass_at = {"1": sum(pass_at_k(num_samples, int(c), 1) for c in correct) / len(correct)}
    numbers = {
        "num_samples": num_samples, "format": format, "pass_at": pass_at, "problems": problems, "majority_at": {},
        "interval_95": {"1": None}, "mean_response_tokens": 5, "truncated_fraction": 0.0,
        "well_formatted_fraction": 1.0, "verified_fraction": 0.5,
        "status_counts": {"ok": num_samples * len(correct) - num_timeouts, "timeout": num_timeouts},
    }  # fmt: skip
    written.write_result([], {"sets": {benchmark: numbers}})
    return str(folder / name)


@pytest.fixture
def make(tmp_path):
    """`write_evaluation` below this folder: `make("a", [3, 0, 8])`."""
    return partial(write_evaluation, tmp_path)


def compare(*models, ks=()):
    _, tests, notes = benchmark_table([load_model(model) for model in models], ks=ks)
    assert not notes
    return list(tests.itertuples())


def notes(*models):
    _, tests, notes = benchmark_table([load_model(model) for model in models])
    assert tests.empty
    return notes


def test_table_pairs_the_problems_of_one_seed_and_several_seeds(make):
    a, b = np.random.default_rng(2).integers(0, 9, size=(2, 5, 6))
    paths = {
        name: [make(f"{name}{seed}", values) for seed, values in enumerate(seeds)]
        for name, seeds in {"a": a, "b": b}.items()
    }
    row, *others = compare(f"A={paths['a'][0]}", f"B={paths['b'][0]}")
    assert [(each.measure, each.k) for each in (row, *others)] == [("pass", 1), ("pass", 4), ("majority", 8)]
    assert (row.label, row.against, row.pairs, row.num_problems, row.num_seeds) == ("B", "A", "problems", 6, 1)
    assert (row.score, row.reference) == pytest.approx((b[0].mean() / 8, a[0].mean() / 8))
    (row,) = compare(f"A={','.join(paths['a'])}", f"B={','.join(paths['b'])}", ks=[1])
    assert (row.pairs, row.num_seeds) == ("seeds", 5)
    assert row.p == row.p_corrected == pytest.approx(stats.ttest_rel(b.mean(axis=1), a.mean(axis=1)).pvalue)


def test_table_corrects_over_models_and_sets(make):
    generator = np.random.default_rng(3)
    paths = {
        name: make(name, generator.integers(0, 9, size=10), benchmark=benchmark)
        for name in "abc"
        for benchmark in ("one", "two")
    }
    rows = compare(*paths.values(), ks=[1])
    assert sorted((row.set_name, row.label) for row in rows) == [("one", "b"), ("one", "c"), ("two", "b"), ("two", "c")]
    smallest = min(rows, key=lambda row: row.p)
    assert smallest.p_corrected == pytest.approx(min(1, 4 * smallest.p))


UNLIKE = [
    ({"benchmark__problems_sha256": "other"}, "the problems (p and other)"),
    ({"prompt__chat_template_kwargs": '{"a": 1}'}, 'chat_template_kwargs (None and {"a": 1})'),
    ({"verifier": "mine:grade"}, "verify.verifier (None and mine:grade)"),
    ({"num_samples": 9}, "the number of samples (8 and 9)"),
    ({"format": "none"}, "the format they were graded with (boxed and none)"),
]


def test_table_does_not_compare_what_was_evaluated_otherwise(make):
    a = make("a", [1, 2])
    for i, (change, text) in enumerate(UNLIKE):
        (note,) = notes(a, make(f"b{i}", [2, 2], **change))
        assert text in note
    b = make("c", [2, 2], sampling__seed=7)
    assert compare(a, b)
    assert "B has 2 seeds and a has 1" in notes(a, f"B={b},{make('d', [1, 1])}")[0]
    assert "one problem" in notes(make("e", [1]), make("f", [1]))[0]


def test_table_notes_responses_that_were_not_graded(make):
    models = [load_model(model) for model in (make("a", [1, 2]), make("b", [2, 2], num_timeouts=3))]
    _, _, notes = benchmark_table(models)
    assert notes == ["b: 3 of 16 responses on hand were not graded (timeout or error) and count as wrong."]


BROKEN = [
    ("metrics.json", "sets"), ("metrics.json", "sets.hand.pass_at"),
    ("metrics.json", "sets.hand.problems"), ("metrics.json", "sets.hand.num_samples"),
    ("set.json", "benchmark"), ("set.json", "benchmark.name"), ("set.json", "prompt.template"),
    ("set.json", "prompt.format"), ("set.json", "sampling.num_samples"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "key"), BROKEN)
def test_a_key_that_is_missing_or_of_another_type_is_an_error_that_names_it(make, file, key):
    folder = Path(make("a", [1, 2])) / "hand"
    *parents, name = key.split(".")
    for broken in ({}, {name: {"a": [None]}}):
        values = json.loads((folder / file).read_text())
        inside = reduce(dict.__getitem__, parents, values)
        inside.pop(name, None)
        inside |= broken
        rewrite(folder / file, values)
        with raises(RecordError, "record", file, name, "Was the file changed by hand?"):
            load_model(str(folder))


IMPOSSIBLE = {
    "two problems have one id": {"problems": [{"id": "p0", "num_correct": 1}] * 2},
    "reach 9 of 8 samples": {"problems": [{"id": "p0", "num_correct": 5, "wrong_votes": [4]}]},
    "status_counts": {"status_counts": {"ok": -1}},
    "interval_95": {"interval_95": {"1": 0.5}},
    "reach 16 of 8 samples": {"pass_at": {"16": 0.5}},
}


def test_counts_that_cannot_be_are_an_error(make):
    file = Path(make("a", [1, 2])) / "hand" / "metrics.json"
    whole = json.loads(file.read_text())
    for words, change in IMPOSSIBLE.items():
        rewrite(file, {"sets": {"hand": whole["sets"]["hand"] | change}})
        with raises(RecordError, "record", "metrics.json: sets: hand", words):
            load_model(str(file.parent))
    rewrite(file, {"sets": {"other": whole["sets"]["hand"]}})
    with raises(RecordError, "record", "expected the set 'hand'", "got ['other']"):
        load_model(str(file.parent))


def rewrite(path, values):
    """What another version of gar may have written: listed, and not as expected."""
    path.write_text(json.dumps(values))
    write_sums(path.parent, read_sums(path.parent) | {path.name: file_sum(path)})


def test_load_model_rejects_what_is_no_set_of_seeds(make, tmp_path):
    a, b = make("a", [1, 2]), make("b", [2, 2], prompt__template="plain")
    for argument, kind in (
        (f"{a},{a}", ConfigError),
        (f"{a},{b}", DataError),
        (f"{a},{make('c', [1, 2], benchmark='other')}", DataError),
        (str(tmp_path), RecordError),
    ):
        with raises(kind):
            load_model(argument)


# The command.


def shown(capsys, *arguments):
    """What a file or a pipe gets: Markdown."""
    assert main(["eval", "table", *arguments]) == 0
    return capsys.readouterr().out


def test_eval_table_shows_benchmarks_by_models_with_tests(make, capsys, tmp_path, monkeypatch):
    low, high = [1, 2] * 10, [6, 7] * 10
    for name, correct in (("base", low), ("better", high), ("part", low)):
        make(name, correct, benchmark="gsm8k")
        if name != "part":
            make(name, correct, benchmark="math-500")
    models = [str(tmp_path / name) for name in ("base", "better", "part")]
    lines = shown(capsys, *models, "--pass-at-k", "1").splitlines()
    assert lines[2:6] == [
        "| benchmark | problems | base | better | part |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| gsm8k pass@1 | 20 | 0.188 (0.163 to 0.213) | 0.812 (0.787 to 0.838) | 0.188 (0.163 to 0.213) |",
        "| math-500 pass@1 | 20 | 0.188 (0.163 to 0.213) | 0.812 (0.787 to 0.838) | - |",
    ]
    tests = [line.strip("| ").split(" | ") for line in lines if line.startswith("| gsm8k")][1:]
    assert [(cells[1], cells[2], cells[4], cells[-1]) for cells in tests] == [
        ("better", "+0.625", "<0.001", "better"), ("part", "+0.000", "1.000", "no difference shown"),
    ]  # fmt: skip
    with monkeypatch.context() as terminal:
        terminal.setattr(sys.stdout, "isatty", lambda: True)
        terminal.setenv("COLUMNS", "120")
        table = shown(capsys, *models, "--pass-at-k", "1")
        assert re.search(r"│ math-500 pass@1 +│ +20 │ 0.188 .* │ +- │\n", table)
        assert "| gsm8k" in shown(capsys, *models, "--format", "markdown")
        assert "\x1b[2J" not in shown(capsys, f"a\x1b[2Jb={models[0]}", models[1])  # no terminal obeys a label
    assert "Differences" not in shown(capsys, models[0])
    for arguments, text in (
        ([models[0]] * 2, "two models are called base. Name them: LABEL=FOLDER."),
        ([models[0], "--pass-at-k", "9"], "pass@9 needs 9 samples per problem"),
    ):
        assert main(["eval", "table", *arguments]) == 1
        assert text in capsys.readouterr().err
    text = shown(capsys, models[0], make("other", low, benchmark="gsm8k", sampling__temperature=0.5))
    assert "No test of other on gsm8k: " in text
    assert "0.188" in text
