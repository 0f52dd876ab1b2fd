r"""Compare an answer with the gold answer. Pure functions without a time limit. `workers.py` sets one.

First the notation of an answer is made uniform, and words at its ends are removed. The rest is parsed as a whole and
compared by the gold answer's type. Plain numbers, letters of choices and words need no parser. Only worker processes
parse the others. An answer must be worked out: `3+15` is not 18, and `\sqrt{12}` is `2\sqrt{3}` unless the prompt
holds it.
"""

import contextlib
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from gar.types import Status
from gar.verify.boxes import MAX_ANSWER_CHARS
from gar.verify.choices import choice_text, chosen_letter, is_choice
from gar.verify.evaluate import UndefinedError, has, letters_in
from gar.verify.grades import Graded, failed, right_if, unparsed, wrong
from gar.verify.grammar import parse
from gar.verify.latex import plain_latex, rewrites
from gar.verify.notations import compare_notations, compare_words
from gar.verify.numbers import equal_values, plain_number
from gar.verify.quantities import (
    Quantity,
    is_prose,
    read_quantity,
    without_lead,
    without_mark_at_end,
    without_marks,
    words_in,
)
from gar.verify.sentences import read_answer
from gar.verify.tree import Node, NotRead
from gar.verify.undone import is_copy, number, undone
from gar.verify.values import same, stated_value

MAX_NESTING = 30
WARM_UP = ((r"\sqrt{12}+\pi", r"2\sqrt{3}"),)
"""Answers and gold answers that make mpmath import and cache what ordinary ones need."""

_WHOLE = rewrites("whole", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<![0-9,.])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_PERCENT = re.compile(r"%|\bper ?cent|\brate\b", re.IGNORECASE)
_CLOCK = re.compile(r"\b0?([0-9]{1,2})(?::00|(:[0-9]{2}))? *([ap])\.? ?m\b\.?", re.IGNORECASE)


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
    * The rest of an answer must be an expression as a whole. It is compared by the gold answer's type.

    Args:
        answer: The final answer, from `parse_response`.
        gold: The right answer.
        prompt: The problem's text, if known.

    Returns:
        OK or WRONG. UNPARSED where the answer cannot be read as exactly one value, or names several choices. ERROR
        where the gold answer cannot be parsed or the comparison failed, with the error's kind and text.
    """
    value, read = _value_or_grade(answer, gold, prompt), read_gold(gold)
    if isinstance(value, Graded):
        return value
    return (_grade_choice_text if read.choice else _grade_expression)(value, read, prompt)


def grade_without_parser(answer: str, gold: str, prompt: str = "") -> Graded | None:
    """The verdict of `grade_answer` if it needs no parser, in microseconds. None for other answers."""
    value = _value_or_grade(answer, gold, prompt)
    return value if isinstance(value, Graded) else None


@dataclass(frozen=True, kw_only=True)
class Gold(Quantity):
    """A gold answer as it is read once. `in_words`: it is a text such as `odd n`."""

    text: str
    choice: bool
    in_words: bool
    letters: bool
    number: Fraction | None


@lru_cache(maxsize=4096)  # the responses of a group share a gold answer, and steps repeat it
def read_gold(gold: str) -> Gold:
    """What a gold answer consists of."""
    text = _in_symbols(_tidy(gold))
    quantity, in_words = Quantity(text), any(is_prose(word[0]) for word in words_in(text))
    letters = _has_letters(text)
    for of_letters in dict.fromkeys((False, letters)):  # `78 h` has a unit, `2 h + 1` has letters
        with contextlib.suppress(NotRead):
            read = read_quantity(text, letters=of_letters, gold=not of_letters)
            if of_letters or not _has_letters(read.value):
                quantity, in_words = read, False
                break
    return Gold(
        value=quantity.value,
        unit=quantity.unit,
        percent=quantity.percent,
        name=quantity.name,
        text=text,
        choice=is_choice(text),
        in_words=in_words,
        letters=_has_letters(quantity.value),
        number=plain_number(quantity.value),
    )


@lru_cache(maxsize=4096)
def _tree(text: str) -> Node | None:
    with contextlib.suppress(NotRead):
        return parse(text)
    return None


def _value_or_grade(answer: str, gold: str, prompt: str) -> Graded | Quantity:
    """The value that an answer states, if it takes the parser to compare it. The verdict otherwise."""
    if not gold.strip():
        return failed("the gold answer is empty")
    if len(answer) > MAX_ANSWER_CHARS:
        return unparsed(f"the answer has {len(answer)} characters, more than {MAX_ANSWER_CHARS}")
    depth = max(accumulate((char in "([{") - (char in ")]}") for char in answer), default=0)
    if depth > MAX_NESTING:
        return unparsed(f"brackets nested {depth} deep, more than {MAX_NESTING}")
    read = read_gold(gold)
    bare = not (read.unit or read.percent or read.choice) and plain_number(answer) is not None
    if bare and (graded := _grade_number(Quantity(answer), read)):
        return graded  # most answers
    answer = _tidy(answer)
    if not answer:
        return unparsed("the answer is empty")
    if answer == read.text:
        return right_if(True)
    if read.choice:
        letter, texts = chosen_letter(answer, prompt), (choice_text(answer), choice_text(read.text))
        if not letter:
            return unparsed("names no choice, or several")
        right = letter == chosen_letter(read.text, read.text)
        return Quantity(texts[0]) if right and all(texts) else right_if(right)
    answer = _in_symbols(answer)
    special = compare_notations(answer, read.value)
    return special or _read_value(answer, read, prompt)


def _read_value(answer: str, gold: Gold, prompt: str) -> Graded | Quantity:
    """The verdict on the value that an answer states, or why it states none, or the value."""
    if gold.in_words:
        return compare_words(answer, gold.text)
    try:
        quantity = _quantity(answer, gold, prompt)
    except NotRead as error:
        return unparsed(str(error))
    if quantity.name and gold.name and quantity.name != gold.name:
        return wrong("another name than the gold answer has")
    foreign = quantity.unit and quantity.unit != gold.unit and (gold.unit or gold.percent)
    if foreign or (quantity.percent and gold.unit):
        return wrong("another unit than the gold answer has")
    if quantity.value == gold.value and quantity.percent == gold.percent:
        return right_if(True)
    return _grade_number(quantity, gold) or quantity


def _quantity(answer: str, gold: Gold, prompt: str) -> Quantity:
    sentences = not (gold.letters or gold.name)  # the equation of a sentence has an own left side
    quantity = read_answer(answer, letters=gold.letters, sentences=sentences)
    value = quantity.value
    if "," in value and (gold.number is not None or "," not in gold.value):
        value = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), value)
    exact, rounded, _ = value.partition(r"\approx")
    if rounded and "." not in gold.value:
        if not re.search(r"[0-9]|\\[A-Za-z]", exact):
            raise NotRead("an approximation alone")
        value = exact.strip()
    if quantity.percent and not gold.percent and prompt and not _PERCENT.search(prompt):
        return replace(quantity, value=rf"{value}\%", percent=False)  # 17% is 0.17, not 17
    return replace(quantity, value=value)


def _grade_number(answer: Quantity, gold: Gold) -> Graded | None:
    """The verdict where both are integers or decimals. None otherwise."""
    number = plain_number(answer.value)
    if number is not None and gold.number is not None:
        percent, decimal = (answer.percent, gold.percent), "." in answer.value + gold.value
        return right_if(equal_values(number, gold.number, percent, decimal=decimal))
    return None


def _tidy(text: str) -> str:
    """A text in one notation, without marks and a full stop."""
    text = _CLOCK.sub(lambda time: f"{time[1]}{time[2] or ''} {time[3].lower()}m", plain_latex(text))
    return without_mark_at_end(without_marks(text))


def _in_symbols(text: str) -> str:
    """A set in words as LaTeX: `no solutions`, `all real numbers except 2`. Another text without its introduction."""
    text = without_lead(text)
    found = ((pattern.fullmatch(text), spelling) for pattern, spelling in _WHOLE)
    return next((match.expand(spelling) for match, spelling in found if match), text)


def _grade_choice_text(text: Quantity, gold: Gold, prompt: str) -> Graded:
    """The verdict on the text of the right choice: (B) 3/4 is not (B) 4/4."""
    status = grade_answer(text.value, choice_text(gold.text)).status
    held = text.value.casefold() in " ".join(prompt.casefold().split())
    return right_if(status is Status.OK or (held and status is not Status.WRONG))


def _grade_expression(quantity: Quantity, gold: Gold, prompt: str) -> Graded:
    """The verdict of the grammar."""
    gold_tree = _tree(gold.value.replace(",", "") if gold.number else gold.value)
    if gold_tree is None:
        return failed(f"the gold answer {gold.text!r} cannot be parsed")
    try:
        tree = parse(quantity.value)
    except NotRead as error:
        return unparsed(f"not a mathematical expression: {error}")
    percent = (quantity.percent, gold.percent)
    if gold.name and tree.op == "relation" and letters_in(tree.args[0]) and tree.args[0] != _tree(gold.name):
        return wrong("another name than the gold answer has")
    if left := undone(tree, gold_tree):
        return wrong(f"arithmetic left undone: {', '.join(sorted(left))}")
    try:
        right = _is_right(tree, gold_tree, percent)
    except NotRead as error:
        return unparsed(str(error))
    except UndefinedError:
        right = False
    if right and quantity.value != gold.value and is_copy(tree, gold_tree, prompt, gold_text=gold.text):
        return wrong("an expression copied from the prompt")
    return right_if(right)


def _is_right(tree: Node, gold: Node, percent: tuple[bool, bool]) -> bool:
    values = number(stated_value(tree)), number(stated_value(gold, by_name=True))
    two_equations = tree.op == gold.op == "relation"  # f(x) = 0 and x = 0
    if None not in values and not two_equations:
        decimal = has(tree, "decimal") or has(gold, "decimal")
        return equal_values(*values, percent, decimal=decimal)  # pyright: ignore[reportArgumentType]
    return percent[0] == percent[1] and same(tree, gold)


def _has_letters(text: str) -> bool:
    """Whether a text has letters outside the names of LaTeX commands."""
    return re.search("[A-Za-z]", re.sub(r"\\[A-Za-z]+|(?<=[0-9.])[eE](?=[-+]?[0-9])", "", text)) is not None
