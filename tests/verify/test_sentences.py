"""Answers in words: real answers keep their verdicts when re-wrapped."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from gar.types import Status
from gar.verify import Verifier

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
    "He needs {} days, so he is late.", "Total cost = ${}", "The total number of coins is {}.", "n is {}",
]  # fmt: skip
"""For numbers alone: units, and sentences without the word answer."""


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
