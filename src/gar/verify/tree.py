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
    """A text that is no expression, with the reason."""


def transformed(node: Node, change: Callable[[Node], Node]) -> Node:
    """A tree whose nodes are changed, from the leaves up."""
    return change(node._replace(args=tuple(transformed(part, change) for part in node.args)))


def descendants(node: Node) -> Iterator[Node]:
    """A tree and all its parts."""
    yield node
    for part in node.args:
        yield from descendants(part)
