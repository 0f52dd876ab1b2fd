"""`grade_answer`: what is never read, what needs no parser, and gold answers that cannot be parsed."""

from gar.types import Status
from gar.verify.answers import MAX_ANSWER_CHARS, Graded, grade_answer, grade_without_parser

HOSTILE = {
    "9" * 1_000_000: "1000000 characters",
    "9" * (MAX_ANSWER_CHARS + 1): f"more than {MAX_ANSWER_CHARS}",
    "{" * 500: "nested 500 deep",
    "\\frac{1}{" * 150 + "1" + "}" * 150: "nested 150 deep",
    "": "empty",
    "\u200f": "empty",
}


def test_grade_without_parser_refuses_hostile_answers_unread() -> None:
    for answer, detail in HOSTILE.items():
        graded = grade_without_parser(answer, "7")
        assert isinstance(graded, Graded)
        assert (graded.status, detail in graded.detail) == (Status.UNPARSED, True), detail


def test_grade_without_parser_leaves_expressions_to_the_workers() -> None:
    parser_free = [("7", "7"), ("7 km", "8"), ("B", "C"), ("Tuesday", "Monday"), ("x+1", "x+1"), ("3:4", "3:5")]
    assert all(isinstance(grade_without_parser(*pair), Graded) for pair in parser_free)
    for pair in (("1/2", r"\frac{1}{2}"), (r"\sqrt{12}", r"2\sqrt{3}"), ("x+1", "1+x"), (r"(B) \frac34", "(B) 3/4")):
        assert grade_without_parser(*pair) is None, pair


def test_grade_answer_of_deep_and_long_answers_ends_without_an_error() -> None:
    parts = [
        "x^",
        "m/s",
        "i^",
        "1/",
        "-",
        "!",
        "(",
        "\\frac",
        "\\sqrt",
        "|",
        "a(",
        "],",
        "\\cup",
        "e^",
        "9^9^",
        "{",
        "x,",
        "a_",
    ]
    for part in parts:
        for answer in (part * (2000 // len(part)), part * (900 // len(part)) + "7", "7" + part * (900 // len(part))):
            for gold in ("7", "x^2+1", r"\sqrt{2}+x", r"\{1,2\}", "(0,1)", "Tuesday"):
                assert grade_answer(answer, gold).status is not Status.OK
            assert grade_answer("8", answer).status is not Status.OK


def test_grade_answer_gold_that_cannot_be_parsed_is_an_error() -> None:
    for gold in ("T(p,q)=0 if (p,q)=(0,0), p+q otherwise",):
        assert grade_answer(gold, gold).status == Status.OK
        graded = grade_answer("7", gold)
        assert (graded.status, "cannot be parsed" in graded.detail) == (Status.ERROR, True)
