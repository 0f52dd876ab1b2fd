"""`parse_response`: the form of a response, and its final answer, are two separate facts."""

import time
from typing import get_args

import pytest

from gar.types import AnswerFormat, ResponseFormat, Tags
from gar.verify.boxes import last_boxed
from gar.verify.formats import FORMATS, parse_response

GOOD = "<think> 3 + 4 = 7 </think> <answer> 7 </answer>"
RELEASED = Tags(think_open="<|think|>", think_close="<|/think|>")

# text, answer, part of the reason ("" = well formatted)
THINK_ANSWER = [
    (GOOD, "7", ""),
    (f"\n {GOOD} \n\n", "7", ""),
    ("<think></think><answer>7</answer>", "7", ""),
    ("<think>\\boxed{3}</think><answer>so \\boxed{7}</answer>", "7", ""),
    ("<think>a</think><answer>\\boxed{}</answer>", "\\boxed{}", ""),
    ("<think> 3 + 4 <answer> 7 </answer>", None, "0 </think>, expected 1"),
    ("3 + 4 </think> <answer> 7 </answer>", "7", "0 <think>, expected 1"),
    ("<answer> 7 </answer>", "7", "0 <think>, expected 1"),
    ("<think> 7 </think> 7", None, "0 <answer>, expected 1"),
    ("<think> 7 </think> <answer> 7", None, "0 </answer>, expected 1"),
    ("<think> 7 </think> 7 </answer>", None, "0 <answer>, expected 1"),
    (f"{GOOD} {GOOD}", "7", "2 <think>, expected 1"),
    (f"{GOOD} <answer> 8 </answer>", "8", "2 <answer>, expected 1"),
    (f"{GOOD} <answer> 8", "7", "2 <answer>, expected 1"),
    ("<think> a <think> b </think> </think> <answer> 7 </answer>", "7", "2 <think>, expected 1"),
    ("<think> a </think> <answer> 6 <answer> 7 </answer> </answer>", "7", "2 <answer>, expected 1"),
    ("</think> a <think> <answer> 7 </answer>", None, "out of order"),
    ("<answer> 7 </answer> <think> a </think>", "7", "out of order"),
    ("<think> a </think> </answer> 7 <answer>", None, "out of order"),
    ("<think> a <answer> 7 </answer> </think>", None, "out of order"),
    ("<think> a <answer> 7 </think> </answer>", None, "out of order"),
    (f"So: {GOOD}", "7", "text outside"),
    (f"{GOOD} Done.", "7", "text outside"),
    ("<think> a </think> so <answer> 7 </answer>", "7", "text outside"),
    ("<think> a </think> <answer> \n </answer>", None, "empty answer"),
    ("", None, "0 <think>"),
    ("<|im_end|>", None, "0 <think>"),
    ("<Think> a </Think> <answer> 7 </answer>", "7", "0 <think>"),
]


PREFILLED = [
    ("3 + 4 = 7 </think> <answer> 7 </answer>", "7", ""),
    ("</think><answer>7</answer>", "7", ""),
    (GOOD, "7", "1 <think>, expected 0"),
    ("<answer>6</answer> </think> <answer> 7 </answer>", "7", "2 <answer>, expected 1"),
    ("<answer> 7 </answer>", None, "0 </think>, expected 1"),
    ("x </think> y <answer> 7 </answer>", "7", "text outside"),
]


def test_parse_response_think_answer_tables() -> None:
    for table, prefilled in ((THINK_ANSWER, False), (PREFILLED, True)):
        for text, answer, reason in table:
            parsed = parse_response(text, prefilled_think=prefilled)
            assert (parsed.answer, parsed.well_formatted) == (answer, reason == ""), text
            assert reason in parsed.reason
            assert bool(parsed.reason) != parsed.well_formatted


def test_parse_response_takes_other_tags() -> None:
    released = "<|think|> a <|/think|> <answer> 7 </answer>"
    assert parse_response(released, tags=RELEASED).well_formatted
    assert not parse_response(released).well_formatted
    assert not parse_response(GOOD, tags=RELEASED).well_formatted


BOXED = [
    (r"so \boxed{7}", "7", True),
    (r"\boxed{6} no, \boxed{7}.", "7", True),
    (r"<think> \boxed{6} </think> \boxed{7}", "7", True),
    (r"<think> \boxed{6} </think> it is 7", None, False),
    (r"<think> \boxed{6} and no end", None, False),
    (r"\boxed{7} <think> \boxed{6} and no end", None, False),
    (r"\boxed{}", None, False),
    (r"\boxed{7", None, False),
    ("7", None, False),
]


def test_parse_response_boxed_table() -> None:
    for text, answer, well_formatted in BOXED:
        parsed = parse_response(text, format="boxed")
        assert (parsed.answer, parsed.well_formatted) == (answer, well_formatted), text


def test_formats_are_those_that_settings_name_and_each_but_none_can_be_asked_for() -> None:
    asked = tuple(name for name, format in FORMATS.items() if format.instruction(Tags()))
    assert tuple(FORMATS) == get_args(ResponseFormat), "types.py: ResponseFormat, as in verify/formats.py"
    assert asked == get_args(AnswerFormat), "types.py: AnswerFormat, as in verify/formats.py"


FREE = [
    ("3 + 4 = 7\nA: 7", "7"),
    ("A: 6\nno\nA: 7\n", "7"),
    ("work\n#### 1,234", "1,234"),
    ("**Answer:** 7", "7"),
    ("Final answer: x + 1", "x + 1"),
    (r"A: 6. In a box: \boxed{7}", "7"),
    ("The answer is 7.5 apples. I checked.", "7.5 apples"),
    ("the answer is 6. No, the answer is: 7", "7"),
    ("16-3-4=9", "16-3-4=9"),
    ("10-7", "10-7"),
    ("it falls to -7 degrees", "-7 degrees"),
    ("she pays $1,234.50.", "$1,234.50"),
    ("<think> the answer is 6 </think> about 7", "about 7"),
    ("<think> 6 </think> I cannot say", "I cannot say"),
    ("<think> maybe 7, but", None),
    ("I cannot say", "I cannot say"),
    # Whole, or not at all.
    (r"so $2\sqrt{3}$", r"so $2\sqrt{3}$"),
    ("2^{78}", "2^{78}"),
    ("(2, 3)", "(2, 3)"),
    ("We get 2, 3.", "2, 3"),
    ("Each costs 39, so 2 * 39 = 78 dollars.", "78 dollars"),
    ("A dozen is 12. So they cost $100 + $20 = $<<100+20=120>>120.", "$120"),
    ("There are 3 pens. Tom has 78 apples left.", "78"),
    ("x is 3 or 78", "3 or 78"),
    ("2 * 39 = 78 or so", "2 * 39 = 78 or so"),
    ("The value is not 78.", "The value is not 78"),
    ("I do not think the answer is 78.", "I do not think the answer is 78."),
    ("Thus\n\\[\n x = 78\n\\]\n", "x = 78"),
    ("All powers of 2", "All powers of 2"),
    (" \n", None),
]


def test_parse_response_none_finds_the_answer() -> None:
    for text, answer in FREE:
        parsed = parse_response(text, format="none")
        assert (parsed.answer, parsed.well_formatted) == (answer, True), text


BOXES = [
    (r"\boxed{\frac{1}{2}} and \boxed{\{1, 2\}}", r"\frac{1}{2}, \{1, 2\}"),
    (r"\boxed{\boxed{7}}", "7"),
    (r"\boxed{7} \boxed{8", "7"),
    (r"{ \boxed {7}", "7"),
    (r"\boxed{a \boxed{b} c}", "b"),
    (r"\boxed{\left\{1\right.}", r"\left\{1\right."),
    (r"\boxed{}", ""),
    (r"} \fbox{7}", "7"),
    (r"\\boxed{7}", "7"),
    (r"\boxed{{7}", ""),
    (r"boxed{7}", ""),
    ("\\boxed{" * 10_000 + "7" + "}" * 10_000, "7"),
    ("{" * 10_000 + r"\boxed{7}", "7"),
]


def test_last_boxed_matches_braces() -> None:
    for text, content in BOXES:
        assert last_boxed(text) == content, text[:40]


@pytest.mark.parametrize(
    "text",
    [
        *(
            part * (200_000 // len(part))
            for part in ("\\boxed{", "{", "\\", "<think>", "</think>", "<answer>", "9", " ")
        ),
        "answer is" + " " * 200_000,
        "<think>" + " " * 100_000 + "</think>" + " " * 100_000 + "x<answer>7</answer>",
        " " * 200_000 + "</think> x <answer>7</answer>",
    ],
)
def test_parse_response_time_is_linear(text: str) -> None:
    started = time.process_time()
    for response_format in ("think-answer", "boxed", "none"):
        for prefilled in (False, True):
            parse_response(text, format=response_format, prefilled_think=prefilled)
    assert time.process_time() - started < 10  # about 0.5 s. Quadratic time would be minutes
