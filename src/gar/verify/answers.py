"""Does an answer equal the gold answer? Pure functions, without a time limit of their own: `workers.py` has one.

Plain numbers are compared exactly, which costs microseconds; everything else goes to math-verify, which can take
seconds, gigabytes, or forever.
"""

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any

from gar.types import Status
from gar.verify.choices import chosen_letters, is_choice

MAX_ANSWER_CHARS = 2_000  # the longest of IMO-AnswerBench's 400 has under 200
MAX_NESTING = 30  # math-verify needs a second for 100 fractions in one another
MAX_DETAIL_CHARS = 500
WARM_UP = (
    (r"\frac{1}{2}", "0.5"),
    ("x(x+3)-2", "x^2+3x-2"),
    ("(3, 4)", "(4, 3)"),
    (r"\sqrt{12}+\pi", r"2\sqrt{3}"),
    (r"(-\infty, 0]", r"(-\infty, 1)"),
)
"""Answers and gold answers that make SymPy import and cache what ordinary ones need: a second and a half of work."""

# 1234  1,234  1{,}234  1\,234  1 234  +7  -$7.50  \$7
_NUMBER = re.compile(
    r"(?P<sign>[-+]?)(?:\\?[$€£¥])? *"
    r"(?P<integer>[0-9]{1,3}(?P<separator>,|\{,\}|\\[,!]| )[0-9]{3}(?:(?P=separator)[0-9]{3})*|[0-9]+)?"
    r"(?P<fraction>\.[0-9]+|(?<=[0-9])\.?)"
)
# -3/4  \frac{-3}{4}  \dfrac{3}{4}
_FRACTION = re.compile(
    r"(?P<sign>-?)(?:(?P<over>[0-9]+)/(?P<under>[0-9]+)|\\[dtc]?frac *\{(?P<top>-?[0-9]+)\} *\{(?P<bottom>-?[0-9]+)\})"
)
_TEXT_COMMAND = re.compile(r"\\(?:text|textrm|textbf|textit|mathrm|mbox) *\{([^{}]*)\}")
_TEXT_WITH_NUMBER = re.compile(_TEXT_COMMAND.pattern.replace("[^{}]*", "[^{}0-9]*[0-9][^{}]*"))
_BASE = re.compile(r" *_ *\{? *([0-9]{1,2}) *\}?")
_SPACING = r"(?:\s|\\[ ,;:!]|~|\\quad)"
_WORDS = re.compile(r"[A-Za-z]{2,}(?:[ .-]+[A-Za-z]{2,}|/[A-Za-z]+)*[ .]*")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# After a number these are no units: they change its value, or hedge.
_VALUE_WORD = re.compile(
    "or|score|gross|dozens?|half|halves|(?:third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth)s?"
    "|(?:hundred|thousand|million|billion|trillion)(?:s|ths?)?|zero|one|two|three|four|five|six|seven|eight|nine|ten"
    "|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
    "|squared|cubed|factorial|mod|modulo|pi|sqrt|log|ln|sin|cos|tan"
)

_SIZED_FRACTION = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_SIZE_COMMAND = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z]) ?")
# Not between letters or digits, nor after a comma that could then stand in a number.
_IDLE_SPACE = re.compile(r"(?<![0-9A-Za-z,]) +| +(?![0-9A-Za-z])|(?<=,) +(?![0-9])")
_SPACE_BEFORE_TERM = re.compile(r"(?<=[-+*/=<>]) +(?=[A-Za-z])")

_ELLIPSIS = re.compile(r"(?:\\[lcd]?dots[a-z]?(?![A-Za-z])|\.\.\.|\u2026) *,? *")

_OPERATOR = r"(?:[-+*/×÷·]|\\times|\\cdot|\\div)"
_ARITHMETIC = re.compile(rf"(?:[0-9.()]|{_SPACING}|{_OPERATOR})+")
_UNDONE = re.compile(rf"[0-9)](?:{_SPACING}*{_OPERATOR}|{_SPACING}+[0-9]|{_SPACING}*\()")


@dataclass(frozen=True, kw_only=True, slots=True)
class Graded:
    """How the check of one answer ended: a verdict without the response's form.

    Example: Graded(status=Status.WRONG, grade=0.0)
    """

    status: Status
    grade: float = 0.0
    detail: str = ""


def grade_answer(answer: str, gold: str) -> Graded:
    r"""Whether `answer` equals `gold`, mathematically.

    A plain integer as gold (`18`, `1,234`, `$18`, `18.`) is compared exactly where the answer is a plain number,
    which may carry units (`18 dollars`, `3 million people`). Arithmetic left undone (`9*2` for 18) is wrong, so that
    a policy cannot earn a reward by copying the problem. A capital letter from A to J as gold is a choice: the answer
    must name it and no other (`(C)`, `The answer is C.`, `C) 12 km`). All else is math-verify's judgement of the whole
    answer, not of an expression found somewhere inside it: `3 or 7` is the set {3, 7}.

    Args:
        answer: The final answer, as `parse_response` finds it.
        gold: The right answer.

    Returns:
        OK or WRONG; UNPARSED where nothing can be made of the answer, or where it names several choices; ERROR where
        the gold answer cannot be parsed or the comparison failed, with the error's kind and text.
    """
    return grade_exactly(answer, gold) or _grade_by_math_verify(_tidy(answer), _tidy(gold))


def grade_exactly(answer: str, gold: str) -> Graded | None:
    """The verdict of `grade_answer` where it needs no parser, else None. Microseconds, and safe in any thread."""
    if not gold.strip():
        return Graded(status=Status.ERROR, detail="the gold answer is empty")
    if len(answer) > MAX_ANSWER_CHARS:
        return Graded(
            status=Status.UNPARSED, detail=f"the answer has {len(answer)} characters, more than {MAX_ANSWER_CHARS}"
        )
    if (depth := _nesting(answer)) > MAX_NESTING:
        return Graded(status=Status.UNPARSED, detail=f"brackets nested {depth} deep, more than {MAX_NESTING}")
    answer, gold = _tidy(answer), _tidy(gold)
    if not answer:
        return Graded(status=Status.UNPARSED, detail="the answer is empty")
    if answer == gold or _same_notation(answer) == _same_notation(gold):
        return _right_if(True)
    if is_choice(gold):
        return _grade_choice(answer, gold)
    if (gold_ratio := _ratio(gold)) is not None:
        ratio = _ratio(answer)
        return None if ratio is None else _right_if(ratio == gold_ratio)
    gold_number = _NUMBER.fullmatch(gold)
    if gold_number is None or gold_number["fraction"].strip(".0"):
        return None
    gold_value = _value(gold_number)
    number = _NUMBER.match(answer)
    if number is not None and number.end() == len(answer):
        return _right_if(_value(number) == gold_value)
    if _ARITHMETIC.fullmatch(answer) and _UNDONE.search(answer):
        return Graded(status=Status.WRONG, detail="arithmetic left undone")
    return None if number is None else _grade_quantity(number, gold_value)


def _grade_choice(answer: str, gold: str) -> Graded:
    letters = chosen_letters(answer)
    if len(letters) == 1:
        return _right_if(letters == chosen_letters(gold))
    detail = f"names several choices: {', '.join(letters)}" if letters else "names no choice"
    return Graded(status=Status.UNPARSED, detail=detail)


def _grade_quantity(number: re.Match[str], gold: Decimal) -> Graded | None:
    """A number and words: units do not count, a first word such as "million" multiplies, other such words are wrong.

    Or a number and the base that it is written in.
    """
    if base := _BASE.fullmatch(number.string, number.end()):
        return _right_if(_value_in_base(number[0], int(base[1])) == gold)
    rest = re.sub(_SPACING, " ", _TEXT_COMMAND.sub(r" \1 ", number.string[number.end() :])).strip()
    if not _WORDS.fullmatch(rest):
        return None
    first, *others = words = re.findall("[a-z]+", rest.lower())
    if first in _SCALES:
        words = others
    if any(map(_VALUE_WORD.fullmatch, words)):
        return Graded(status=Status.WRONG, detail="more than a number and its unit")
    return _right_if(_value(number, exponent=_SCALES.get(first, 0)) == gold)


def _right_if(right: bool) -> Graded:
    return Graded(status=Status.OK, grade=1.0) if right else Graded(status=Status.WRONG)


def _value(number: re.Match[str], exponent: int = 0) -> Decimal:
    """Exact: a Decimal made from text is never rounded, and compares without rounding."""
    integer = re.sub("[^0-9]", "", number["integer"] or "0")
    return Decimal(f"{number['sign']}{integer}{number['fraction'].rstrip('.')}e{exponent}")


def _ratio(text: str) -> Fraction | None:
    """The exact value of a fraction of two integers; None where `text` is none, or its denominator is 0."""
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    over, under = int(match["over"] or match["top"]), int(match["under"] or match["bottom"])
    return Fraction(-over if match["sign"] else over, under) if under else None


def _value_in_base(digits: str, base: int) -> int | None:
    """None where these are no digits of that base, or no base."""
    try:
        return int(digits, base) if base > 1 else None
    except ValueError:
        return None


def _nesting(text: str) -> int:
    return max(accumulate((char in "([{") - (char in ")]}") for char in text), default=0)


def _tidy(text: str) -> str:
    """Single spaces, no invisible marks; without surrounding math delimiters or bold, and without a full stop."""
    visible = text if text.isascii() else "".join(char for char in text if unicodedata.category(char) != "Cf")
    text = " ".join(visible.replace("\u2212", "-").split())
    if text.count("**") == 1:  # half of a bold "**Answer: 7**"
        text = text.removeprefix("**").removesuffix("**").strip()
    for opening, closing in (("**", "**"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("{", "}")):
        text = _without_full_stop(text)
        inner = text[len(opening) : -len(closing)]
        if text == opening + inner + closing and opening not in inner and closing not in inner:
            text = inner.strip()
    return _without_full_stop(text)


def _same_notation(text: str) -> str:
    """The same for two texts that differ in spaces and the size of fractions and brackets alone."""
    return _IDLE_SPACE.sub("", _SIZE_COMMAND.sub("", _SIZED_FRACTION.sub(r"\\frac", text)))


def _without_full_stop(text: str) -> str:
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


@dataclass(frozen=True, slots=True)
class _Parsed:
    expressions: list[Any]  # SymPy objects
    text: str


def _parse(text: str) -> _Parsed:
    """What math-verify makes of the whole of `text`; no expressions where it makes nothing of it."""
    import math_verify  # half a second: only where it is needed

    text = _ELLIPSIS.sub(" ", text)  # it reads some ellipses as nothing, and nothing of others
    # It would take the last letter of "x + c" for a unit and drop it, and drop all of "\text{ (or 8)}".
    text = _SPACE_BEFORE_TERM.sub("", _TEXT_WITH_NUMBER.sub(r"\1", text))
    found = math_verify.parse(
        rf"\boxed{{{text}}}",
        # The box first, and nothing but the box: never an expression found somewhere inside it.
        extraction_config=[math_verify.LatexExtractionConfig(boxed_match_priority=0)],
        extraction_mode="first_match",
        parsing_timeout=0,  # its limits are alarms, which only work in a main thread
        raise_on_error=True,
    )
    texts = [item for item in found if isinstance(item, str)]
    return _Parsed([item for item in found if not isinstance(item, str)], texts[0].strip() if texts else "")


_parse_gold = lru_cache(maxsize=256)(_parse)  # the responses of a group share it


def _grade_by_math_verify(answer: str, gold: str) -> Graded:
    import math_verify

    try:
        gold_parsed = _parse_gold(gold)
    except Exception as error:
        return Graded(status=Status.ERROR, detail=f"the gold answer {gold!r} cannot be parsed: {error_text(error)}")
    try:
        parsed = _parse(answer)
    except Exception as error:
        return Graded(status=Status.UNPARSED, detail=error_text(error))
    if not (parsed.expressions and gold_parsed.expressions):
        if parsed.text and parsed.text.casefold() == gold_parsed.text.casefold():
            return _right_if(True)
        if not gold_parsed.expressions:
            return Graded(status=Status.ERROR, detail=f"the gold answer {gold!r} cannot be parsed")
        return Graded(status=Status.UNPARSED, detail="not a mathematical expression")
    if bool(_ELLIPSIS.search(answer)) != bool(_ELLIPSIS.search(gold)):
        return Graded(status=Status.UNPARSED, detail="what an ellipsis leaves out cannot be compared")
    try:
        right = math_verify.verify(gold_parsed.expressions, parsed.expressions, timeout_seconds=0, raise_on_error=True)
    except Exception as error:
        return Graded(status=Status.ERROR, detail=error_text(error))
    wants_number = not any(item.free_symbols for item in gold_parsed.expressions)
    if not right and wants_number and not re.search("[0-9]", answer) and parsed.expressions[0].free_symbols:
        return Graded(status=Status.UNPARSED, detail="the gold answer is numeric, and the answer holds no number")
    return _right_if(right)


def error_text(error: BaseException) -> str:
    """Kind and text of an error, at most `MAX_DETAIL_CHARS` long. SymPy's errors can fail to print themselves."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}"[:MAX_DETAIL_CHARS]
