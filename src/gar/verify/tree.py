"""The tree of an answer, as the grammar makes it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Node(NamedTuple):
    r"""A part of an answer.

    `op` is one of these. Numbers and names: integer, decimal (`value` is the number), letter, constant, numbers
    (`\mathbb{R}`; `value` is the name). Operations: sum, product, over, power (of `e`, too), root (radicand, index),
    minus, pm, percent, degree, mixed, call (`value` is the function). Collections: list, tuple, bracket, set, builder,
    interval (`value` are its brackets), union, intersection, without, matrix (`value` is the number of columns), cases.
    Relations: `value` has the signs between the sides.
    """

    op: str
    args: "tuple[Node, ...]" = ()
    value: object = None


class NotRead(ValueError):
    """A text that is no expression, or does not state one value, with the reason."""


def transformed(node: Node, change: Callable[[Node], Node]) -> Node:
    """A tree whose nodes are changed, from the leaves up."""
    return change(node._replace(args=tuple(transformed(part, change) for part in node.args)))


def descendants(node: Node) -> Iterator[Node]:
    """A tree and all its parts."""
    yield node
    for part in node.args:
        yield from descendants(part)


def is_deeper(node: Node, limit: int) -> bool:
    """Whether a tree has more levels."""
    level = [node]
    for _ in range(limit):
        level = [part for each in level for part in each.args]
    return bool(level)


def product_of(factors: list[Node]) -> Node:
    """A product, or its only factor."""
    return factors[0] if len(factors) == 1 else Node("product", tuple(factors))


def is_proper_fraction(node: Node) -> bool:
    """Whether a quotient is a proper fraction of two positive integers."""
    parts = [part.value for part in node.args if part.op == "integer"]
    return node.op == "over" and len(parts) == 2 and 0 < parts[0] < parts[1]  # pyright: ignore[reportOperatorIssue]
