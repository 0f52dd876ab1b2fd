"""Grading of samples: votes by value, and the folder that `grade_folder` writes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gar.errors import RecordError
from gar.evaluation.benchmark_table import load_model
from gar.evaluation.folder import EvaluationFolder, evaluation_folders
from gar.evaluation.grade import equal_answers, grade_folder
from gar.evaluation.job import ScoreSettings
from gar.evaluation.metrics import majority_at_k
from gar.records import open_run
from gar.types import Problem
from gar.verify import Verifier
from tests.support.damage import damages, flip
from tests.support.errors import raises

SETTINGS = ScoreSettings(num_workers=1, timeout_seconds=2.0)


# Through the whole of `grade_folder`, on responses written by hand.

GOOD, BAD = "<think> a </think> <answer> {} </answer>", "<answer> {} </answer>"
HOSTILE = [r"\boxed{9^{9^{9^9}}}", r"\boxed{" + r"\frac{1}{" * 10_000 + "}", r"\boxed{" * 500, "\x00", "1" * 1_000_000]


def write_set(path, responses, answers, form="boxed"):
    """An evaluation whose responses are the given texts, a list for each answer."""
    folder = EvaluationFolder(path)
    problems = [Problem(id=f"p{i}", prompt="?", answer=answer) for i, answer in enumerate(answers)]
    identity = {
        "benchmark": {"name": "hand", "notes": []},
        "prompt": {"template": form, "format": form},
        "sampling": {"num_samples": len(responses[0])},
        "model": {"path": str(path)},
    }
    folder.begin(identity, problems, overwrite=False)
    line = {"tokens": [1, 2], "stop": "end", "seed": 0, "prefilled_think": False}
    folder.add_lines(
        {"problem": f"p{i}", "sample": j, "text": text, **line}
        for i, texts in enumerate(responses)
        for j, text in enumerate(texts)
    )
    return folder


SCORED = [
    # Votes are by value.
    ("boxed", [*(rf"\boxed{{{answer}}}" for answer in ("1/2", "0.5", r"\frac{1}{3}", "1/3", "2/6", "7")), "none"],
     r"\frac12", 2, [3, 1], {"ok": 2, "wrong": 4, "unparsed": 1}),
    # A badly formatted answer has no vote, right or wrong, and an unreadable one votes for its text.
    ("think-answer", [GOOD.format(7), BAD.format(7), BAD.format(8), GOOD.format(8)], "7", 1, [1],
     {"ok": 2, "wrong": 2}),
    ("boxed", [r"\boxed{7}", r"\boxed{no idea}", r"\boxed{no idea}"], "7", 1, [2], {"ok": 1, "unparsed": 2}),
    # Of a choice only the letter votes.
    ("boxed", [r"\boxed{B}", r"\boxed{C}", r"\boxed{C) 12}", r"\boxed{A or B}"], "B", 1, [2, 1],
     {"ok": 1, "wrong": 2, "unparsed": 1}),
]  # fmt: skip


def test_grade_counts_right_answers_and_votes(tmp_path):
    for number, (form, responses, gold, num_correct, wrong_votes, statuses) in enumerate(SCORED):
        numbers = grade_folder(write_set(tmp_path / str(number), [responses], [gold], form), SETTINGS)
        assert [(each.num_correct, each.wrong_votes) for each in numbers.problems] == [(num_correct, wrong_votes)]
        assert {name: count for name, count in numbers.status_counts.items() if count} == statuses
        abstained = len(responses) - num_correct - sum(wrong_votes)
        for k, value in numbers.majority_at.items():
            assert value == majority_at_k(num_correct, tuple(wrong_votes), abstained, int(k))
        assert numbers.pass_at[str(len(responses))] == 1.0
        assert set(numbers.interval_95.values()) == {None}  # one problem has no spread
        assert numbers.format == form


def test_grade_writes_what_open_run_reads(tmp_path):
    responses = [[r"\boxed{1}", r"\boxed{2}"], [r"\boxed{2}", "none"], [r"\boxed{3}", r"\boxed{3}"]]
    grade_folder(write_set(tmp_path / "model" / "hand", responses, ["1", "2", "3"]), SETTINGS)
    run = open_run(tmp_path / "model" / "hand")
    assert (run.name, run.trained) == ("model/hand", False)
    assert run.evaluations["after"]["hand"].known_rates == {1: 4 / 6, 2: 1.0}
    assert [*run.evaluations["after"]["hand"].num_correct.values()] == [1, 1, 2]
    rows = run.samples("after").to_pylist()
    assert [(row["problem_id"], row["response_index"]) for row in rows] == [
        (f"p{i}", j) for i in range(3) for j in (0, 1)
    ]
    assert [row["response"] for row in rows] == [text for texts in responses for text in texts]
    assert [row["verified"] for row in rows] == [True, False, True, False, True, True]
    assert {(row["set_name"], row["num_tokens"], row["truncated"]) for row in rows} == {("hand", 2, False)}


@pytest.mark.slow
def test_grade_survives_hostile_samples_and_votes_for_each_apart(tmp_path):
    numbers = grade_folder(write_set(tmp_path, [[*HOSTILE, r"\boxed{7}"]], ["7"]), SETTINGS)
    assert numbers.problems[0].num_correct == numbers.status_counts["ok"] == 1
    assert sum(numbers.status_counts.values()) == 6
    with Verifier(num_workers=1, timeout_seconds=2.0) as verifier:
        votes, others = equal_answers(verifier, [["7", "9^{9^{9^9}}", "{" * 100, "x" * 3000, "7.0"], ["7.0"]])
    assert (votes["7.0"], others) == ("7", {"7.0": "7.0"})
    assert sum(answer == first for answer, first in votes.items()) == 4


# One file damaged, lost or swapped: an error names the file, and no number is made of it.

FILES = ("set.json", "problems.jsonl", "responses.jsonl", "samples.parquet", "metrics.json", "SHA256SUMS")
READ_BY_SCORE = ("set.json", "problems.jsonl", "responses.jsonl")  # it makes the others anew


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evals")
    for name, right in (("0", 7), ("1", 8)):
        grade_folder(write_set(folder / name / "hand", [["no", rf"\boxed{{{right}}}"]] * 3, [str(right)] * 3), SETTINGS)
    return folder


@pytest.fixture
def copied(evaluations, tmp_path) -> Path:
    shutil.copytree(evaluations, tmp_path / "evals")
    return tmp_path / "evals" / "0" / "hand"


def scored(folder: Path) -> object:
    (written,) = evaluation_folders(folder.parent)
    return grade_folder(written, SETTINGS)


def tabulated(folder: Path) -> object:
    (evaluation,) = load_model(str(folder.parent)).evaluations["hand"]
    return evaluation.settings, evaluation.evaluations


def is_named(read: Callable[[Path], object], folder: Path, file: str) -> bool:
    try:
        read(folder)
    except RecordError as error:
        return "\n" not in str(error) and (file in str(error) or file == "SHA256SUMS")
    return False


@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_named_by_every_command(copied, file):
    path, expected = copied / file, tabulated(copied)
    content = path.read_bytes()
    known = damages(Path(file if file != "samples.parquet" else "any"))
    for name, damage in {**known, "a flipped bit": lambda path: flip(path, 60)}.items():
        damage(path)
        assert is_named(tabulated, copied, file), name
        assert file not in READ_BY_SCORE or is_named(scored, copied, file), name
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(content)
    assert tabulated(copied) == expected


def test_a_file_of_another_evaluation_is_named(copied):
    for file in (file for file in FILES if file != "problems.jsonl"):
        content = (copied / file).read_bytes()
        shutil.copy(copied.parents[1] / "1" / "hand" / file, copied / file)
        with raises(RecordError):
            tabulated(copied)
        (copied / file).write_bytes(content)
