r"""Compare an answer with the gold answer. Pure functions without a time limit. `workers.py` sets one.

Plain numbers are compared exactly, in microseconds. Everything else goes to math-verify's grammar and SymPy, which can
take seconds, gigabytes, or forever. An answer must be worked out: `3+15` is not 18, and `\sqrt{12}` is `2\sqrt{3}`
unless the prompt holds it.
"""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from gar.types import Status
from gar.verify.choices import chosen_letters, is_choice
from gar.verify.format import MAX_ANSWER_CHARS
from gar.verify.numbers import equal_rationals, is_base_copy, is_quantity, is_undone_arithmetic, plain_number, ratio
from gar.verify.sentences import (
    changing_word,
    has_letters,
    has_words,
    plain_words,
    stated_value,
    unit_of,
    unreadable,
    without_full_stop,
    without_lead,
    without_unit,
)

if TYPE_CHECKING:
    from gar.verify.expressions import Parsed

MAX_NESTING = 30  # math-verify needs a second for 100 fractions in one another
MAX_DETAIL_CHARS = 500
WARM_UP = (
    (r"\frac{1}{2}", "0.5"),
    ("x(x+3)-2", "x^2+3x-2"),
    ("(3, 4)", "(4, 3)"),
    (r"\sqrt{12}+\pi", r"2\sqrt{3}"),
    (r"(-\infty, 0]", r"(-\infty, 1)"),
)
"""Answers and gold answers that make SymPy import and cache what ordinary ones need: 1.5 seconds of work."""

_SIZED_FRACTION = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_SIZE_COMMAND = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z]) ?")
# Not between letters or digits, nor after a comma that could then stand in a number.
_IDLE_SPACE = re.compile(r"(?<![0-9A-Za-z,]) +| +(?![0-9A-Za-z])|(?<=,) +(?![0-9])")
_TEXT = re.compile(
    r"\\(?:text|textrm|textbf|textit|mathrm|mbox) *\{((?:[^{}]|\{[^{}]*\})*)\}(?P<last>(?:\^\{?[0-9]\}?)?$)?"
)
_SAYS_MORE = re.compile(r"[0-9]|\b(?:and|or)\b")
_SPACE_BEFORE_TERM = re.compile(r"(?<=[-+*/=<>]) +(?=[A-Za-z])")

# Other ways to write a mark. A superscript after 10 is its power.
_SPELLINGS = (
    (re.compile("\u00b0"), r"^\\circ"),
    (re.compile("[\u2212\u2013]"), "-"),
    (re.compile(r"\^\{ *\\circ *\}"), r"^\\circ"),
    (re.compile("\u221a *([0-9]+)"), r"\\sqrt{\1}"),
    (re.compile("\u221a *"), r"\\sqrt"),
    (re.compile(r"\\varnothing(?![A-Za-z])|\u2205"), r"\\emptyset"),
    (
        re.compile("(?<=10)[\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+"),
        lambda power: f"^{{{unicodedata.normalize('NFKC', power[0])}}}",
    ),
)

_AROUND = (("**", "**"), ("`", "`"), ("<b>", "</b>"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("{", "}"))

_ELLIPSIS = re.compile(r"(?:\\[lcd]?dots[a-z]?(?![A-Za-z])|\.\.\.|\u2026) *,? *")


@dataclass(frozen=True, kw_only=True, slots=True)
class Graded:
    """The outcome of grading one answer: a verdict without the response's format.

    Example: Graded(status=Status.WRONG, grade=0.0)
    """

    status: Status
    grade: float = 0.0
    detail: str = ""


def grade_answer(answer: str, gold: str, prompt: str = "") -> Graded:
    r"""Whether `answer` equals `gold`, mathematically.

    * A capital letter from A to J as gold is a choice: the answer must name it and no other (`(C)`, `C) 12 km`).
    * Plain numbers are compared exactly, and may have units (`18 dollars`, `3 million people`).
    * A sentence is read where it states exactly one value (`The answer is 18.`, `She has 18 apples left`).
    * Arithmetic must be done: `9*2` and `\binom{18}{1}` are not 18. An operation that the gold answer has too may stay
      (`\sqrt{12}` for `2\sqrt{3}`), but not in an expression that is copied from the prompt.
    * Exact values must be equal. A decimal may differ from a gold answer that is not an integer by 2e-6 relative.
    * A hedge (`about 18`), a denial (`not 18`), or more values than the gold answer has (`3 or 7` for 3) is UNPARSED.
      For a gold answer of several values `3 or 7` is the set {3, 7}.
    * The rest is math-verify's judgment of the whole answer.

    Args:
        answer: The final answer, from `parse_response`.
        gold: The right answer.
        prompt: The problem's text, if known.

    Returns:
        OK or WRONG. UNPARSED where the answer cannot be read as exactly one value, or names several choices. ERROR
        where the gold answer cannot be parsed or the comparison failed, with the error's kind and text.
    """
    return grade_exactly(answer, gold, prompt) or _grade_expression(_tidy(answer), _tidy(gold), prompt)


def grade_exactly(answer: str, gold: str, prompt: str = "") -> Graded | None:
    """The verdict of `grade_answer` if it needs no parser, else None. Takes microseconds. Safe in any thread."""
    if not gold.strip():
        return Graded(status=Status.ERROR, detail="the gold answer is empty")
    if len(answer) > MAX_ANSWER_CHARS:
        return _unparsed(f"the answer has {len(answer)} characters, more than {MAX_ANSWER_CHARS}")
    if (depth := _nesting(answer)) > MAX_NESTING:
        return _unparsed(f"brackets nested {depth} deep, more than {MAX_NESTING}")
    answer, gold = _tidy(answer), _tidy(gold)
    if not answer:
        return _unparsed("the answer is empty")
    if _is_same(answer, gold):
        return _right_if(True)
    if is_choice(gold):
        return _grade_choice(answer, gold, prompt)
    gold, unit = _value_and_unit(gold)
    if unit and unit_of(answer) not in ([], unit):
        return Graded(status=Status.WRONG, detail="another unit than the gold answer has")
    return _grade_number(answer, gold, prompt) or _grade_stated(answer, gold, prompt)


@lru_cache(maxsize=256)  # the responses of a group share a gold answer
def _value_and_unit(gold: str) -> tuple[str, list[str]]:
    unit = unit_of(gold)
    value = without_unit(gold) if unit else gold
    return (gold, []) if _prose_words(value) else (value, unit)


def _grade_number(answer: str, gold: str, prompt: str) -> Graded | None:
    """The verdict where the gold answer is an integer or a fraction, and the answer a number, perhaps with a unit."""
    if (gold_ratio := ratio(gold)) is not None:
        value = ratio(answer)
        if value is None:
            return None
        reduced = [int(digits) for digits in re.findall("[0-9]+", answer)] == [abs(value.numerator), value.denominator]
        return None if prompt and not reduced and value == gold_ratio else _right_if(value == gold_ratio)
    gold_value = plain_number(gold)
    number = plain_number(answer)
    if gold_value is not None and number is not None:
        close = number != gold_value and gold_value != gold_value.to_integral_value()
        close = close and equal_rationals(Fraction(number), Fraction(gold_value), decimal=True)
        return _right_if(number == gold_value or close)
    if gold_value is None or gold_value != gold_value.to_integral_value():
        return None
    if is_undone_arithmetic(answer):
        return Graded(status=Status.WRONG, detail="arithmetic left undone")
    right = is_quantity(answer, gold_value)
    return None if right is None else _right_if(right, copied=is_base_copy(answer, prompt))


def _grade_stated(answer: str, gold: str, prompt: str) -> Graded | None:
    """The verdict on a value that is stated in a sentence, or on a sentence that states none."""
    if not has_words(answer):
        return None
    if _is_same(_tidy(without_lead(answer)), gold):
        return _right_if(True)
    if _prose_words(gold):
        return None
    value = _tidy(stated_value(answer))
    if value and value != answer:
        graded = _right_if(True) if _is_same(value, gold) else _grade_number(value, gold, prompt)
        if graded is not None:
            return graded
    why = unreadable(_expression(answer, gold), gold)
    return _unparsed(why) if why else None


def _grade_choice(answer: str, gold: str, prompt: str) -> Graded:
    letters = chosen_letters(answer, prompt)
    if len(letters) == 1:
        return _right_if(letters == chosen_letters(gold, gold))
    return _unparsed(f"names several choices: {', '.join(letters)}" if letters else "names no choice")


def _unparsed(why: str) -> Graded:
    return Graded(status=Status.UNPARSED, detail=why)


def _right_if(right: bool, *, copied: bool = False) -> Graded:
    if right and copied:
        return Graded(status=Status.WRONG, detail="an expression copied from the prompt")
    return Graded(status=Status.OK, grade=1.0) if right else Graded(status=Status.WRONG)


def _nesting(text: str) -> int:
    return max(accumulate((char in "([{") - (char in ")]}") for char in text), default=0)


def _tidy(text: str) -> str:
    """A text with single spaces, without invisible marks, a full stop, and math delimiters or bold around the whole."""
    visible = text if text.isascii() else "".join(char for char in text if unicodedata.category(char) != "Cf")
    if not text.isascii() or "\\" in text:
        for pattern, spelling in _SPELLINGS:
            visible = pattern.sub(spelling, visible)
    text = " ".join(visible.split())
    if text.count("**") == 1:  # half of a bold "**Answer: 7**"
        text = text.removeprefix("**").removesuffix("**").strip()
    if text[:1].isalnum() and text[-1:].isalnum():
        return text
    for opening, closing in _AROUND:
        text = without_full_stop(text)
        inner = text[len(opening) : -len(closing)]
        if text == opening + inner + closing and opening not in inner and closing not in inner:
            text = inner.strip()
    return without_full_stop(text)


def _is_same(answer: str, gold: str) -> bool:
    return answer == gold or _same_notation(answer) == _same_notation(gold)


def _same_notation(text: str) -> str:
    """A text without its idle spaces and the size of its fractions and brackets."""
    return _IDLE_SPACE.sub("", _SIZE_COMMAND.sub("", _SIZED_FRACTION.sub(r"\\frac", text)))


def _parse(text: str) -> "Parsed":
    """Parse the whole of a text as math-verify does."""
    from gar.verify.expressions import parse  # imports SymPy: only where it is needed

    text = _ELLIPSIS.sub(" ", text)  # math-verify ignores some ellipses and cannot parse others
    # math-verify would take the last letter of "x + c" for a unit and drop it.
    return parse(_SPACE_BEFORE_TERM.sub("", _TEXT.sub(_without_command, text)))


def _without_command(text: re.Match[str]) -> str:
    r"""math-verify would take `\text{...}` for a unit and drop it, even in `7\text{ (or 8)}` and `7\text{ or }8`."""
    unit = text["last"] is not None or not text.string.endswith("}")
    return text[0] if unit and not _SAYS_MORE.search(text[1]) else text[1]


_parse_gold = lru_cache(maxsize=256)(_parse)  # the responses of a group share a gold answer


def _grade_expression(answer: str, gold: str, prompt: str) -> Graded:
    import gar.verify.expressions  # noqa: F401  a broken library must not count as a bad answer

    gold, _ = _value_and_unit(gold)
    words = _prose_words(gold)
    answer = _tidy(without_lead(answer)) if words else _expression(answer, gold)
    try:
        gold_parsed = _parse_gold(gold)
    except Exception as error:
        return Graded(status=Status.ERROR, detail=f"the gold answer {gold!r} cannot be parsed: {error_text(error)}")
    try:
        parsed = _parse(answer)
    except Exception as error:
        return _unparsed(error_text(error))
    if words and _as_words(answer) == _as_words(gold):
        return _right_if(True)
    if words and (word := changing_word(answer, gold)):
        return _unparsed(f"the answer does not state one value: {word!r}")
    if parsed.value is None or gold_parsed.value is None:
        if parsed.text and parsed.text.casefold() == gold_parsed.text.casefold():
            return _right_if(True)
        if gold_parsed.value is None:
            return Graded(status=Status.ERROR, detail=f"the gold answer {gold!r} cannot be parsed")
        return _unparsed("not a mathematical expression")
    if words and words != _prose_words(answer):  # the parser would multiply the letters of words, in any order
        return _right_if(False)
    return _grade_parsed(answer, parsed, gold, gold_parsed, prompt)


def _grade_parsed(answer: str, parsed: "Parsed", gold: str, gold_parsed: "Parsed", prompt: str) -> Graded:
    from gar.verify.copies import is_copy
    from gar.verify.expressions import equal, lists_values
    from gar.verify.operations import undone

    if bool(_ELLIPSIS.search(answer)) != bool(_ELLIPSIS.search(gold)):
        return _unparsed("what an ellipsis leaves out cannot be compared")
    if not gold_parsed.value.free_symbols and not re.search("[0-9]", answer) and parsed.value.free_symbols:
        return _unparsed("the gold answer is numeric, and the answer holds no number")
    if lists_values(parsed, gold_parsed):
        return _unparsed("the answer lists several values, and the gold answer is one")
    if left := undone(parsed.tree, gold_parsed.tree):
        return Graded(status=Status.WRONG, detail=f"arithmetic left undone: {', '.join(sorted(left))}")
    try:
        right = equal(parsed, gold_parsed)
    except Exception as error:
        return Graded(status=Status.ERROR, detail=error_text(error))
    written_alike = _same_notation(parsed.text) == _same_notation(gold_parsed.text)
    return _right_if(right, copied=right and not written_alike and is_copy(parsed, gold_parsed, prompt))


def _expression(answer: str, gold: str) -> str:
    """The part of an answer that states its value, where the gold answer has no words."""
    value = _tidy(stated_value(answer)) or answer
    return value if has_letters(gold) else _tidy(without_unit(value))


def _prose_words(text: str) -> list[str]:
    """The words of a text that is prose. Letters with a vowel and not in alphabetical order are not a product `abc`."""
    words = plain_words(text)
    prose = any(len(word) > 2 and re.search("[aeiou]", word) and list(word) != sorted(word) for word in words)
    return words if prose else []


def _as_words(text: str) -> list[str]:
    return _TEXT.sub(r" \1 ", text).casefold().split()


def error_text(error: BaseException) -> str:
    """The kind and text of an error, at most `MAX_DETAIL_CHARS` long. SymPy's errors can fail to print themselves."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}"[:MAX_DETAIL_CHARS]
