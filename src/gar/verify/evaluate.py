"""The value of an expression: exact where it is rational, else to 320 digits.

Two expressions with letters are equal if they agree at points: up to 12 of integers, 5 of numbers between 1 and 11, and
5 of which some are negative. The points are drawn by a hash of the letter's name. Two different polynomials of degree d
agree at the second kind alone with probability (d / 9973) ** 5 at most (Schwartz and Zippel), and rational functions as
their cross products. Expressions that have values at integers only, such as (-1)^n, differ unseen with probability
2 ** -12 if they agree at every second integer. A text that is made to vanish at the points would pass: no policy sees
them.
"""

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from gar.verify.numbers import equal_rationals
from gar.verify.tree import Node

DIGITS = 320
"""Two irrational values that agree to 300 digits are equal. Sums need as many after the point."""
MAX_DIGITS = 30_000
DIGITS_AT_POINTS = 60
MAX_BITS = 60_000  # of an exact power
MAX_EXACT_BITS = 300_000  # of an exact value
MAX_MAGNITUDE = 10**7  # bits before the point of any value
MAX_FACTORIAL = 5_000  # exactly
MIN_POINTS = 5
MAX_POINTS = {"integers": 12, "reals": MIN_POINTS, "negative": MIN_POINTS}
_TRIGONOMETRY = {"sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh"}
_INVERSE = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot"}
Value = Any  # a Fraction, a number of mpmath, or an infinite float


class UndefinedError(ValueError):
    """An expression without a value, or whose value is out of reach."""


class IrrationalError(Exception):
    """The value is irrational, and only exact ones are asked for."""


def equal(answer: Node, gold: Node, *, exact: bool) -> bool:
    """Whether two expressions without collections and relations have the same value.

    Raises:
        UndefinedError: One has no value.
        IrrationalError: It takes more than exact arithmetic, and `exact` forbids it.
    """
    if answer == gold:
        return True
    if not (letters_in(answer) or letters_in(gold)):
        values = [_at(node, None, exact) for node in (answer, gold)]
        decimal = has(answer, "decimal") or has(gold, "decimal")
        before_point = max(map(_digits_before_point, values))
        if before_point > 0 and not decimal and (has(answer, "sum") or has(gold, "sum")):  # 10^400 + 1
            if before_point > MAX_DIGITS:
                raise UndefinedError("too large to compare")
            values = [_at(node, None, exact, before_point) for node in (answer, gold)]
            return _equal_values(*values, decimal=False, digits=DIGITS - 20 + before_point)
        return _equal_values(*values, decimal=decimal, digits=DIGITS - 20)
    roots = any(has(node, "root", "power", "call") for node in (answer, gold))
    agreed = [_agree_at(answer, gold, kind, exact) for kind in ("integers", "reals", *["negative"] * roots)]
    return False not in agreed and True in agreed


def _agree_at(answer: Node, gold: Node, kind: str, exact: bool) -> bool | None:
    """Whether two expressions agree at points of a kind. None if too few points give both a value."""
    tried = 0
    for number in range(20):
        point = f"{kind} {number}"
        try:
            values = [_at(node, point, exact) for node in (answer, gold)]
        except UndefinedError:
            continue
        if kind == "negative" and any(getattr(value, "imag", 0) for value in values):
            continue
        if not _equal_values(*values, decimal=False, digits=DIGITS_AT_POINTS - 15):
            return False
        tried += 1
        if tried == MAX_POINTS[kind]:
            break
    return True if tried >= MIN_POINTS else None


def value(node: Node, *, exact: bool, point: str | None = None) -> Value:
    """The value of an expression, whose letters have values at a point."""
    return _at(node, point, exact)


def rounded(value: Value) -> Value:
    """A value as a number of mpmath, which others can be compared with."""
    return _rounded(value, _mp(DIGITS))


def equal_numbers(answer: Value, gold: Value, *, decimal: bool) -> bool:
    """Whether two values are equal. `decimal`: one of them is written as a decimal."""
    return _equal_values(answer, gold, decimal=decimal, digits=DIGITS_AT_POINTS - 15)


@lru_cache(maxsize=8192)
def letters_in(node: Node) -> frozenset[str]:
    """The names of variables and of unknown functions."""
    own = {str(node.value)} if node.op == "letter" or _is_unknown(node) else set()
    return frozenset(own.union(*map(letters_in, node.args)))


def has(node: Node, *ops: str) -> bool:
    """Whether a part of an expression is one of these."""
    return node.op in ops or any(has(part, *ops) for part in node.args)


def _is_unknown(node: Node) -> bool:
    return node.op == "call" and node.value not in _KNOWN


def _equal_values(answer: Value, gold: Value, *, decimal: bool, digits: int) -> bool:
    if isinstance(answer, Fraction) and isinstance(gold, Fraction):
        return equal_rationals(answer, gold, decimal=decimal)
    if isinstance(answer, float) or isinstance(gold, float):
        return answer == gold
    if decimal and isinstance(gold, Fraction) and gold.denominator == 1:
        return False
    mp = _mp(digits + 20)
    answer, gold = _rounded(answer, mp), _rounded(gold, mp)
    size = max(abs(answer), abs(gold))
    tolerance = mp.mpf(2) / 10**6 if decimal else mp.mpf(10) ** -digits
    return bool(abs(answer - gold) <= tolerance * (size if gold else 1))


def _digits_before_point(value: Value) -> int:
    """Of an irrational value. 0 for a rational or an infinite one."""
    return 0 if isinstance(value, Fraction | float) else int(0.302 * _mp(DIGITS).mag(value)) if value else 0


def _rounded(value: Value, mp: Any) -> Value:
    """A number of mpmath."""
    return mp.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else mp.mpmathify(value)


def _mp(digits: int) -> Any:
    import mpmath  # only where a value is irrational

    mpmath.mp.dps = digits
    return mpmath.mp


@lru_cache(maxsize=8192)  # of gold answers at their points
def _at(node: Node, point: str | None, exact: bool, more_digits: int = 0) -> Value:
    digits = 0 if exact else DIGITS + more_digits if point is None else DIGITS_AT_POINTS
    try:
        return _Evaluation(point, digits).value(node)
    except (OverflowError, ZeroDivisionError, TypeError, NotImplementedError, RecursionError) as error:
        raise UndefinedError(f"no value: {type(error).__name__}") from error


class _Evaluation:
    def __init__(self, point: str | None, digits: int) -> None:
        self._point = point
        self._digits = digits
        self._in_angle = False

    @property
    def mp(self) -> Any:
        if not self._digits:
            raise IrrationalError
        return _mp(self._digits)

    def value(self, node: Node) -> Value:
        compute = getattr(self, f"_{node.op}", None)
        if compute is None:
            raise UndefinedError(f"{node.op} is no number")
        value = compute(node, *node.args)
        if isinstance(value, Fraction):
            large = value.numerator.bit_length() + value.denominator.bit_length() > MAX_EXACT_BITS
        else:
            large = not isinstance(value, float) and self.mp.mag(value) > MAX_MAGNITUDE
        if large:
            raise UndefinedError("too large")
        return value

    def _real(self, value: Value) -> Value:
        """A number that mpmath takes."""
        return _rounded(value, self.mp)

    def _whole(self, node: Node) -> Fraction:
        """The argument of a function of integers."""
        value = self.value(node)
        if not isinstance(value, Fraction) or value.denominator != 1:
            raise UndefinedError("not an integer")
        return value

    def _integer(self, node: Node) -> Value:
        return node.value

    _decimal = _integer

    def _letter(self, node: Node) -> Value:
        return self._letter_named(str(node.value))

    def _letter_named(self, name: str) -> Value:
        """The same value for the same name at the same point."""
        if self._point is None:
            raise UndefinedError("a letter")
        seed = int.from_bytes(blake2b(f"{self._point} {name}".encode(), digest_size=4).digest())
        large = int(self._point[-1]) % 2
        if self._point.startswith("integers"):
            return Fraction(3 + seed % (997 if large else 37))
        size = 1 + Fraction(1 + seed % 9973, 997 if large else 9973)
        odd = blake2b(name.encode(), digest_size=1).digest()[0] % 3 == int(self._point[-1]) % 3
        return -size if self._point.startswith("negative") and odd else size

    def _constant(self, node: Node) -> Value:
        if node.value == "infinity":
            return math.inf
        return self.mp.mpc(0, 1) if node.value == "i" else +getattr(self.mp, str(node.value))

    def _sum(self, _: Node, *terms: Node) -> Value:
        return self._added([self.value(term) for term in terms])

    def _added(self, values: list[Value]) -> Value:
        if all(isinstance(value, Fraction) for value in values):
            return sum(values, Fraction(0))
        if math.inf in map(abs, values):
            raise UndefinedError("infinite")
        return sum(map(self._real, values))

    def _mixed(self, _: Node, whole: Node, part: Node) -> Value:
        return self.value(whole) + self.value(part)

    def _minus(self, _: Node, part: Node) -> Value:
        return -self.value(part)

    def _percent(self, _: Node, part: Node) -> Value:
        return self._times(self.value(part), Fraction(1, 100))

    def _degree(self, _: Node, part: Node) -> Value:
        value = self.value(part)
        return self._real(value) * self.mp.pi / 180 if self._in_angle else value

    def _times(self, a: Value, b: Value) -> Value:
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a * b
        if math.inf in (abs(a), abs(b)):
            raise UndefinedError("infinite")
        return self._real(a) * self._real(b)

    def _product(self, _: Node, *factors: Node) -> Value:
        value: Value = Fraction(1)
        for factor in factors:
            value = self._times(value, self.value(factor))
        return value

    def _over(self, _: Node, over: Node, under: Node) -> Value:
        top, bottom = self.value(over), self.value(under)
        if not bottom:
            raise UndefinedError("divided by 0")
        return self._times(top, 1 / bottom if isinstance(bottom, Fraction) else 1 / self._real(bottom))

    def _power(self, node: Node, base: Node, exponent: Node) -> Value:
        bottom, top = self.value(base), self.value(exponent)
        if math.inf in (abs(bottom), abs(top)):
            raise UndefinedError("infinite")
        if isinstance(top, Fraction) and top.denominator == 1:
            if not bottom and top <= 0:
                raise UndefinedError("0 to no positive power")
            bits = (
                max(bottom.numerator.bit_length(), bottom.denominator.bit_length())
                if isinstance(bottom, Fraction)
                else 0
            )
            if isinstance(bottom, Fraction) and bits * abs(top) <= MAX_BITS:
                return bottom ** int(top)
        elif isinstance(bottom, Fraction) and bottom < 0 and letters_in(exponent):
            raise UndefinedError("a power of a negative number")
        bottom, top = self._real(bottom), self._real(top)
        if abs(self.mp.mag(bottom) if bottom else 0) * abs(top) > 2 * MAX_MAGNITUDE or self.mp.mag(top) > 40:
            raise UndefinedError("too large")
        return bottom**top

    def _root(self, _: Node, radicand: Node, index: Node) -> Value:
        inside, degree = self.value(radicand), self._whole(index)
        if not 1 <= degree <= 1000:
            raise UndefinedError("a root of an odd degree")
        if isinstance(inside, Fraction) and degree == 2 and inside >= 0:
            over, under = math.isqrt(inside.numerator), math.isqrt(inside.denominator)
            if over * over == inside.numerator and under * under == inside.denominator:
                return Fraction(over, under)
        number = self._real(inside)
        if degree % 2 and not number.imag and number.real < 0:
            return -self.mp.root(-number, int(degree))
        return self.mp.root(number, int(degree))

    def _call(self, node: Node, *arguments: Node) -> Value:
        name = str(node.value)
        if name in _TRIGONOMETRY | _INVERSE.keys():
            return self._trigonometric(name, *arguments)
        if name == "log":
            number, base = (self._real(self.value(part)) for part in arguments)
            return self.mp.log(number) / self.mp.log(base)
        if function := _OF_NUMBERS.get(name):
            return function(self, *arguments)
        if _is_unknown(node):
            return self._letter_named(f"{name}{[str(self.value(part)) for part in arguments]}")
        raise UndefinedError(f"{name} is left undone")

    def _trigonometric(self, name: str, argument: Node) -> Value:
        before, self._in_angle = self._in_angle, True
        angle = self._real(self.value(argument))
        self._in_angle = before
        return getattr(self.mp, _INVERSE.get(name, name))(angle)

    def _factorial(self, argument: Node) -> Value:
        value = self.value(argument)
        if isinstance(value, Fraction) and value.denominator == 1 and value <= MAX_FACTORIAL:
            if value < 0:
                raise UndefinedError("a factorial of a negative number")
            return Fraction(math.factorial(int(value)))
        number = self._real(value)
        if self.mp.mag(number) > MAX_FACTORIAL.bit_length() + 8:
            raise UndefinedError("too large")
        return self.mp.gamma(number + 1)

    def _binomial(self, upper: Node, lower: Node) -> Value:
        n, k = self.value(upper), self.value(lower)
        whole = all(isinstance(value, Fraction) and value.denominator == 1 for value in (n, k))
        if whole and 0 <= n <= MAX_FACTORIAL and k >= 0:
            return Fraction(math.comb(int(n), int(k)))
        return self.mp.binomial(self._real(n), self._real(k))

    def _floor(self, argument: Node) -> Value:
        value = self.value(argument)
        return Fraction(math.floor(value) if isinstance(value, Fraction) else int(self.mp.floor(value)))

    def _of_integers(self, function: Callable[..., int], *arguments: Node) -> Value:
        return Fraction(function(*(int(self._whole(part)) for part in arguments)))


def _double_factorial(number: int) -> int:
    if not -1 <= number <= MAX_FACTORIAL:
        raise UndefinedError("a double factorial out of reach")
    return math.prod(range(number, 0, -2))


_OF_NUMBERS: dict[str, Callable[..., Value]] = {
    "abs": lambda self, part: abs(self.value(part)),
    "floor": _Evaluation._floor,
    "ceiling": lambda self, part: -self._floor(Node("minus", (part,))),
    "factorial": _Evaluation._factorial,
    "double factorial": lambda self, part: self._of_integers(_double_factorial, part),
    "binomial": _Evaluation._binomial,
    "mod": lambda self, *parts: self._of_integers(operator.mod, *parts),
    "gcd": lambda self, *parts: self._of_integers(math.gcd, *parts),
    "lcm": lambda self, *parts: self._of_integers(math.lcm, *parts),
    "max": lambda self, *parts: max(map(self.value, parts)),
    "min": lambda self, *parts: min(map(self.value, parts)),
}
_KNOWN = _TRIGONOMETRY | _INVERSE.keys() | _OF_NUMBERS.keys() | {"log", "det", "deg", "arg", "Re", "Im", "Gamma"}
