"""Sets of real numbers: intervals, unions and differences of these, and inequalities in one letter.

Two sets are equal if they agree at every end of both, between neighbouring ends, and beyond the outer ones.
"""

import math
import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from gar.verify.evaluate import UndefinedError, equal_numbers, has, letters_in, value
from gar.verify.tree import Node

MAX_ENDS = 60
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "!=": operator.ne,
}  # fmt: skip
_COMBINED = {"union", "intersection", "without"}
_POINTS = ("integers 0", "integers 1", "reals 0", "reals 1", "reals 2")
"""Where sets whose ends have letters are compared."""


def is_inequality(node: Node) -> bool:
    """Whether a relation, or each of a list of relations, only compares by order."""
    if node.op == "list":
        return all(map(is_inequality, node.args))
    return node.op == "relation" and set(node.value) <= _HOLDS.keys()  # pyright: ignore[reportArgumentType]


def is_region(node: Node) -> bool:
    """Whether an expression is a set of real numbers that is known here."""
    node = _set_of(node)
    if node.op in ("interval", "tuple"):
        return len(node.args) == 2
    if node.op in _COMBINED or (node.op == "list" and node.value in ("or", "and")):
        return all(map(is_region, node.args))
    return node.op == "set" or node == Node("numbers", (), "R") or (is_inequality(node) and _variable(node) is not None)


def same_region(answer: Node, gold: Node) -> bool:
    """Whether two sets of real numbers are equal. Other letters than the variable may have any value.

    Raises:
        UndefinedError: An end has no value.
    """
    named = [letters_in(side) for side in (answer, gold) if side.op in ("relation", "list")]
    if len(named) == 2 and {len(names) for names in named} == {1} and named[0] != named[1]:
        return False  # x > 2 and y > 2
    ends = [*_ends(gold), *_ends(answer)]  # a decimal of the answer may round an end of the gold answer
    if len(ends) > MAX_ENDS:
        raise UndefinedError("a set of too many parts")
    points = _POINTS if any(map(letters_in, ends)) else (None,)
    return all(_agree(answer, gold, *_ranks(ends, point)) for point in points)


def _ranks(ends: list[Node], point: str | None) -> tuple[dict[Node, float], int]:
    """The rank of each end among all ends and their negatives: 1, 3, 5 and so on, and the rank beyond the last.

    Even ranks stand for the numbers between. The rank of x is as far from 0 as that of -x from the last.
    """
    decimal = any(has(end, "decimal") for end in ends)
    values = {end: _real(end, point) for end in ends}
    places: list[Any] = []

    def place_of(number: Any) -> Any:
        return next((place for place in places if equal_numbers(number, place, decimal=decimal)), None)

    for number in values.values():
        places += [signed for signed in {number, -number} if abs(signed) < math.inf and place_of(signed) is None]
    places.sort()
    ranks = {
        end: 2 * places.index(place_of(number)) + 1 if abs(number) < math.inf else float(number)
        for end, number in values.items()
    }
    return ranks, 2 * len(places)


def _real(end: Node, point: str | None) -> Any:
    number = value(end, point)
    if number.imag:
        raise UndefinedError("an end that is not real")
    return number.real


def _agree(answer: Node, gold: Node, ranks: dict[Node, float], top: int) -> bool:
    """Whether two sets have the same members, and some."""
    held = [[_holds(side, x, ranks, top) for x in range(top + 1)] for side in (answer, gold)]
    return held[0] == held[1] and any(held[1])


def _holds(node: Node, x: float, ranks: dict[Node, float], top: int) -> bool:
    """Whether a set has the member of rank x."""
    node = _set_of(node)
    if node.op in ("interval", "tuple"):
        (low, high), brackets = (ranks[end] for end in node.args), str(node.value or "()")
        return (low < x or (low == x and brackets[0] == "[")) and (x < high or (x == high and brackets[1] == "]"))
    if node.op == "set":
        return any(ranks[part] == x for part in node.args)
    if node.op == "numbers":
        return True
    if node.op == "relation":
        variable = _variable(node)
        known = ranks | {variable: x, Node("call", (variable,), "abs"): max(x, top - x)}  # pyright: ignore[reportArgumentType]
        signs: Any = node.value
        return all(_HOLDS[sign](known[a], known[b]) for sign, (a, b) in zip(signs, pairwise(node.args), strict=True))
    held = [_holds(part, x, ranks, top) for part in node.args]
    if node.op == "without":
        return held[0] and not held[1]
    return any(held) if "or" in (node.value, node.op) or node.op == "union" else all(held)


def _set_of(node: Node) -> Node:
    r"""What `x \in ...` and `\{x \mid ...\}` say about x."""
    named = node.args and node.args[0].op in ("letter", "call")
    if node.op == "builder" and (named or node.args[0].op == "relation"):
        return node.args[1]
    return node.args[1] if node.op == "relation" and node.value == ("in",) and named else node


def _variable(node: Node) -> Node | None:
    """The letter that an inequality is about: its left side, else its right one, or the middle one of three."""
    if node.op == "list":
        return next(iter({_variable(part) for part in node.args}))
    sides = [side.args[0] if side.op == "call" and side.value == "abs" else side for side in node.args]
    for place in (0, 1) if len(sides) == 2 else (1,):
        others = [letters_in(side) for side in node.args[:place] + node.args[place + 1 :]]
        if sides[place].op == "letter" and not any(sides[place].value in names for names in others):
            return sides[place] if len(sides) <= 3 else None
    return None


def _ends(node: Node) -> list[Node]:
    node = _set_of(node)
    if node.op == "relation":
        variable = _variable(node)
        return [side for side in node.args if variable is None or variable.value not in letters_in(side)]
    if node.op in ("interval", "tuple", "set"):
        return list(node.args)
    return [end for part in node.args for end in _ends(part)]
