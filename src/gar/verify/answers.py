r"""Compare an answer with the gold answer. Pure functions without a time limit. `workers.py` sets one.

Plain numbers are compared exactly, in microseconds. Everything else goes to math-verify's grammar and SymPy, which can
take seconds, gigabytes, or forever. An answer must be worked out: `3+15` is not 18, and `\sqrt{12}` is `2\sqrt{3}`
unless the prompt holds it.
"""

import contextlib
import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from gar.types import Status
from gar.verify.choices import chosen_letters, is_choice
from gar.verify.format import MAX_ANSWER_CHARS
from gar.verify.latex import plain_latex
from gar.verify.numbers import (
    based,
    equal_values,
    is_base_copy,
    is_undone_arithmetic,
    plain_number,
    ratio,
    value_in_base,
)
from gar.verify.quantities import Quantity, Unread, is_prose, read_quantity, without_lead, without_marks, words_in
from gar.verify.words import DOUBTS, NEVER, Unit

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

_DIGITS = re.compile("-?[0-9]+(?:[,.][0-9]+)*")
# Not between letters or digits, nor after a comma that could then stand in a number.
_IDLE_SPACE = re.compile(r"(?<![0-9A-Za-z,]) +| +(?![0-9A-Za-z])|(?<=,) +(?![0-9])")
_AROUND = (("**", "**"), ("`", "`"), ("<b>", "</b>"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("{", "}"))
_ELLIPSIS = re.compile(r"(?:\\[lcd]?dots[a-z]?(?![A-Za-z])|\.\.\.|\u2026) *,? *")
_THOUSANDS = re.compile(r"(?<![0-9,.])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_CLOCK = re.compile(r"\b0?([0-9]{1,2})(?::00|(:[0-9]{2}))? *([ap])\.? ?m\b\.?", re.IGNORECASE)
_CHANGING = DOUBTS | {"or", "about", "approximately"}  # beside a gold answer in words
_RATIO = re.compile(r"[0-9]{1,50}(?: *(?::|\bto\b) *[0-9]{1,50})+")
_TIME = re.compile("[0-9]{1,2}:[0-5][0-9]")
_NAMES = re.compile("[A-Z]{2,}")
_NAME_LIST = re.compile(r"[A-Z](?:(?: *[,;] *| and )[A-Z])+")
_CONGRUENCE = re.compile(
    r"(?P<of>.+?) *\\equiv *(?P<rest>[^()]+?) *,?(?:\( *)?\\?[pb]?mod *\{? *(?P<modulus>[^{}()]+?) *\}? *\)?"
)


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
    return grade_exactly(answer, gold, prompt) or _grade_expression(answer, read_gold(gold), prompt)


@dataclass(frozen=True, kw_only=True)
class Gold:
    """A gold answer as it is read once. `words` is empty, except for a gold answer in words, such as `odd n`."""

    text: str
    choice: bool
    value: str
    unit: Unit
    percent: bool
    summed: bool
    words: list[str]
    letters: bool
    number: Decimal | None
    integer: bool
    ratio: Fraction | None


@lru_cache(maxsize=256)  # the responses of a group share a gold answer
def read_gold(gold: str) -> Gold:
    """What a gold answer consists of."""
    text = _tidy(gold)
    plain = without_marks(text)
    quantity, words = Quantity(plain), [word.lower() for word in _prose_words(plain)]
    letters = _has_letters(plain)
    kinds = () if _DIGITS.fullmatch(plain) else dict.fromkeys((False, letters))
    for of_letters in kinds:  # `78 h` has a unit, `2 h + 1` has letters
        with contextlib.suppress(Unread):
            nouns = frozenset[str]() if of_letters else None  # beside letters an unknown word is no unit
            read = read_quantity(plain, nouns=nouns, letters=of_letters, sentence=False)
            if of_letters or not _has_letters(read.value):
                quantity, words = read, []
                break
    number = plain_number(quantity.value)
    return Gold(
        text=text,
        choice=is_choice(text),
        value=quantity.value,
        unit=quantity.unit,
        percent=quantity.percent,
        summed=quantity.summed,
        words=words,
        letters=_has_letters(quantity.value),
        number=number,
        integer=number is not None and number == number.to_integral_value(),
        ratio=ratio(quantity.value),
    )


def grade_exactly(answer: str, gold: str, prompt: str = "") -> Graded | None:
    """The verdict of `grade_answer` if it needs no parser, else None. Takes microseconds. Safe in any thread."""
    if not gold.strip():
        return Graded(status=Status.ERROR, detail="the gold answer is empty")
    if len(answer) > MAX_ANSWER_CHARS:
        return _unparsed(f"the answer has {len(answer)} characters, more than {MAX_ANSWER_CHARS}")
    if (depth := _nesting(answer)) > MAX_NESTING:
        return _unparsed(f"brackets nested {depth} deep, more than {MAX_NESTING}")
    read = read_gold(gold)
    bare = not (read.unit or read.percent or read.choice) and plain_number(answer) is not None
    if bare and (graded := _grade_number(Quantity(answer), read, prompt)):
        return graded  # most answers
    answer = _tidy(answer)
    if not answer:
        return _unparsed("the answer is empty")
    if _is_same(answer, read.text):
        return _right_if(True)
    if read.choice:
        return _grade_choice(answer, read.text, prompt)
    return _grade_special(answer, read, prompt) or _grade_stated(answer, read, prompt)


def _grade_special(answer: str, gold: Gold, prompt: str) -> Graded | None:
    """The verdict where digits have a base, letters are names, or numbers are congruent: a parser would lose it."""
    answer = without_lead(without_marks(answer))
    digits, gold_digits = based(answer), based(gold.value)
    if gold_digits:
        return _right_if(digits == gold_digits)
    if digits:
        value, gold_value = value_in_base(*digits), plain_number(gold.value)
        right = value is not None and gold_value == value
        return _right_if(right, copied=is_base_copy(digits, prompt)) if gold_value is not None else None
    if _RATIO.fullmatch(answer) and _RATIO.fullmatch(gold.value):
        lowest = _TIME.fullmatch(gold.value) is None
        written = _parts(answer, lowest=False)
        copied = any(_parts(ratio[0], lowest=False) == written for ratio in _RATIO.finditer(prompt))
        right = _parts(answer, lowest=lowest) == _parts(gold.value, lowest=lowest)
        return _right_if(right, copied=copied and written != _parts(gold.value, lowest=False))
    if _NAMES.fullmatch(gold.value):
        return _right_if(answer == gold.value)
    if _NAME_LIST.fullmatch(gold.value):
        answer = answer.strip("\\{}() ")
        return _right_if(_capitals(answer) == _capitals(gold.value)) if _NAME_LIST.fullmatch(answer) else None
    if answer.count(r"\equiv") == gold.value.count(r"\equiv") == 1:
        congruence, gold_congruence = _CONGRUENCE.fullmatch(answer), _CONGRUENCE.fullmatch(gold.value)
        if not (congruence and gold_congruence):
            return None
        return _right_if(_residue(congruence) == _residue(gold_congruence))
    if r"\equiv" in answer and r"\equiv" not in gold.value:
        return Graded(status=Status.WRONG, detail="a congruence")
    return None


def _parts(ratio: str, *, lowest: bool) -> list[int]:
    parts = [int(digits) for digits in re.findall("[0-9]+", ratio)]
    return [part // (math.gcd(*parts) or 1) for part in parts] if lowest else parts


def _capitals(text: str) -> list[str]:
    return sorted(re.findall("[A-Z]", text))


def _residue(match: re.Match[str]) -> tuple[str, ...]:
    parts = [_same_notation(match[name].strip()) for name in ("of", "rest", "modulus")]
    if all(re.fullmatch("-?[0-9]{1,50}", part) for part in parts[1:]) and int(parts[2]):
        parts[1] = str(int(parts[1]) % int(parts[2]))
    return tuple(parts)


def _grade_stated(answer: str, gold: Gold, prompt: str) -> Graded | None:
    """The verdict on the value that an answer states, or why it states none. None if it needs the parser."""
    if gold.words:
        same = without_lead(without_marks(answer)).casefold().split() == gold.text.casefold().split()
        return _right_if(True) if same else None
    try:
        quantity = _quantity(answer, gold, prompt)
    except Unread as error:
        return _unparsed(str(error))
    if (quantity.summed and not gold.summed) or (gold.summed and not quantity.unit):
        return Graded(status=Status.WRONG, detail="units are not converted")
    foreign = quantity.unit and quantity.unit != gold.unit and (gold.unit or gold.percent)
    if foreign or (quantity.percent and gold.unit):
        return Graded(status=Status.WRONG, detail="another unit than the gold answer has")
    if _is_same(quantity.value, gold.value) and quantity.percent == gold.percent:
        return _right_if(True)
    return _grade_number(quantity, gold, prompt)


def _quantity(answer: str, gold: Gold, prompt: str) -> Quantity:
    quantity = read_quantity(without_marks(answer), nouns=_nouns(prompt), letters=gold.letters)
    if "," in quantity.value and "," not in gold.value:
        value = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), quantity.value)
        return replace(quantity, value=value)
    return quantity


@lru_cache(maxsize=256)
def _nouns(prompt: str) -> frozenset[str]:
    """The words of a problem, which may be beside a value."""
    return frozenset(re.findall("[a-z]{3,}", prompt.lower())) - NEVER


def _grade_number(answer: Quantity, gold: Gold, prompt: str) -> Graded | None:
    """The verdict where the gold answer is an integer, a decimal or a fraction, and the answer one too."""
    value, gold_value, gold_number = ratio(answer.value), gold.ratio, gold.number
    if gold_value is None and value is not None and gold_number is not None and not gold.integer:
        gold_value = Fraction(gold_number)
    if gold_value is not None and value is not None and not (answer.percent or gold.percent):
        reduced = [int(digits) for digits in re.findall("[0-9]+", answer.value)]
        reduced = reduced == [abs(value.numerator), value.denominator]
        return None if prompt and not reduced and value == gold_value else _right_if(value == gold_value)
    number = plain_number(answer.value.removesuffix("/1"))
    if value is not None and gold_number is not None and gold.percent and not answer.percent:
        return _right_if(value == Fraction(gold_number) / 100)
    if number is not None and gold_number is not None:
        if gold.integer and not (answer.percent or gold.percent):
            return _right_if(number == gold_number)
        percent, decimal = (answer.percent, gold.percent), "." in answer.value + gold.value
        return _right_if(equal_values(Fraction(number), Fraction(gold_number), percent, decimal=decimal))
    if not gold.integer:
        return None
    undone = is_undone_arithmetic(answer.value)
    return Graded(status=Status.WRONG, detail="arithmetic left undone") if undone else None


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
    if sum(map(text.count, "([{")) <= MAX_NESTING:
        return 0
    return max(accumulate((char in "([{") - (char in ")]}") for char in text))


def _tidy(text: str) -> str:
    """A text in one notation, without a full stop, and math delimiters or bold around the whole."""
    text = _CLOCK.sub(lambda time: f"{time[1]}{time[2] or ''} {time[3].lower()}m", plain_latex(text))
    if text.count("**") == 1:  # half of a bold "**Answer: 7**"
        text = text.removeprefix("**").removesuffix("**").strip()
    if text[:1].isalnum() and text[-1:].isalnum():
        return text
    for opening, closing in _AROUND:
        text = _without_full_stop(text)
        inner = text[len(opening) : -len(closing)]
        if text == opening + inner + closing and opening not in inner and closing not in inner:
            text = inner.strip()
    if text.startswith("]") and text.endswith("["):  # an open interval, as in French
        text = f"({text[1:-1]})"
    return _without_full_stop(text)


def _without_full_stop(text: str) -> str:
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def _is_same(answer: str, gold: str) -> bool:
    return answer == gold or _same_notation(answer) == _same_notation(gold)


def _same_notation(text: str) -> str:
    return _IDLE_SPACE.sub("", text)


def _parse(text: str) -> "Parsed":
    from gar.verify.expressions import parse  # imports SymPy: only where it is needed

    return parse(text)


_parse_gold = lru_cache(maxsize=256)(_parse)  # the responses of a group share a gold answer


def _grade_expression(text: str, gold: Gold, prompt: str) -> Graded:
    answer = without_marks(_tidy(text))
    quantity = Quantity(without_lead(answer)) if gold.words else _quantity(_tidy(text), gold, prompt)
    if gold.words and (changing := _CHANGING & {word[0].lower() for word in words_in(answer)} - {*gold.words}):
        return _unparsed(f"the answer does not state one value: {min(changing)!r}")
    answer, value = quantity.value, gold.value
    if bool(_ELLIPSIS.search(answer)) != bool(_ELLIPSIS.search(value)):
        return _unparsed("what an ellipsis leaves out cannot be compared")
    try:
        gold_parsed = _parse_gold(value)
    except Exception as error:
        return Graded(
            status=Status.ERROR, detail=f"the gold answer {gold.text!r} cannot be parsed: {error_text(error)}"
        )
    try:
        parsed = _parse(answer)
    except Exception as error:
        return _unparsed(error_text(error))
    same = parsed.text and parsed.text.casefold() == gold_parsed.text.casefold()
    if same and quantity.percent == gold.percent:
        return _right_if(True)
    if gold_parsed.value is None:
        return Graded(status=Status.ERROR, detail=f"the gold answer {gold.text!r} cannot be parsed")
    if gold.words and gold.words != [word.lower() for word in _prose_words(answer)]:
        return _right_if(False)  # the parser would multiply the letters of words, in any order
    if parsed.value is None:
        return _unparsed("not a mathematical expression")
    return _grade_parsed(parsed, gold_parsed, prompt, (quantity.percent, gold.percent))


def _grade_parsed(parsed: "Parsed", gold: "Parsed", prompt: str, percent: tuple[bool, bool]) -> Graded:
    from gar.verify.copies import is_copy
    from gar.verify.expressions import equal, lists_values
    from gar.verify.shapes import undone

    if not gold.value.free_symbols and not re.search("[0-9]", parsed.text) and parsed.value.free_symbols:
        return _unparsed("the gold answer is numeric, and the answer holds no number")
    if lists_values(parsed, gold):
        return _unparsed("the answer lists several values, and the gold answer is one")
    if left := undone(parsed.shape, gold.shape):
        return Graded(status=Status.WRONG, detail=f"arithmetic left undone: {', '.join(sorted(left))}")
    try:
        right = equal(parsed, gold, percent)
    except Exception as error:
        return Graded(status=Status.ERROR, detail=error_text(error))
    written_alike = _same_notation(parsed.text) == _same_notation(gold.text)
    return _right_if(right, copied=right and not written_alike and is_copy(parsed, gold, prompt))


def _has_letters(text: str) -> bool:
    """Whether a text has letters outside the names of LaTeX commands."""
    return re.search("[A-Za-z]", re.sub(r"\\[A-Za-z]+|(?<=[0-9.])[eE](?=[-+]?[0-9])", "", text)) is not None


def _prose_words(text: str) -> list[str]:
    """The words of a text that is prose. Letters with a vowel and not in alphabetical order are not a product `abc`."""
    words = [match[0] for match in words_in(text)]
    return words if any(map(is_prose, words)) else []


def error_text(error: BaseException) -> str:
    """The kind and text of an error, at most `MAX_DETAIL_CHARS` long. SymPy's errors can fail to print themselves."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    return f"{type(error).__name__}: {text}"[:MAX_DETAIL_CHARS]
