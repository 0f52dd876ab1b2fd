"""Which gold answers are choices, and the letters that responses name. The verdicts are in `cases.tsv`."""

from gar.types import Status
from gar.verify import parse_response
from gar.verify.answers import grade_answer
from gar.verify.choices import chosen_letter, is_choice


def test_grade_answer_choice_with_the_text_that_it_has_in_the_prompt() -> None:
    prompt = "What happens? (B) It melts (C) No reaction   occurs, or so A said (D) Perhaps"
    for answer in ("C. No reaction occurs", "(C) no reaction occurs, or so A said", r"\textbf{(C) }No reaction occurs"):
        graded = [grade_answer(answer, gold, prompt) for gold in ("C", r"\textbf{(C) }No reaction occurs", "D")]
        assert [outcome.status for outcome in graded] == [Status.OK, Status.OK, Status.WRONG]


RESPONSES = [
    "It is odd.\n(C)", "It is odd.\n\n**C**\n", "3 + 4 = 7\nC.", "Answer: C.", "the answer is (c)", "C) 12",
    "# Result\n(c)", r"so \boxed{\text{C}}", "<think> B? the answer is B </think> The answer is **C**.",
]  # fmt: skip


def test_a_choice_is_one_capital_letter_up_to_j_and_found_in_a_response() -> None:
    assert all(map(is_choice, ["A", "J", "(B)", r"\text{(E)}"]))
    assert not any(map(is_choice, ["K", "c", "(c)", "AB", "x", "7", "A, B", r"\text{Evelyn}"]))
    for text, letters in {
        **dict.fromkeys(RESPONSES, "C"),
        "I choose C because of 12": "",
        "C or\nD or E": "",
    }.items():
        assert chosen_letter(parse_response(text, format="none").answer or "") == letters, text
