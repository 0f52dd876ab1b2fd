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


@pytest.mark.parametrize(("text", "value"), READ)
def test_stated_value_is_read(text: str, value: str) -> None:
    assert stated_value(text) == value


@pytest.mark.parametrize("text", NOT_READ)
def test_stated_value_leaves_what_states_none_or_several(text: str) -> None:
    assert stated_value(text) in (text, text.rstrip("."))


@pytest.mark.parametrize(
    ("text", "value"),
    [(r"\frac{1}{2}\text{ cm}^2", r"\frac{1}{2}"), ("3+15 apples", "3+15"), ("5 m/s", "5"), ("7 or so", "7 or so"),
     (r"2\pi", r"2\pi"), ("7 minus something", "7 minus something"), ("18x", "18x"), (r"\sqrt{2} cm", r"\sqrt{2}")],
)  # fmt: skip
def test_without_unit(text: str, value: str) -> None:
    assert without_unit(text) == value


def number_answers(data_dir: Path, limit: int | None) -> list[tuple[str, str, bool]]:
    """Final answers of real model solutions, gold answers, and the labels."""
    rows = [json.loads(line) for line in (data_dir / "gsm8k_model_solutions_300.jsonl").read_text().splitlines()]
    answers = []
    for row in rows[:limit]:
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"):
            last = row[model]["solution"].rpartition("A:")[2].strip()
            answers.append((last, gold, row[model]["is_correct"]))
    return answers


@pytest.mark.data
@pytest.mark.slow
def test_all_real_answers_keep_their_verdict_in_other_words(data_dir: Path) -> None:
    answers = number_answers(data_dir, None)
    assert len(answers) == 1200
    with Verifier() as verifier:
        texts = [wrap.format(answer) for wrap in WRAPS + NUMBER_WRAPS for answer, _, _ in answers]
        verdicts = verifier.verify(
            [f"<answer>{text}</answer>" for text in texts], [gold for _, gold, _ in answers] * (len(texts) // 1200)
        )
    assert [v.verified for v in verdicts] == [right for _, _, right in answers] * (len(texts) // 1200)


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
