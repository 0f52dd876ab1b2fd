"""Small files of our own, with the columns that each benchmark is published with."""

from typing import Any

MATHARENA = [
    {"problem_idx": 1, "problem": "What is $1+1$?", "answer": 2, "problem_type": ["Number Theory", "Algebra"]},
    {"problem_idx": 2, "problem": "What is half of one?", "answer": "\\frac{1}{2}", "problem_type": ["Algebra"]},
]
IMO = [
    {"Problem ID": "imo-1", "Problem": "Find $x$, \"the\" root,\nof $x=3$.", "Short Answer": "$3$.",
     "Category": "Algebra", "Subcategory": "Equation", "Source": "ours"},
    {"Problem ID": "imo-2", "Problem": "Name a number.", "Short Answer": "7", "Category": "Number theory",
     "Subcategory": "x", "Source": "ours"},
]  # fmt: skip
GPQA = [
    {"Question": f"Question {number}?", "Correct Answer": "right", "Incorrect Answer 1": "one",
     "Incorrect Answer 2": "two", "Incorrect Answer 3": "three", "Record ID": f"rec{number}"}
    for number in range(40)
]  # fmt: skip
MMLU_PRO = [
    {"question_id": 70 + number, "question": f"Which is {number}?", "options": ["zero", "one", "two"],
     "answer": "ABC"[number], "answer_index": number, "category": ["math", "law", "law"][number], "src": "ours",
     "cot_content": ""}
    for number in range(3)
]  # fmt: skip
MATH = [
    {"problem": "What is $2^3$?", "solution": "$8$", "answer": "8", "subject": "Algebra", "level": 1,
     "unique_id": "test/algebra/1.json"}
]  # fmt: skip
GSM8K = [{"question": "Two and a thousand?", "answer": "2 + 1000 = 1002\n#### 1,002"}]

ROWS: dict[str, list[dict[str, Any]]] = {
    "aime-2026": MATHARENA,
    "hmmt-feb-2025": MATHARENA,
    "hmmt-feb-2026": MATHARENA,
    "imo-answerbench-v1": IMO,
    "imo-answerbench-v2": IMO,
    "gpqa-diamond": GPQA,
    "mmlu-pro": MMLU_PRO,
    "math-500": MATH,
    "gsm8k": GSM8K,
}
