"""Letters of choices as models write them. One that is named clearly counts. Two, or none, are unparsed."""

from gar.types import Status
from gar.verify import parse_response
from gar.verify.answers import grade_answer, grade_exactly
from gar.verify.choices import chosen_letters, is_choice

# Final answers that name C, and the whole responses without tags or box that do.
NAMES_C = [
    "C", "c", "C.", "(C)", "(c)", "(c).", "[C]", "{C}", "C)", "**C**", "**(C)**", "**C", "$C$", r"\(C\)", " C\n",
    r"\text{C}", r"\text{(C)}", r"\mathrm{C}", r"\mathbf{(C)}", r"\boxed{C}", r"\boxed{\text{C}}", "\u200bC",
    "Answer: C.", "Answer: (C)", "**Answer:** C", "**Answer: C**", "The answer is (c)", "the answer is **C**.",
    "So the correct answer is: C", "The best option is C", "Option C", "option (C)", "choice C.",
    "C) 12 km", "C. 12 km", "(C) 12 km", "C: 12 km", "C - 12 km", "[C] 12 km", "(c) 12 km", "**C.** 12 km",
    "the answer is (C) because it is the only odd one", "C, since 3 is odd", "C. 5 A", "C) 37 °A",
    "C. A large molecule", "C. 12 km. Answer: C", "C. $x_A^2$", "C) an Apple", r"\textbf{(C) }12",
]  # fmt: skip
SEVERAL = [
    "C or D", "C and D", "C, D", "C/D", "C & D", "(C)(D)", "(C), (D)", "(c) (d)", "C) or (D)", "C. or D.", "A C",
    "C\nD", r"C \text{ or } D", "Both B and C", "C, not D", "the answer is C or D", "A) 3 B) 4 C) 5", "A, B, C, D",
    "C) 12 km (D) 13 km", "C. D", "C. A and D", "c) 3 d) 4", "Either C or A", "(A) (B)", "A) or B)", "A. one; B. two",
    "C: vitamin A",
]  # fmt: skip
NAMES_NONE = [
    "", "12 km", "Carbon", "CC", "ABCDEFGHIJ", "C = 3", "E = mc^2", "not C", "the answer is not C", "(C) is wrong",
    "C isn't right", "I choose C", "A large molecule", "a large molecule", "K", "(k)", "all of them", "C, d", "-C",
    "2C", "(C) perhaps", "Call me", "C: no", "C. wrong", "(C) I think", "(C) probably not", "C. No reaction occurs",
]  # fmt: skip


def test_grade_exactly_choice_named_clearly() -> None:
    for answer in NAMES_C:
        for gold, status in (("C", Status.OK), ("(C)", Status.OK), (r"\text{C}", Status.OK), ("B", Status.WRONG)):
            graded = grade_exactly(answer, gold)
            assert graded is not None
            assert graded.status == status, answer


def test_grade_exactly_choice_with_the_text_that_it_has_in_the_prompt() -> None:
    prompt = "What happens? (B) It melts (C) No reaction   occurs, or so A said (D) Perhaps"
    for answer in ("C. No reaction occurs", "(C) no reaction occurs, or so A said", r"\textbf{(C) }No reaction occurs"):
        graded = [grade_exactly(answer, gold, prompt) for gold in ("C", r"\textbf{(C) }No reaction occurs", "D")]
        assert [outcome and outcome.status for outcome in graded] == [Status.OK, Status.OK, Status.WRONG]


def test_grade_answer_several_choices_or_none_are_unparsed_whichever_is_right() -> None:
    for answer in [*SEVERAL, *NAMES_NONE]:
        expected = ("names several choices",) if answer in SEVERAL else ("names no choice", "the answer is empty")
        for gold in "ABCDEI":
            graded = grade_answer(answer, gold)
            assert (graded.status, graded.grade) == (Status.UNPARSED, 0.0), answer
            assert graded.detail.partition(":")[0] in expected, answer


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
        "C or\nD or E": "DE",
    }.items():
        assert chosen_letters(parse_response(text, format="none").answer or "") == letters, text
