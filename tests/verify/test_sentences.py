"""Answers in words: a sentence that states one value is read, and real answers keep their verdicts when re-wrapped."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from gar.types import Status
from gar.verify import Verifier
from gar.verify.sentences import stated_value, without_unit

WRAPS = [
    "{}", "The answer is {}.", "Answer: {}", "**Answer: {}**", "The final answer is ${}$.", "So the answer is ${}$",
    "= {}",
    "Therefore, the final answer is: {}.", r"The answer is \({}\).", "**{}**", "The correct answer is **{}**.",
    "{{{}}}",
    "Thus the result is ${}$.", r"\boxed{{{}}}", "It is {}.", "Final answer: {}",
]  # fmt: skip
"""Each must keep a verdict, whatever the answer is."""
NUMBER_WRAPS = [
    "{} (minutes)", "{} apples", "She has {} apples left.", "In total there are ${} to pay.", "x = {}", "${} dollars",
    "He needs {} more days, so he is late.", "Total cost = ${}", "The total number of coins is {}.", "n is {}",
]  # fmt: skip
"""For numbers alone: units, and sentences without the word answer."""

READ = [
    ("The answer is 78.", "78"), ("Answer: 78", "78"), ("The final answer is $78$.", "78"), ("she has 78 left", "78"),
    ("So the total is $78.50.", "$78.50"), ("the answer is $x = 3$", "x = 3"),
    (r"It costs \(\frac{7}{2}\) dollars", r"\frac{7}{2}"),
    ("The answer is 3 1/2 cups", "3 1/2"), ("Rosa spent -$10 in all.", "-$10"), ("x is 78%", "78%"),
]  # fmt: skip
NOT_READ = [
    "3 or 7", "3 and 7", "not 78", "half of 78", "78 or so", "perhaps 78", "between 3 and 7", "at least 78 apples",
    "about 78",
    "All powers of 2", "a multiple of 3", "78 x", "seven", "He has 3 of 7 apples", "if x is 3", "78 of the 100 apples",
    "the answer depends on n", "x + 3 apples", "I guess 78", "minus 7", "7 lakh", "x 78", "sum of 3 and 4",
    "the 7th day", "78.",
]  # fmt: skip


WITHOUT_UNIT = {
    r"\frac{1}{2}\text{ cm}^2": r"\frac{1}{2}", "3+15 apples": "3+15", "5 m/s": "5", r"\sqrt{2} cm": r"\sqrt{2}",
    **{text: text for text in ("7 or so", r"2\pi", "7 minus something", "18x")},
}  # fmt: skip


def test_stated_value_and_unit_of_a_text() -> None:
    assert {text: stated_value(text) for text, _ in READ} == dict(READ)
    assert [text for text in NOT_READ if stated_value(text) not in (text, text.rstrip("."))] == []
    assert {text: without_unit(text) for text in WITHOUT_UNIT} == WITHOUT_UNIT


@pytest.mark.data
@pytest.mark.slow
def test_all_real_answers_keep_their_verdict_in_other_words(data_dir: Path) -> None:
    lines = (data_dir / "gsm8k_model_solutions_300.jsonl").read_text().splitlines()
    models = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
    answers = [(row[model], row["ground_truth"]) for row in map(json.loads, lines) for model in models]
    wraps = [f"<answer>{wrap}</answer>" for wrap in WRAPS + NUMBER_WRAPS]
    golds = [gold.rpartition("A:")[2].strip() for _, gold in answers]
    texts = [wrap.format(given["solution"].rpartition("A:")[2].strip()) for wrap in wraps for given, _ in answers]
    with Verifier() as verifier:
        verdicts = verifier.verify(texts, golds * len(wraps))
    assert [v.verified for v in verdicts] == [given["is_correct"] for given, _ in answers] * len(wraps)


@pytest.mark.data
def test_every_training_answer_verifies_against_itself(data_dir: Path) -> None:
    rows = [json.loads(line) for line in (data_dir / "gsm8k_train_2000.jsonl").read_text().splitlines()]
    golds = [row["answer"].rpartition("####")[2].strip() for row in rows]
    with Verifier(format="none") as verifier:
        verdicts = verifier.verify([row["answer"] for row in rows], golds, prompts=[row["question"] for row in rows])
    assert Counter(verdict.status for verdict in verdicts) == {Status.OK: 2000}


@pytest.mark.data
@pytest.mark.slow
def test_imo_answers_keep_their_verdict_in_other_words(data_dir: Path) -> None:
    with (data_dir / "imo_answerbench_v2.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    golds = [row["Short Answer"].strip().rstrip(".").strip() for row in rows]
    plain = [
        gold[1:-1] if gold.startswith("$") and gold.endswith("$") and gold.count("$") == 2 else gold for gold in golds
    ]
    wraps = [wrap for wrap in WRAPS if "$" not in wrap and r"\(" not in wrap and wrap != "{{{}}}"]
    texts = [f"<think></think><answer>{wrap.format(answer)}</answer>" for wrap in wraps for answer in plain]
    with Verifier(timeout_seconds=20.0) as verifier:
        verdicts = verifier.verify(texts, golds * len(wraps), prompts=[row["Problem"] for row in rows] * len(wraps))
    odd = Counter(
        (wrap, verdict.status) for wrap, verdict in zip([w for w in wraps for _ in golds], verdicts, strict=True)
        if not verdict.verified
    )  # fmt: skip
    assert odd == {}
