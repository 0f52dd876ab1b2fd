"""The value of an expression, to 320 digits or, with letters, to 60 at each point.

Two expressions with letters are equal if they agree at points: up to 12 of integers, 5 of numbers between 1 and 11, and
5 of which some are negative. The points are drawn by a hash of the letter's name. Two different polynomials of degree d
agree at the second kind alone with probability (d / 9973) ** 5 at most (Schwartz and Zippel), and rational functions as
their cross products. Expressions that have values at integers only, such as (-1)^n, differ unseen with probability
2 ** -12 if they agree at every second integer. A text that is made to vanish at the points would pass: no policy sees
them.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from gar.verify.tree import Node

DIGITS = 320
"""Two values that agree to 300 digits are equal. Large ones get as many digits after the point."""
DIGITS_AT_POINTS = 60
SPARE_DIGITS = 20
MAX_DIGITS, MAX_DIGITS_AT_POINTS = 30_000, 4_000  # before the point of values that are compared exactly
MAX_MAGNITUDE = 10**7  # bits before the point of any value
MIN_POINTS = 5
MAX_POINTS = {"integers": 12, "reals": MIN_POINTS, "negative": MIN_POINTS}
Value = Any  # a number of mpmath


class UndefinedError(ValueError):
    """An expression without a value, or whose value is out of reach."""


def equal(answer: Node, gold: Node) -> bool:
    """Whether two expressions without collections and relations have the same value.

    Raises:
        UndefinedError: One has no value.
    """
    if answer == gold:
        return True
    if not (letters_in(answer) or letters_in(gold)):
        return _agree(answer, gold, None)
    roots = any(has(node, "root", "power", "call") for node in (answer, gold))
    agreed = [_agree_at(answer, gold, kind) for kind in ("integers", "reals", *["negative"] * roots)]
    return False not in agreed and True in agreed


def _agree_at(answer: Node, gold: Node, kind: str) -> bool | None:
    """Whether two expressions agree at points of a kind. None if too few points give both a value."""
    tried = 0
    for number in range(20):
        try:
            if not _agree(answer, gold, f"{kind} {number}"):
                return False
        except UndefinedError:
            continue
        tried += 1
        if tried == MAX_POINTS[kind]:
            break
    return True if tried >= MIN_POINTS else None


def _agree(answer: Node, gold: Node, point: str | None) -> bool:
    """Whether two expressions have the same value at a point, or without letters."""
    digits, most = (DIGITS, MAX_DIGITS) if point is None else (DIGITS_AT_POINTS, MAX_DIGITS_AT_POINTS)
    values = [_at(node, point, digits) for node in (answer, gold)]
    before_point = max(map(_digits_before_point, values))
    if before_point > most and (has(answer, "sum") or has(gold, "sum")):
        raise UndefinedError("too large to compare")
    if 0 < before_point <= most:  # 10^400 + 1
        digits += before_point
        values = [_at(node, point, digits) for node in (answer, gold)]
    if point and point.startswith("negative") and any(value.imag for value in values):
        raise UndefinedError("not real")
    decimal = point is None and (has(answer, "decimal") or has(gold, "decimal"))
    return equal_numbers(*values, decimal=decimal, digits=digits - SPARE_DIGITS)


def value(node: Node, point: str | None = None) -> Value:
    """The value of an expression, whose letters have values at a point."""
    return _at(node, point, DIGITS_AT_POINTS)


def equal_numbers(answer: Value, gold: Value, *, decimal: bool, digits: int = DIGITS_AT_POINTS - SPARE_DIGITS) -> bool:
    """Whether two values are equal. `decimal`: one of them is written as a decimal, and the other is no integer."""
    mp = _mp(digits + SPARE_DIGITS)
    if mp.isinf(answer) or mp.isinf(gold):
        return answer == gold
    rounded = decimal and not mp.isint(gold)
    tolerance = mp.mpf(2) / 10**6 if rounded else mp.mpf(10) ** -digits
    return bool(abs(answer - gold) <= tolerance * (max(abs(answer), abs(gold)) if gold else 1))


@lru_cache(maxsize=8192)
def letters_in(node: Node) -> frozenset[str]:
    """The names of variables and of unknown functions."""
    unknown = node.op == "letter" or (node.op == "call" and node.value not in _FUNCTIONS | _OF_MPMATH)
    return frozenset({str(node.value)} if unknown else set()).union(*map(letters_in, node.args))


def has(node: Node, *ops: str) -> bool:
    """Whether a part of an expression is one of these."""
    return node.op in ops or any(has(part, *ops) for part in node.args)


def _digits_before_point(value: Value) -> int:
    mp = _mp(DIGITS)
    return int(0.302 * mp.mag(value)) if value and not mp.isinf(value) else 0


def _mp(digits: int) -> Any:
    import mpmath  # only in the workers

    mpmath.mp.dps = digits
    return mpmath.mp


@lru_cache(maxsize=8192)  # of gold answers at their points
def _at(node: Node, point: str | None, digits: int) -> Value:
    try:
        return _Evaluation(point, digits).value(node)
    except (ArithmeticError, TypeError, ValueError, NotImplementedError, RecursionError) as error:
        raise UndefinedError(f"no value: {type(error).__name__}") from error


class _Evaluation:
    def __init__(self, point: str | None, digits: int) -> None:
        self._point = point
        self.mp = _mp(digits)

    def value(self, node: Node, *, in_angle: bool = False) -> Value:
        """The value of an expression. `in_angle`: within a trigonometric function, which takes degrees as radians."""
        in_angle = in_angle or node.value in _TRIGONOMETRIC
        values = [self.value(part, in_angle=in_angle) for part in node.args]
        if node.op == "minus":
            return -values[0]
        if any(map(self.mp.isinf, values)):
            raise UndefinedError("infinite")
        if node.op == "degree" and in_angle:
            return values[0] * self.mp.pi / 180
        value = _OPERATIONS[node.op](self, node, *values) if node.op in _OPERATIONS else self._no_value(node)
        if value and not self.mp.isinf(value) and self.mp.mag(value) > MAX_MAGNITUDE:
            raise UndefinedError("too large")
        return value

    def _no_value(self, node: Node) -> Value:
        raise UndefinedError(f"{node.op} is no number")

    def number(self, node: Node) -> Value:
        exact: Any = node.value
        return self.mp.mpf(exact.numerator) / exact.denominator

    def constant(self, node: Node) -> Value:
        if node.value == "infinity":
            return self.mp.inf
        return self.mp.mpc(0, 1) if node.value == "i" else +getattr(self.mp, str(node.value))

    def letter(self, name: str) -> Value:
        """The same value for the same name at the same point."""
        if self._point is None:
            raise UndefinedError("a letter")
        seed = int.from_bytes(blake2b(f"{self._point} {name}".encode(), digest_size=4).digest())
        large = int(self._point[-1]) % 2
        if self._point.startswith("integers"):
            return self.mp.mpf(3 + seed % (997 if large else 37))
        size = 1 + self.mp.mpf(1 + seed % 9973) / (997 if large else 9973)
        odd = blake2b(name.encode(), digest_size=1).digest()[0] % 3 == int(self._point[-1]) % 3
        return -size if self._point.startswith("negative") and odd else size

    def power(self, _: Node, base: Value, exponent: Value) -> Value:
        if not base and exponent.real <= 0:
            raise UndefinedError("0 to no positive power")
        if self._point and not self.mp.isint(exponent) and not base.imag and base.real < 0:
            raise UndefinedError("a power of a negative number")
        size = abs(self.mp.mag(base)) * abs(exponent) if base else 0
        if size > 2 * MAX_MAGNITUDE or (exponent and self.mp.mag(exponent) > 40):
            raise UndefinedError("too large")
        return base**exponent

    def root(self, _: Node, radicand: Value, index: Value) -> Value:
        degree = self.whole(index)
        if not 1 <= degree <= 1000:
            raise UndefinedError("a root of an odd degree")
        if degree % 2 and not radicand.imag and radicand.real < 0:
            return -self.mp.root(-radicand, degree)
        return self.mp.root(radicand, degree)

    def call(self, node: Node, *arguments: Value) -> Value:
        name = str(node.value)
        if name in _OF_MPMATH:
            return self.growing(_OF_MPMATH[name], 20_000, *arguments)
        if name in _FUNCTIONS:
            return self.mp.mpmathify(_FUNCTIONS[name](self, *arguments))
        return self.letter(f"{name}{[self.mp.nstr(argument, 30) for argument in arguments]}")

    def whole(self, value: Value) -> int:
        """The argument of a function of integers, which must be known to its last digit."""
        if not self.mp.isint(value) or self.mp.mag(value) > self.mp.prec:
            raise UndefinedError("not an integer, or too large")
        return int(value.real)

    def growing(self, name: str, bits: int, *arguments: Value) -> Value:
        """The value of a function that takes long to work out if an argument has more than so many bits."""
        if any(self.mp.mag(argument) > bits for argument in arguments):
            raise UndefinedError("too large")
        return getattr(self.mp, name)(*arguments)

    def floor(self, value: Value) -> Value:
        return self.mp.floor(value + self.mp.mpf(10) ** (SPARE_DIGITS - self.mp.dps))  # 6 * (1/3) may be rounded down


_OPERATIONS: dict[str, Callable[..., Value]] = {
    "integer": _Evaluation.number,
    "decimal": _Evaluation.number,
    "letter": lambda self, node: self.letter(str(node.value)),
    "constant": _Evaluation.constant,
    "sum": lambda self, _, *terms: sum(terms),
    "mixed": lambda self, _, whole, part: whole + part,
    "percent": lambda self, _, part: part / 100,
    "degree": lambda self, _, part: part,
    "product": lambda self, _, *factors: math.prod(factors),
    "over": lambda self, _, over, under: over / under,
    "power": _Evaluation.power,
    "root": _Evaluation.root,
    "call": _Evaluation.call,
}
_TRIGONOMETRIC = {name: name for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")}
_OF_MPMATH = _TRIGONOMETRIC | {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot"}
_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "log": lambda self, part, base: self.mp.log(part) / self.mp.log(base),
    "abs": lambda self, part: abs(part),
    "floor": _Evaluation.floor,
    "ceiling": lambda self, part: -self.floor(-part),
    "factorial": lambda self, part: self.growing("factorial", 21, part),
    "double factorial": lambda self, part: self.growing("fac2", 21, self.mp.mpf(self.whole(part))),
    "binomial": lambda self, upper, lower: self.growing("binomial", 1_000, upper, lower),
    "mod": lambda self, part, modulus: self.whole(part) % self.whole(modulus),
    "gcd": lambda self, *parts: math.gcd(*map(self.whole, parts)),
    "lcm": lambda self, *parts: math.lcm(*map(self.whole, parts)),
    "max": lambda self, *parts: max(parts),
    "min": lambda self, *parts: min(parts),
}
