"""Twenty everyday endings of a solution: the right value is read in each, and the next number passes in none."""

import json
from pathlib import Path

import pytest

from gar.verify import Verifier

ENDINGS = [
    "<answer>{}</answer>",
    "<think>{working}</think> <answer> {} </answer>",
    "<reasoning>\n{working}\n</reasoning>\n<answer>\n{}\n</answer>",
    "<start_working_out>{working}<end_working_out><SOLUTION>{}</SOLUTION>",
    "Final Answer: The final answer is ${}$. I hope it is correct.",
    "Thus the total is {} minutes.\n\nLet me know if you need more help!",
    "The answer is {}.",
    "#### {}",
    "**Answer:**\n\n{}",
    "The answer is:\n\n$${}$$",
    r"### Answer: \( {} \)",
    "✅ **Final Answer: {}**",
    r"Therefore, the final answer is \(\boxed{{{}}}\).",
    r"So the answer is $\mathbf{{{}}}$.",
    r"\[ \boxed{{{}}} \text{{ minutes}} \]",
    "**{} minutes**",
    "So she needs **{}** minutes in total. Hope this helps!",
    "<|channel|>analysis<|message|>{working}<|end|><|start|>assistant<|channel|>final<|message|>"
    "It is **{}**.<|return|>",
    "所以答案是{}。",
    "Final answer → {}<|end|>",
]


@pytest.mark.data
def test_everyday_endings_are_read_and_a_wrong_value_passes_in_none(data_dir: Path) -> None:
    lines = (data_dir / "gsm8k_test.jsonl").read_text().splitlines()[:40]
    rows = [(row["question"], *row["answer"].split("\n#### ")) for row in map(json.loads, lines)]
    golds = [gold.strip() for _, _, gold in rows]
    wrong = [str(int(gold.replace(",", "")) + 1) for gold in golds]

    def responses(ending: str, values: list[str]) -> list[str]:
        draft = "" if "{working}" in ending else "{working}\n\n"
        return [
            (draft + ending).replace("{working}", working.replace("{", "{{").replace("}", "}}")).format(value)
            for (_, working, _), value in zip(rows, values, strict=True)
        ]

    with Verifier(format="none") as verifier:
        for ending in ENDINGS:
            problems = [problem for problem, _, _ in rows]
            read = verifier.verify(responses(ending, golds), golds, prompts=problems)
            assert sum(verdict.verified for verdict in read) >= 39, ending
            twins = verifier.verify(responses(ending, wrong), golds, prompts=problems)
            assert not any(verdict.verified for verdict in twins), ending
