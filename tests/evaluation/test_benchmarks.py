"""Benchmarks from files with the published columns, those that cannot be had, and what the model is asked."""

import json
from pathlib import Path

import pytest

from gar.errors import ConfigError, DataError
from gar.evaluation.benchmark_sets import load_benchmark, load_sets, problems_hash
from gar.evaluation.benchmarks import BENCHMARKS
from gar.evaluation.job import GenerateJob
from gar.settings import ModelSettings
from tests.evaluation.published import GPQA, MATHARENA, MMLU_PRO, ROWS
from tests.support.errors import raises
from tests.support.files import write_jsonl

GIVEN = {
    "aime-2026": [("1", "2", "Number Theory, Algebra"), ("2", "\\frac{1}{2}", "Algebra")],
    "imo-answerbench-v1": [("imo-1", "$3$.", "Algebra"), ("imo-2", "7", "Number theory")],
    "mmlu-pro": [("70", "A", "math"), ("71", "B", "law"), ("72", "C", "law")],
    "math-500": [("test/algebra/1.json", "8", "Algebra")],
    "gsm8k": [("f632907cd116", "1002", "")],
}


def test_load_benchmark_reads_the_published_columns_of_each_set(tmp_path):
    for name in (name for name, benchmark in BENCHMARKS.items() if benchmark.schema is not None):
        loaded = load_benchmark(f"{name}={write_jsonl(tmp_path / 'rows.jsonl', ROWS[name])}")
        assert (loaded.benchmark, loaded.source) == (BENCHMARKS[name], str(tmp_path / "rows.jsonl"))
        assert f"{len(ROWS[name])} problems, but {BENCHMARKS[name].num_problems} were published." in loaded.notes
        given = [(problem.id, problem.answer, problem.source) for problem in loaded.problems]
        assert given == GIVEN.get(name, given)
        assert len(given) == len(ROWS[name])
        assert all(problem.id and problem.prompt and problem.answer for problem in loaded.problems)


def test_load_benchmark_permutes_the_choices_of_gpqa_once_and_for_all(tmp_path):
    file = write_jsonl(tmp_path / "rows.jsonl", GPQA)
    backwards = write_jsonl(tmp_path / "backwards.jsonl", GPQA[::-1])
    problems = load_benchmark(f"gpqa-diamond={file}").problems
    assert set(load_benchmark(f"gpqa-diamond={backwards}").problems) == set(problems)
    for problem in problems:
        assert sorted(problem.choices) == ["one", "right", "three", "two"]
        assert problem.choices["ABCD".index(problem.answer)] == "right"
    letters = [problem.answer for problem in problems]
    assert all(4 <= letters.count(letter) <= 17 for letter in "ABCD")  # 10 on average
    # Another order would be another benchmark: this one is fixed.
    assert "".join(letters) == "ACACBBDDBCCBCDDCDBBCCDBDDDBBBAADDADBDDBB"


def test_load_benchmark_reads_the_embedded_task_and_any_file_of_problems(tmp_path):
    for name, first in (("arithmetic", "test-0"), ("arithmetic-harder", "harder-0")):
        loaded = load_benchmark(name)
        assert (len(loaded.problems), loaded.problems[0].id, loaded.source) == (200, first, "package")
        assert loaded.notes == ()
    rows = [{"prompt": f"{number}+1=", "answer": number + 1, "source": "mine"} for number in range(3)]
    named = load_benchmark(f"short={write_jsonl(tmp_path / 'mine.jsonl', rows)}", limit=2)
    loaded = load_benchmark(str(tmp_path / "mine.jsonl"), limit=2)
    assert (named.benchmark.name, named.problems) == ("short", loaded.problems)
    assert [(each.id, each.prompt, each.answer) for each in loaded.problems] == [
        ("mine-1", "0+1=", "1"), ("mine-2", "1+1=", "2"),
    ]  # fmt: skip
    assert (loaded.benchmark.name, loaded.notes) == ("mine", ("The first 2 of 3 problems.",))


def test_load_benchmark_hash_follows_what_is_asked(tmp_path):
    def sha256(**change):
        rows = [MATHARENA[0] | change, MATHARENA[1]]
        return problems_hash(load_benchmark(f"aime-2026={write_jsonl(tmp_path / 'rows.jsonl', rows)}").problems)

    assert sha256() == sha256(problem_type=["Geometry"])
    assert len({sha256(), sha256(answer=3), sha256(problem="What?"), sha256(problem_idx=9)}) == 4


BAD_ROWS = [
    ("aime-2026", {"id": 1, "question": "?", "answer": 2}, "no column 'problem', 'problem_idx'"),
    ("mmlu-pro", MMLU_PRO[0] | {"answer": "B"}, "'B' is not option 0"),
    ("mmlu-pro", MMLU_PRO[0] | {"answer_index": 7}, "'A' is not option 7"),
    ("mmlu-pro", MMLU_PRO[0] | {"options": "zero, one"}, "'options'"),
    ("gsm8k", {"question": "?", "answer": "18"}, "####"),
]


def test_load_benchmark_rejects_bad_rows_repeated_ids_and_a_torn_csv(tmp_path):
    for name, row, named in BAD_ROWS:
        with raises(DataError, None, "rows.jsonl:1: ", named):
            load_benchmark(f"{name}={write_jsonl(tmp_path / 'rows.jsonl', [row])}")
    (tmp_path / "rows.csv").write_text("problem_idx,problem,answer\n1,What?\n")
    write_jsonl(tmp_path / "rows.jsonl", [MATHARENA[0]] * 2)
    for name in ("rows.csv", "rows.jsonl"):
        with raises(DataError):
            load_benchmark(f"aime-2026={tmp_path / name}")


@pytest.mark.parametrize(
    ("spec", "error", "advice"),
    [
        ("aime-2062", ConfigError, "Did you mean 'aime-2026'"),
        ("arithmetic=a.jsonl", ConfigError, ""),
        ("arithmetic@main", ConfigError, ""),
        ("aime-2026=nowhere.jsonl", DataError, ""),
        ("aime-2026=nowhere.txt", DataError, ".jsonl"),
        ("mine.csv", DataError, ""),
        ("gpqa-diamond", DataError, "https://huggingface.co/datasets/Idavidrein/gpqa"),
        ("imo-answerbench-v2", DataError, "google-deepmind/superhuman"),
        ("mmlu-pro@abc", DataError, "--benchmark mmlu-pro=FILE"),
    ],
)
def test_load_benchmark_says_what_to_do(spec, error, advice):
    with raises(error, None, advice):
        load_benchmark(spec)


# Real files.


@pytest.mark.data
def test_load_benchmark_knows_version_2_of_imo_answerbench(data_dir):
    loaded = load_benchmark(f"imo-answerbench-v2={data_dir / 'imo_answerbench_v2.csv'}")
    assert len(loaded.problems) == 400
    assert loaded.notes == (BENCHMARKS["imo-answerbench-v2"].note,)
    with raises(DataError):  # another version of the set
        load_benchmark(f"imo-answerbench-v1={data_dir / 'imo_answerbench_v2.csv'}")


@pytest.mark.data
def test_load_benchmark_reads_the_test_set_of_gsm8k(data_dir):
    loaded = load_benchmark(f"gsm8k={data_dir / 'gsm8k_test.jsonl'}")
    assert len(loaded.problems) == 1319
    assert loaded.notes == ()
    assert all(float(problem.answer) == int(problem.answer) for problem in loaded.problems)


# What the model is asked: wordings are those of training, see tests/data.


def test_load_sets_put_the_choices_into_the_prompt_and_identify_what_is_asked(tmp_path):
    spec = f"mmlu-pro={write_jsonl(tmp_path / 'rows.jsonl', MMLU_PRO)}"
    job = GenerateJob(model=ModelSettings(), benchmark=(spec, "arithmetic"))
    choices, arithmetic = load_sets(job)
    assert choices.problems[0].prompt == (
        "Which is 0?\n\nA. zero\nB. one\nC. two\n\nThe final answer is the letter of the right choice alone."
    )
    assert [each.identity["prompt"]["template"] for each in (choices, arithmetic)] == ["think-answer", "plain"]
    changed = [load_sets(job.model_copy(update=change))[0] for change in CHANGES]
    asked = [each.identity["prompt"] for each in (choices, *changed)]
    assert len({json.dumps(prompt) for prompt in asked}) == 4
    assert [prompt["format"] == "boxed" for prompt in asked] == [False, True, False, False]


CHANGES = ({"template": "boxed"}, {"template": "plain"}, {"limit": 2})


def test_an_own_file_under_almost_a_published_name_has_a_note(tmp_path: Path):
    file = tmp_path / "own.jsonl"
    file.write_text('{"prompt": "1+1", "answer": "2", "expert_solution": "2"}\n')
    note = f"aime-2062 is no published benchmark, so {file} is read as your own file. Did you mean 'aime-2026'?"
    assert load_benchmark(f"aime-2062={file}").notes == (note,)
    assert load_benchmark(f"math-hard={file}").notes == ()
