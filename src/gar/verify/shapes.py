r"""Find the operations that an expression leaves undone, on its shape: the SymPy tree of what is written.

In a shape every number is a symbol, so that SymPy works nothing out: `\frac{36}{2}` stays a quotient.

Signs, fractions of two integers, percent and scientific notation are ways to write a number. Anything else that could
be worked out is an operation: `3+15`, `\binom{8}{4}`, `\sqrt{49}`. Operations on variables are not.

Every operation has a name. A variable counts as one, for it may cancel (`3x/x`). Sums and products have several names:
a sum or product of numbers (`3+15`), a coefficient of a constant or an operation (`2\sqrt{3}`), and a sum or product of
constants or operations (`\sqrt{2}\cdot\sqrt{3}`).
"""

import contextlib
import math
import re
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from types import SimpleNamespace
from typing import Any

import sympy
from antlr4 import PredictionMode
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy

SUM_OF_NUMBERS, SUM = "sum of numbers", "sum"
PRODUCT_OF_NUMBERS, COEFFICIENT, PRODUCT = "product of numbers", "coefficient", "product"
VARIABLE = "variable"
_IMPLIED = {SUM_OF_NUMBERS: {SUM}, PRODUCT_OF_NUMBERS: {PRODUCT}, COEFFICIENT: {PRODUCT}}
"""A gold answer that has the first name allows the second ones too."""

_CONSTANTS = {"i", "e", "E"}
_LITERAL = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_NUMBER = re.compile("[0-9]+(?:/[0-9]+)?")
_UNDONE_ALWAYS = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative)
_PERCENT = sympy.UnevaluatedExpr(sympy.Rational(1, 100))
_COLLECTIONS = (sympy.Tuple, sympy.FiniteSet, sympy.Interval, sympy.Complement, sympy.MatrixBase, sympy.Not)

CONFIG = ConversionConfig(lowercase_symbols=False)  # R and r are two letters
MAX_EXPONENT = 1_000  # of ten, which is a way to write a number

Shape = Any  # SymPy has no types


class Converter(_Latex2Sympy):
    """math-verify's conversion to SymPy. Reads the grammar's tree of a text once, also for a second conversion."""

    def create_parser(self, latex_str: str) -> Any:
        """The grammar's tree, as the base class asks for it."""
        return SimpleNamespace(math=lambda: _tree(latex_str))


@lru_cache(maxsize=1024)
def _tree(latex: str) -> Any:
    """The grammar's tree. ANTLR's SLL mode takes half the time, and gives the same tree or an error."""
    parser = _Latex2Sympy(config=CONFIG).create_parser(latex)
    parser._interp.predictionMode = PredictionMode.SLL
    with contextlib.suppress(Exception):
        return parser.math()
    return _Latex2Sympy(config=CONFIG).create_parser(latex).math()


class _ShapeConverter(Converter):
    def parse_number(self, text: str) -> Shape:
        """A number as a symbol that is named by its exact value."""
        text = text.replace(",", "")
        return sympy.Symbol(str(Fraction(text)) if _LITERAL.fullmatch(text) else text, positive=True)

    def handle_exp(self, func: Any) -> Shape:
        """A power of e, which the base class works out."""
        power = func.supexpr()
        if power is None:
            return sympy.E
        exponent = self.convert_expr(power.expr()) if power.expr() else self.convert_atom(power.atom())
        return sympy.exp(exponent, evaluate=False)

    def convert_matrix(self, matrix: Any) -> Shape:
        """A matrix that can be in a set."""
        return super().convert_matrix(matrix).as_immutable()


def shape_of(latex: str) -> Shape:
    """The shape of an expression. Any error if it is none."""
    return _ShapeConverter(None, True, config=CONFIG).parse(latex)


def undone(answer: Shape, gold: Shape) -> set[str]:
    """The operations of `answer` that `gold` does not have.

    A coefficient of an operation that the gold answer has is always allowed.
    """
    equation = _has_equation(gold)
    left = operations(answer, equation=equation) - {COEFFICIENT}
    if left and not _is_power_of_ten(last_side(answer)):
        allowed = operations(gold, equation=True)
        left -= allowed | {implied for name in allowed for implied in _IMPLIED.get(name, ())}
        if VARIABLE in allowed and equation:  # (x-1)^2 = 3^2
            left.discard("power")
        return left
    return set()


def _is_power_of_ten(shape: Shape) -> bool:
    exponent = number(shape.exp) if isinstance(shape, sympy.Pow) and number(shape.base) == 10 else None
    return exponent is not None and exponent.denominator == 1 and abs(exponent) < MAX_EXPONENT


def operations(shape: Shape, *, equation: bool = False) -> set[str]:
    """The names of all operations on numbers and constants.

    With `equation` both sides of an equation count, otherwise only the last side, which is its value.
    """
    if number(shape) is not None:
        return set()
    if isinstance(shape, sympy.Symbol):
        return {VARIABLE} if _has_letter(shape) else set()
    inner = {name for part in _parts(shape, equation) for name in operations(part, equation=equation)}
    if isinstance(shape, sympy.log):
        inner -= {"root", "power"}  # the logarithm of a root is a multiple of a logarithm
    return inner | _own_name(shape)


@lru_cache(maxsize=1024)  # fractions within fractions
def number(shape: Shape) -> Fraction | None:
    r"""The exact value of a number, however it is written. None for a shape with an operation or a letter.

    `-7`, `2.50`, `\frac{36}{2}`, `3/4`, `50\%` (which is 1/2), `6.02e23`, `30^\circ`.
    """
    if isinstance(shape, sympy.Rational):  # an exponent
        return Fraction(shape.p, shape.q)
    sign, over, under = _factors(shape)
    if len(over) == 1 and not under:
        digits = isinstance(over[0], sympy.Symbol) and _NUMBER.fullmatch(over[0].name)
        return sign * Fraction(over[0].name) if digits else None
    value = _fraction(over, under)
    return None if value is None else sign * value


def is_bare(shape: Shape) -> bool:
    """Whether a shape holds only finished values: no operation, no letters, no unreduced fraction."""
    products = (part for part in sympy.preorder_traversal(shape) if isinstance(part, sympy.Mul))
    fractions = ((number(part), under) for part in products if (under := _factors(part)[2]))
    return not operations(shape) and all(
        value and str(under[0]) == str(value.denominator) for value, under in fractions
    )


def last_side(shape: Shape) -> Shape:
    """The value of an equation: its last side. Another shape itself."""
    sides = _sides(shape)
    return sides[-1] if sides and _has_equation(shape) else shape


def _own_name(shape: Shape) -> set[str]:
    """The name of the operation at the top of a shape. Empty if there is none, or if it is on variables."""
    parts = _parts(shape, equation=True)
    if isinstance(shape, _UNDONE_ALWAYS):
        return {type(shape).__name__}
    if isinstance(shape, sympy.Mul):
        return _of_product(shape)
    if isinstance(shape, sympy.Add):
        if sum(number(part) is not None for part in parts) > 1:
            return {SUM_OF_NUMBERS}
        return set() if any(map(_has_letter, parts)) else {SUM}
    if isinstance(shape, sympy.Union | sympy.Intersection | sympy.Complement):
        return {type(shape).__name__} if all(isinstance(part, sympy.FiniteSet) for part in parts) else set()
    if not parts or isinstance(shape, _COLLECTIONS) or _sides(shape) or _has_letter(shape):
        return set()
    if isinstance(shape, sympy.exp) and number(shape.args[0]) == -1:  # 1/e
        return set()
    if isinstance(shape, sympy.Pow):
        exponent = number(shape.exp)
        return {"root" if exponent is not None and exponent.denominator > 1 else "power"}
    return {type(shape).__name__}


def _of_product(shape: Shape) -> set[str]:
    _, *sides = _factors(shape)
    numbers = [sum(number(factor) is not None for factor in side) for side in sides]
    others = [sum(number(factor) is None and not _has_letter(factor) for factor in side) for side in sides]
    names = set()
    if max(numbers) > 1 or (sum(numbers) > 1 and sum(map(len, sides)) == 2):
        names.add(PRODUCT_OF_NUMBERS)
    if max(others) > 1:
        names.add(PRODUCT)
    elif any(others) and (any(numbers) or all(others)):
        names.add(COEFFICIENT)
    return names


def _factors(shape: Shape) -> tuple[Fraction, list[Shape], list[Shape]]:
    """A product's sign (and percent), and its factors above and below the fraction bar. An inner fraction is one."""
    if isinstance(shape, sympy.Pow) and shape.exp == -1:
        sign, over, under = _inner_factors(shape.base)
        return 1 / sign, under, over
    if shape == -1 or shape == _PERCENT:
        return Fraction(-1) if shape == -1 else Fraction(1, 100), [], []
    if not isinstance(shape, sympy.Mul):
        return Fraction(1), [shape], []
    signs, over, under = zip(*map(_inner_factors, shape.args), strict=True)
    return math.prod(signs, start=Fraction(1)), list(chain(*over)), list(chain(*under))


def _inner_factors(shape: Shape) -> tuple[Fraction, list[Shape], list[Shape]]:
    sign, over, under = _factors(shape)
    a_fraction = isinstance(shape, sympy.Mul) and _fraction(over, under) is not None
    return (Fraction(1), [shape], []) if a_fraction else (sign, over, under)


def _fraction(over: list[Shape], under: list[Shape]) -> Fraction | None:
    """The value of a fraction of two integers, which may be written as fractions. None for another one."""
    values = [number(factor) if isinstance(factor, sympy.Symbol | sympy.Mul) else None for factor in (*over, *under)]
    whole = [value for value in values if value is not None and value.denominator == 1]
    if len(over) > 1 or len(under) != 1 or len(whole) < len(values) or not whole[-1]:
        return None
    return (whole[0] if over else 1) / whole[-1]


def _parts(shape: Shape, equation: bool) -> list[Shape]:
    """What a shape is an operation on. With `equation` the left side of an equation too."""
    if isinstance(shape, sympy.Mul):
        _, over, under = _factors(shape)
        return over + under
    if sides := _sides(shape):
        if _has_equation(shape):
            return [sides[0], sides[-1]] if equation else sides[-1:]
        return [side for side in sides if not isinstance(side, sympy.Symbol)]  # x in x < 3 is a name
    if isinstance(shape, sympy.MatrixBase):
        return list(shape.flat())
    if isinstance(shape, sympy.Interval):
        return [shape.start, shape.end]
    return list(getattr(shape, "_unsorted_args", shape.args))


def _sides(shape: Shape) -> list[Shape]:
    """The sides of a relation or a chain of relations. Empty for another shape."""
    relations = getattr(shape, "_unsorted_args", ()) if isinstance(shape, sympy.And) else [shape]
    if not all(isinstance(relation, sympy.Rel) for relation in relations):
        return []
    return [relations[0].lhs, *(relation.rhs for relation in relations)] if relations else []


def _has_equation(shape: Shape) -> bool:
    return shape.has(sympy.Eq)


def _has_letter(shape: Shape) -> bool:
    names = (symbol.name for symbol in shape.free_symbols)
    return any(name not in _CONSTANTS and not _NUMBER.fullmatch(name) for name in names)
