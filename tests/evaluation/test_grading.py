"""Grading of samples: choice letters as models write them, votes by value, and the numbers of `score`."""

import time

import pytest

from gar.evaluation.folder import EvaluationFolder
from gar.evaluation.grading import choice_verdict, equal_answers, score, vote_pool
from gar.evaluation.job import ScoreSettings
from gar.evaluation.metrics import majority_at_k
from gar.types import Status

NAMES_C = [
    "C", "c", "(C)", "(c)", "[C]", "C.", "C)", "**C**", "**(C)**", r"\text{C}", r"\textbf{(C)}", r"$\mathrm{C}$",
    r"\boxed{C}", "Answer: C.", "the answer is (c)", "The correct answer is **C**.", "Option C", "choice (C)",
    "C. a noble gas", "C) a noble gas, as A has none", "C\u200e", "\u202bC",
]  # fmt: skip
NAMES_NONE = [
    "C: vitamin A", "A or B", "A, B", "A and B", "A/B", "(A) (B)", "A) or B)", "A. one; B. two", "A, B, C, D", "ABCD",
    "not A", "a noble gas", "E", "7", "", "Call me", "C" * 5000,
]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "status"), [*((answer, Status.OK) for answer in NAMES_C), *((a, Status.UNPARSED) for a in NAMES_NONE)]
)
def test_choice_verdict_reads_one_letter_of_four_or_none(answer, status):
    text = f"<think>x</think><answer>{answer}</answer>"
    assert choice_verdict(text, "C", 4, format="think-answer").status == status


def test_choice_verdict_knows_as_many_letters_as_there_are_choices():
    text = "<think>x</think><answer>J</answer>"
    found = [choice_verdict(text, "J", number, format="think-answer").status for number in (9, 10)]
    assert found == [Status.UNPARSED, Status.OK]


@pytest.mark.parametrize(
    ("text", "format", "status", "well_formatted"),
    [
        ("<think> hm </think> <answer> (B) </answer>", "think-answer", Status.OK, True),
        ("<think> hm </think> <answer> C </answer>", "think-answer", Status.WRONG, True),
        ("<think> hm </think> <answer> B or C </answer>", "think-answer", Status.UNPARSED, True),
        ("<think> it is B", "think-answer", Status.UNPARSED, False),
        ("so \\boxed{B}", "boxed", Status.OK, True),
        ("Let's think step by step. ... The answer is (B).", "none", Status.OK, True),
        ("I am not sure.", "none", Status.UNPARSED, True),
    ],
)
def test_choice_verdict_follows_the_format(text, format, status, well_formatted):
    verdict = choice_verdict(text, "B", 4, format=format)
    assert (verdict.status, verdict.well_formatted) == (status, well_formatted)
    assert verdict.verified == (status is Status.OK)


@pytest.fixture(scope="module")
def pool():
    with vote_pool(num_workers=1, timeout_seconds=2.0) as pool:
        yield pool


def test_votes_are_by_value_not_by_spelling(pool):
    (votes,) = equal_answers(pool, [["1/2", r"\frac{1}{2}", "0.5", "2", "2.0", "1/2", "3"]])
    assert votes == {"1/2": "1/2", r"\frac{1}{2}": "1/2", "0.5": "1/2", "2": "2", "2.0": "2", "3": "3"}


def test_votes_of_problems_do_not_mix(pool):
    assert equal_answers(pool, [["1", "1.0"], [], ["1.0", "7"]]) == [
        {"1": "1", "1.0": "1"},
        {},
        {"1.0": "1.0", "7": "7"},
    ]


@pytest.mark.slow
def test_votes_of_hostile_answers_are_their_own_and_take_bounded_time(pool):
    hostile = ["9^{9^{9^9}}", r"\frac{1}{" * 5000, "{" * 100, "1" * 100_000, "x" * 3000, "\x00"]
    start = time.monotonic()
    (votes,) = equal_answers(pool, [["7", *hostile, "7.0"]])
    assert time.monotonic() - start < 60
    assert votes["7.0"] == "7"
    assert all(votes[answer] == answer for answer in hostile)


# Through the whole of `score`, on samples written by hand.


def write_set(path, samples, answers, num_choices=0, form="boxed"):
    """An evaluation whose samples are the given texts, a list for each answer."""
    folder = EvaluationFolder(path)
    num_samples = len(samples[0])
    problems = [
        {"id": f"p{i}", "prompt": "?", "answer": answer, "num_choices": num_choices, "category": "ab"[i % 2]}
        for i, answer in enumerate(answers)
    ]
    identity = {
        "benchmark": {"name": "hand", "problems_sha256": "0", "num_problems": len(answers), "notes": []},
        "prompt": {"form": form, "format": form, "prompts_sha256": "0"},
        "sampling": {"num_samples": num_samples, "temperature": 1.0, "top_p": 1.0, "seed": 0, "max_new_tokens": 9},
        "model": {"name": "by hand"},
    }
    folder.begin(identity, problems, overwrite=False)
    folder.samples.append(
        (
            {"problem": f"p{i}", "sample": j, "text": text, "tokens": [1, 2], "stop": "end", "prefilled_think": False}
            for i, texts in enumerate(samples)
            for j, text in enumerate(texts)
        ),
    )
    return folder


SETTINGS = ScoreSettings(num_workers=1, timeout_seconds=2.0)


def test_score_counts_votes_by_value(tmp_path):
    answers = ("1/2", "0.5", r"\frac{1}{3}", "1/3", "2/6", "7")
    texts = [*(rf"\boxed{{{answer}}}" for answer in answers), "none"]
    metrics = score(write_set(tmp_path, [texts], [r"\frac12"]), SETTINGS)
    assert metrics["problems"] == [{"id": "p0", "category": "a", "num_correct": 2, "wrong_votes": [3, 1]}]
    assert metrics["majority_at"] == {str(k): majority_at_k(2, [3, 1], 1, k) for k in (1, 2, 4, 7)}
    assert metrics["pass_at"]["7"] == 1.0


def test_score_lets_no_badly_formatted_answer_vote(tmp_path):
    good, bad = "<think> a </think> <answer> 7 </answer>", "<answer> 7 </answer>"
    wrong = "<think> a </think> <answer> 8 </answer>"
    folder = write_set(tmp_path, [[good, bad, bad, wrong]], ["7"], form="think-answer")
    metrics = score(folder, SETTINGS)
    assert metrics["problems"][0] == {"id": "p0", "category": "a", "num_correct": 1, "wrong_votes": [1]}
    assert (metrics["verified_fraction"], metrics["well_formatted_fraction"]) == (0.75, 0.5)
    assert metrics["majority_at"]["4"] == 0.5
    assert metrics["interval_95"] == {"1": None, "2": None, "4": None}  # one problem has no spread


def test_score_lets_an_unreadable_answer_vote_for_its_text(tmp_path):
    samples = [[r"\boxed{7}", r"\boxed{no idea}", r"\boxed{no idea}"]]
    metrics = score(write_set(tmp_path, samples, ["7"]), SETTINGS)
    assert metrics["problems"][0]["wrong_votes"] == [2]
    assert metrics["status_counts"]["unparsed"] == 2


def test_score_reads_letters_of_multiple_choice_and_reports_categories(tmp_path):
    samples = [
        [r"\boxed{B}", r"\boxed{C}"],
        [r"\boxed{A or B}", r"\boxed{B}"],
    ]
    metrics = score(write_set(tmp_path, samples, ["B", "B"], num_choices=4), SETTINGS)
    assert [each["num_correct"] for each in metrics["problems"]] == [1, 1]
    assert metrics["status_counts"] == {"ok": 2, "wrong": 1, "unparsed": 1, "timeout": 0, "error": 0}
    assert metrics["categories"] == {
        "a": {"num_problems": 1, "pass_at_1": 0.5}, "b": {"num_problems": 1, "pass_at_1": 0.5},
    }  # fmt: skip


def test_score_survives_hostile_samples_and_says_how_they_ended(tmp_path):
    nested = r"\boxed{" + r"\frac{1}{" * 10_000 + "}"
    hostile = [r"\boxed{9^{9^{9^9}}}", nested, r"\boxed{" * 500, "\x00", "1" * 1_000_000]
    metrics = score(write_set(tmp_path, [[*hostile, r"\boxed{7}"]], ["7"]), SETTINGS)
    assert metrics["problems"][0]["num_correct"] == 1
    assert sum(metrics["status_counts"].values()) == 6
    assert metrics["status_counts"]["ok"] == 1
