"""Sets of real numbers: intervals, unions and differences of these, and inequalities in one letter.

Two sets are equal if they agree at every end of both, between neighbouring ends, and beyond the outer ones.
"""

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
    """Whether two sets of real numbers are equal. Letters beside the variable stand for any numbers.

    Raises:
        UndefinedError: An end has no value.
    """
    named = [letters_in(side) for side in (answer, gold) if side.op in ("relation", "list")]
    if len(named) == 2 and {len(names) for names in named} == {1} and named[0] != named[1]:
        return False  # x > 2 and y > 2
    ends = [*_ends(answer), *_ends(gold)]
    if len(ends) > MAX_ENDS:
        raise UndefinedError("a set of too many parts")
    points = _POINTS if any(map(letters_in, ends)) else (None,)
    return all(_agree(answer, gold, ends, point) for point in points)


def _agree(answer: Node, gold: Node, ends: list[Node], point: str | None) -> bool:
    decimal = any(has(end, "decimal") for end in ends)
    places: list[Any] = []  # without repeats

    def placed(number: Any) -> Any:
        """The number, or one that is equal and known before."""
        return next((place for place in places if equal_numbers(number, place, decimal=decimal)), number)

    def number(node: Node) -> Any:
        found = value(node, point)
        if found.imag:
            raise UndefinedError("an end that is not real")
        return placed(found.real)

    for end in reversed(ends):  # those of the gold answer first, which a decimal of the answer may round
        for found in (number(end), placed(-number(end))):
            if found not in places and abs(found) != float("inf"):
                places.append(found)
    places.sort()
    between = [(low + high) / 2 for low, high in pairwise(places)]
    outside = [places[0] - 1, places[-1] + 1] if places else [0]
    tried = [*places, *between, *outside]
    held = [[_holds(side, x, number, placed) for x in tried] for side in (answer, gold)]
    return held[0] == held[1] and any(held[1])


def _holds(node: Node, x: Any, number: Callable[[Node], Any], placed: Callable[[Any], Any]) -> bool:
    """Whether a set has the member x."""
    node = _set_of(node)
    if node.op in ("interval", "tuple"):
        (low, high), brackets = map(number, node.args), str(node.value or "()")
        return (low < x or (low == x and brackets[0] == "[")) and (x < high or (x == high and brackets[1] == "]"))
    if node.op == "set":
        return any(number(part) == x for part in node.args)
    if node.op == "numbers":
        return True
    if node.op == "relation":
        variable = _variable(node)
        sides = [_at(side, variable, x, number, placed) for side in node.args]
        signs: Any = node.value
        return all(_HOLDS[sign](a, b) for sign, (a, b) in zip(signs, pairwise(sides), strict=True))
    held = [_holds(part, x, number, placed) for part in node.args]
    if node.op == "without":
        return held[0] and not held[1]
    return any(held) if "or" in (node.value, node.op) or node.op == "union" else all(held)


def _at(side: Node, variable: Node | None, x: Any, number: Callable[[Node], Any], placed: Callable[[Any], Any]) -> Any:
    if side == variable:
        return x
    return placed(abs(x)) if side == Node("call", (variable,), "abs") else number(side)  # pyright: ignore[reportArgumentType]


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
