r"""Expressions: parse a text by math-verify's grammar, and compare two of them.

math-verify compares decimals to six places after the point, so that 0.0 is 1/20!, and drops differences below 1e-15.
This module compares numbers itself: exact values exactly, decimals to a relative `DECIMAL_TOLERANCE`. math-verify
compares sets, tuples and intervals, and this module then compares their numbers one by one. The rest is left to
math-verify.

Importing this module imports SymPy, which takes half a second: only worker processes should.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import math_verify
import sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
from latex2sympy2_extended.sets import FiniteSet
from math_verify.grader import is_assignment_relation, is_equation, should_treat_as_complex, take_last_relation
from math_verify.parser import get_last_eq

from gar.verify.latex import rewrites
from gar.verify.numbers import DECIMAL_TOLERANCE, equal_rationals, equal_values
from gar.verify.shapes import CONFIG, Converter, Shape, number, shape_of

_DIGITS = 300
"""Two exact values that agree to this many digits are equal. A difference of large powers may need many."""

# As math-verify reads the content of a \boxed{}.
_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last", equations=False
)
_BRACKETED = (sympy.Set, sympy.Tuple, sympy.MatrixBase)  # how sets, tuples, intervals and matrices are read
_INEQUALITY = re.compile(r"[<>]|\\[lg]e(?![a-z])")
_OR = re.compile(r"\\(?:cup|lor|vee)(?![a-z])|\bor\b")
_LAST_SIDE = re.compile(r".*(?:=|\\in(?![a-z]))", re.DOTALL)
_SETS = re.compile(r"\\\}\s*[,;]\s*\\\{")
_MIXED = re.compile(r"(?<![0-9.])([0-9]+) *\\frac\{([0-9]+)\}\{([0-9]+)\}")
_REWRITES = rewrites("grammar")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text as math-verify normalizes it, its value and its shape, if it is an expression."""

    text: str
    value: Any = None  # a SymPy object
    shape: Shape = None


@lru_cache(maxsize=1024)  # the responses of a group share a gold answer
def parse(text: str) -> Parsed:
    r"""Parse the whole of a text, never an expression somewhere inside it.

    Gives the same value as `math_verify.parse` of the text in a \boxed{}, except for `6.02e23`, which math-verify takes
    for a product with Euler's number.
    """
    for pattern, spelling in _REWRITES:
        text = pattern.sub(spelling, text)
    if _INEQUALITY.search(text):
        text = _OR.sub(";", text)
    for form in dict.fromkeys((text, _both_signs(text))):
        normal = _MIXED.sub(_fraction, normalize_latex(rf"\boxed{{{form}}}", _NORMALIZATION))
        for latex in dict.fromkeys((normal, get_last_eq(normal))):
            try:
                value = Converter(None, not should_treat_as_complex(latex), config=CONFIG).parse(latex)
                shape = shape_of(latex)
            except Exception:
                continue  # not an expression
            if all(isinstance(read, sympy.Basic | sympy.MatrixBase) for read in (value, shape)):
                return Parsed(normal, value, shape)
    return Parsed(normalize_latex(rf"\boxed{{{text}}}", _NORMALIZATION))


def _fraction(mixed: re.Match[str]) -> str:
    r"""A mixed number such as `2\frac{1}{2}` as a fraction. A product stays one."""
    whole, over, under = map(int, mixed.groups())
    return rf"\frac{{{whole * under + over}}}{{{under}}}" if 0 < over < under else mixed[0]


def _both_signs(text: str) -> str:
    r"""Two values in place of one with `\pm` in it, which the grammar reads only between terms."""
    if r"\pm" not in text or text.count(",") or r"\mp" in text:
        return text
    return ", ".join(text.replace(r"\pm", sign) for sign in "+-")


def parse_shape(text: str) -> Shape:
    """The shape of a text that may hold any expression. None if there is none."""
    try:
        return shape_of(normalize_latex(rf"\boxed{{{text}}}", _NORMALIZATION))
    except Exception:
        return None


def equal(answer: Parsed, gold: Parsed, percent: tuple[bool, bool] = (False, False)) -> bool:
    """Whether the values are equal. Both must have one. `percent`: whether a percent sign follows each."""
    answer_number, gold_number = number(answer.shape), number(gold.shape)
    if answer_number is not None and gold_number is not None:
        return equal_values(answer_number, gold_number, percent, decimal="." in answer.text + gold.text)
    if percent[0] != percent[1]:
        return False
    answer_value, gold_value = _comparable(answer, gold)
    if _is_number(answer_value) and _is_number(gold_value):
        return _equal_numbers(answer_value, gold_value)
    if isinstance(answer_value, _BRACKETED) and not _is_list(answer):
        ordered = (sympy.Tuple, sympy.Interval) if isinstance(answer_value, FiniteSet) else ()
        if isinstance(gold_value, (sympy.Expr, *ordered)):
            return False  # a set or an interval is no number, and a set of two numbers is no interval
    if not math_verify.verify(gold_value, answer_value, timeout_seconds=0, raise_on_error=True):
        return False
    return all(_equal_numbers(a, b) for a, b in _pairs(answer_value, gold_value))


def lists_values(answer: Parsed, gold: Parsed) -> bool:
    r"""Whether the answer lists several values, as `3 or 7` and `\pm 7` do, and the gold answer is a single one.

    A list of the members of a gold answer in brackets is one value: `3, 7` for `(3, 7)`. `(3, 7), 9` is not.
    """
    if not _is_list(answer) or _is_list(gold):
        return False
    answer_value, gold_value = _right_hand_side(answer.value), _right_hand_side(gold.value)
    if isinstance(answer_value, sympy.FiniteSet) and len(answer_value) == 1:  # 78, 78
        return False
    return not isinstance(gold_value, _BRACKETED) or (_has_brackets(answer_value) and not _has_brackets(gold_value))


def _is_list(parsed: Parsed) -> bool:
    r"""Whether a text lists values without brackets: `3, 7`, `3 or 7`, `x = 1, 2`, `\pm 7`."""
    value, text = _right_hand_side(parsed.value), _LAST_SIDE.sub("", parsed.text).strip()
    braced = text.startswith(r"\{") and text.endswith(r"\}") and _SETS.search(text) is None
    return isinstance(value, FiniteSet) and not braced


def _comparable(answer: Parsed, gold: Parsed) -> tuple[Any, Any]:
    """Both values in one form: without a name (`x = 7`), a column as a tuple, an inequality as a set of numbers."""
    value, gold_value = answer.value, gold.value
    if not is_equation(gold_value) or (not is_equation(value) and is_assignment_relation(gold_value)):
        value, gold_value = _right_hand_side(value), _right_hand_side(gold_value)
    if isinstance(value, sympy.MatrixBase) != isinstance(gold_value, sympy.MatrixBase):
        value, gold_value = _without_column(value), _without_column(gold_value)
    kinds = isinstance(value, sympy.And), isinstance(gold_value, sympy.And)
    if kinds[0] != kinds[1] or isinstance(value, sympy.Set) or isinstance(gold_value, sympy.Set):
        value, gold_value = _solutions(value, answer.text), _solutions(gold_value, gold.text)
    equations = [member for member in _members(gold_value) if isinstance(member, sympy.Eq)]
    if len({equation.lhs for equation in equations}) > 1 and not value.has(sympy.Eq):
        gold_value = sympy.Tuple(*(equation.rhs for equation in equations))  # a = 2, b = -3
    return value, gold_value


def _without_column(value: Any) -> Any:
    return sympy.Tuple(*value) if isinstance(value, sympy.MatrixBase) and value.cols == 1 else value


def _solutions(value: Any, text: str) -> Any:
    r"""The set of numbers that an inequality, or several between semicolons, describes. Another value itself."""
    members: list[Any] = _members(value) if isinstance(value, FiniteSet) and ";" in text else [value]
    inequalities = all(isinstance(member, sympy.Rel | sympy.And) and not member.has(sympy.Eq) for member in members)
    if not inequalities or len(value.free_symbols) != 1:
        return value
    return sympy.Union(*(member.as_set() for member in members))


def _has_brackets(value: Any) -> bool:
    return any(isinstance(member, _BRACKETED) for member in _members(value))


def _equal_numbers(answer: Any, gold: Any) -> bool:
    decimal = answer.has(sympy.Float) or gold.has(sympy.Float)
    answer, gold = _exact(answer).doit(), _exact(gold).doit()
    if answer == gold:
        return True
    if answer.is_Rational and gold.is_Rational:
        return equal_rationals(*(Fraction(int(value.p), int(value.q)) for value in (answer, gold)), decimal=decimal)
    if not (answer.is_finite and gold.is_finite):  # unknown too
        return bool(math_verify.verify(gold, answer, timeout_seconds=0, raise_on_error=True))
    difference, size = abs(answer - gold), abs(gold)
    if decimal:
        return not gold.is_integer and bool(difference.evalf(20) <= size.evalf(20) * float(DECIMAL_TOLERANCE))
    smallest = sympy.Float(10) ** -_DIGITS
    size = size.evalf(5)
    return bool(difference.evalf(5, maxn=2 * _DIGITS) <= (size * smallest if size > smallest else smallest))


def _exact(value: Any) -> Any:
    """A value with its decimals as they were written, instead of the nearest binary numbers."""
    return value.xreplace({decimal: sympy.Rational(str(decimal)) for decimal in value.atoms(sympy.Float)})


def _right_hand_side(value: Any) -> Any:
    return take_last_relation(value).rhs if is_equation(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, sympy.Expr) and not value.free_symbols and value.is_commutative is not False


def _pairs(answer: Any, gold: Any) -> list[tuple[Any, Any]]:
    """The numbers that correspond in two sets, tuples or intervals that math-verify calls equal."""
    members = [_members(answer), _members(gold)]
    if len(members[0]) != len(members[1]) or not all(_is_number(member) for side in members for member in side):
        return []
    if isinstance(gold, sympy.FiniteSet):
        members = [sorted(side, key=lambda value: value.evalf().sort_key()) for side in members]
    return list(zip(*members, strict=True))


def _members(value: Any) -> list[Any]:
    if isinstance(value, sympy.Interval):
        return [value.start, value.end]
    if isinstance(value, sympy.FiniteSet):
        return list(getattr(value, "_unsorted_args", value.args))
    return list(value) if isinstance(value, sympy.Tuple) else []
