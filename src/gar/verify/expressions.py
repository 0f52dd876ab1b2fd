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
from typing import Any

import math_verify
import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
from math_verify.grader import is_assignment_relation, should_treat_as_complex
from math_verify.parser import get_last_eq

from gar.verify.numbers import DECIMAL_TOLERANCE, equal_rationals, equal_values
from gar.verify.operations import Tree, is_list, number

_DIGITS = 300
"""Two exact values that agree to this many digits are equal. A difference of large powers may need many."""

# As math-verify reads the content of a \boxed{}.
_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last", equations=False
)
_BRACKETED = (sympy.Set, sympy.Tuple, sympy.MatrixBase)  # how sets, tuples, intervals and matrices are read
_PM = r"\pm"
_BUILDER = re.compile(r"^\\\{ *[a-z] *(?:\||\\mid|:|\\colon) *(.+?) *\\\}$")
_INTERVAL = re.compile(r"[(\[][^()\[\]]*,[^()\[\]]*[)\]]$")
_LOWER_E = re.compile(r"(?<![A-Za-z0-9.])([0-9]+(?:\.[0-9]*)?|\.[0-9]+)e([-+]?[0-9]{1,4})(?![A-Za-z0-9.])")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text, normalized as math-verify does: without units, with braces. Its value and tree, None if there is none."""

    text: str
    value: Any = None  # a SymPy object
    tree: Tree = None  # the grammar's, for `gar.verify.operations`


class _Converter(_Latex2Sympy):
    """Keeps the tree of the text: the conversion to SymPy evaluates some operations, such as binomials."""

    tree: Tree = None

    def create_parser(self, latex_str: str) -> Any:
        parser = super().create_parser(latex_str)
        read = parser.math

        def math() -> Tree:
            tree = read()
            self.tree = self.tree or tree  # the parser reads arguments of functions once more, on their own
            return tree

        parser.math = math
        return parser


def parse(text: str) -> Parsed:
    r"""Parse the whole of a text, never an expression somewhere inside it.

    Gives the same value as `math_verify.parse` of the text in a \boxed{}, except for `6.02e23`, which math-verify takes
    for a product with Euler's number.
    """
    text = re.sub(r"(?<=[0-9]) +(?=[a-z](?![a-z]))", "", _LOWER_E.sub(r"\1E\2", text))
    for form in dict.fromkeys((text, _both_signs(text))):
        normal = normalize_latex(rf"\boxed{{{form}}}", _NORMALIZATION)
        for latex in dict.fromkeys((normal, get_last_eq(normal))):
            converter = _Converter(None, not should_treat_as_complex(latex), False, config=ConversionConfig())
            try:
                value = converter.parse(latex)
            except Exception:
                continue  # not an expression
            if isinstance(value, sympy.Basic | sympy.MatrixBase):
                return Parsed(normal, value, converter.tree)
    return Parsed(normalize_latex(rf"\boxed{{{text}}}", _NORMALIZATION))


def _both_signs(text: str) -> str:
    r"""Two values in place of one with `\pm` in it, which the grammar reads only between terms."""
    if r"\pm" not in text or text.count(",") or r"\mp" in text:
        return text
    return f"{text.replace(_PM, '+')}, {text.replace(_PM, '-')}"


def alike(answer: str, gold: str) -> tuple[str, str]:
    r"""An answer and a gold answer in the same notation: inequalities as intervals where the other is one.

    `x \le -3 or x \ge 3` is `(-\infty,-3]\cup[3,\infty)`. Numbered solutions such as `x_1` lose their index.
    """
    answer, gold = (_BUILDER.sub(r"\1", text) for text in (answer, gold))
    if "_" not in gold:
        answer = re.sub(r"([a-z])_\{?[0-9]\}?(?= *=)", r"\1", answer)
    if any(r"\cup" in text or re.search(r"\bor\b", text) or _INTERVAL.match(text) for text in (answer, gold)):
        intervals = [_intervals(text) for text in (answer, gold)]
        answer, gold = intervals[0] or answer, intervals[1] or gold
    return answer, gold


def _intervals(text: str) -> str:
    """The union of intervals that inequalities of one variable state. Empty for another text."""
    found = []
    for part in re.split(r"\\cup|\\lor|\\vee|\bor\b", text):
        sides = re.split(r"(\\le(?![a-z])|\\ge(?![a-z])|<|>)", part)
        names = [index for index in range(0, len(sides), 2) if re.fullmatch(r" *[a-zA-Z] *", sides[index])]
        if len(sides) not in (3, 5) or len(names) != 1:
            return ""
        if r"\ge" in sides or ">" in sides:
            if r"\le" in sides or "<" in sides:
                return ""
            sides, names = sides[::-1], [len(sides) - 1 - names[0]]
        at = names[0]
        opening, low = ("[" if "e" in sides[at - 1] else "(", sides[at - 2]) if at else ("(", r"-\infty")
        high, closing = (
            (sides[at + 2], "]" if "e" in sides[at + 1] else ")") if at + 1 < len(sides) else (r"\infty", ")")
        )
        found.append(f"{opening}{low.strip()},{high.strip()}{closing}")
    return r"\cup".join(found)


def parse_tree(text: str) -> Tree:
    """The grammar's tree of a text that may hold any expression, unevaluated. None if there is none."""
    try:
        latex = normalize_latex(rf"\boxed{{{text}}}", _NORMALIZATION)
        return _Converter(None, config=ConversionConfig()).create_parser(latex).math()
    except Exception:
        return None


def equal(answer: Parsed, gold: Parsed, percent: tuple[bool, bool] = (False, False)) -> bool:
    """Whether the values are equal. Both must have one. `percent`: whether a percent sign follows each."""
    answer_number, gold_number = number(answer.tree), number(gold.tree)
    if answer_number is not None and gold_number is not None:
        return equal_values(answer_number, gold_number, percent, decimal="." in answer.text + gold.text)
    if percent[0] != percent[1]:
        return False
    answer_value, gold_value = _values(answer.value, gold.value)
    if isinstance(gold_value, sympy.Interval | sympy.Union) and isinstance(answer_value, sympy.Rel | sympy.And):
        return bool(answer_value.as_set() == gold_value)  # x != 2
    if _is_number(answer_value) and _is_number(gold_value):
        return _equal_numbers(answer_value, gold_value)
    if isinstance(gold_value, sympy.Expr) and isinstance(answer_value, _BRACKETED) and not is_list(answer.tree):
        return False  # a set or an interval is no number
    if not math_verify.verify(gold.value, answer.value, timeout_seconds=0, raise_on_error=True):
        return False
    return all(_equal_numbers(a, b) for a, b in _pairs(answer_value, gold_value))


def lists_values(answer: Parsed, gold: Parsed) -> bool:
    r"""Whether the answer lists several values, as `3 or 7` and `\pm 7` do, and the gold answer is a single one.

    A list of the members of a gold answer in brackets is one value: `3, 7` for `(3, 7)`. `(3, 7), 9` is not.
    """
    if not is_list(answer.tree) or is_list(gold.tree):
        return False
    answer_value, gold_value = _right_hand_side(answer.value), _right_hand_side(gold.value)
    if isinstance(answer_value, sympy.FiniteSet) and len(answer_value) == 1:  # 78, 78
        return False
    return not isinstance(gold_value, _BRACKETED) or (_has_brackets(answer_value) and not _has_brackets(gold_value))


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


def _values(answer: Any, gold: Any) -> tuple[Any, Any]:
    """Both values without the left-hand side of an equation, as math-verify does: `6+1 = 7` for 7, 7 for `x = 7`."""
    if _is_equation(answer):
        return (answer if _is_equation(gold) else _right_hand_side(answer)), gold
    return answer, _right_hand_side(gold) if is_assignment_relation(gold) else gold


def _right_hand_side(value: Any) -> Any:
    if isinstance(value, sympy.And) and _is_equation(value):
        value = value._unsorted_args[-1]  # pyright: ignore
    return value.rhs if isinstance(value, sympy.Eq) else value


def _is_equation(value: Any) -> bool:
    parts = getattr(value, "_unsorted_args", ()) if isinstance(value, sympy.And) else (value,)
    return bool(parts) and all(isinstance(part, sympy.Eq) for part in parts)


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
