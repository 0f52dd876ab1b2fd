r"""Find the operations that an answer leaves undone, and whether it only repeats an expression of its prompt.

Signs, fractions of two integers, mixed numbers, percent and scientific notation are ways to write a number. Anything
else that could be worked out is an operation: `3+15`, `\binom{8}{4}`, `\sqrt{49}`. Operations on variables are not.

Every operation has a name. A variable and a constant count as one, for they may cancel (`3x/x`). A sum or product is an
operation if it has two plain numbers: `2\cdot 3\sqrt{5}`, but not `2\sqrt{3}`. So is a sum without letters.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

from gar.verify.evaluate import UndefinedError, equal, letters_in
from gar.verify.grammar import parse
from gar.verify.latex import plain_latex
from gar.verify.tree import Node, NotRead, descendants
from gar.verify.values import stated_value

VARIABLE = "variable"
_COLLECTIONS = {"list", "tuple", "bracket", "set", "builder", "interval", "matrix", "cases", "numbers"}
MAX_EXPONENT = 1_000  # of ten, which is a way to write a number
MAX_PIECE_CHARS = 500

_DELIMITERS = re.compile(r"\$|\\[()\[\]]|\n")
# A word, the articles, and marks that end a clause.
_PROSE = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}(?![A-Za-z{(])|(?<= )[aAI](?= )|[.,;:?!](?= |$)")


def undone(answer: Node, gold: Node) -> set[str]:
    """The operations of `answer` that `gold` does not have."""
    equation = _is_equation(gold)
    value, written = stated_value(answer), stated_value(gold)
    whole = number(value) if written.op != "over" else None
    if value.value == "/" and value.args[1].value != 1 and whole is not None and whole.denominator == 1:
        return {"division"}  # 36/2
    if _is_power_of_ten(value):
        return set()
    allowed = operations(gold, equation=True)
    if VARIABLE in allowed and equation:  # (x-1)^2 = 3^2
        allowed.add("power")
    return operations(answer, equation=equation) - allowed


def _is_power_of_ten(node: Node) -> bool:
    exponent = number(node.args[1]) if node.op == "power" and number(node.args[0]) == 10 else None
    return exponent is not None and exponent.denominator == 1 and abs(exponent) < MAX_EXPONENT


def operations(node: Node, *, equation: bool = False) -> set[str]:
    """The names of all operations on numbers and constants.

    With `equation` both sides of an equation count, otherwise only the last side, which is its value.
    """
    if number(node) is not None:
        return set()
    if node.op == "letter":
        return {VARIABLE}
    inner = {name for part in _parts(node, equation) for name in operations(part, equation=equation)}
    if node.value == "log":
        inner -= {"root", "power"}  # the logarithm of a root is a multiple of a logarithm
    return inner | _own_name(node)


@lru_cache(maxsize=4096)
def number(node: Node) -> Fraction | None:
    r"""The exact value of a number, however it is written. None for an expression with an operation or a letter.

    `-7`, `2.50`, `\frac{36}{2}`, `3/4`, `50\%` (which is 1/2), `6.02e23`, `30^\circ`, `2\frac{1}{2}`.
    """
    values = [number(part) for part in node.args]
    if node.op in ("integer", "decimal"):
        return node.value  # pyright: ignore[reportReturnType]
    if node.op not in ("minus", "percent", "degree", "over", "mixed") or None in values:
        return None
    first: Any = values[0]
    if node.op == "over":
        under: Any = values[1]
        return first / under if under and first.denominator == under.denominator == 1 else None
    return {"minus": -first, "percent": first / 100, "degree": first, "mixed": sum(values)}[node.op]  # pyright: ignore


def _is_bare(node: Node) -> bool:
    """Whether an answer holds only finished values: no operation, no letters, no unreduced fraction."""
    if node.op == "over":
        value, under = number(node), node.args[1].value
        if value is None or value.denominator != under:
            return False
    return not operations(node) and all(map(_is_bare, node.args))


def _own_name(node: Node) -> set[str]:
    """The name of the operation at the top of an expression. Empty if there is none, or if it is on variables."""
    if node.op in ("sum", "product", "over"):
        plain = [part for part in node.args if number(part.args[0] if part.op == "pm" else part) is not None]
        if len(plain) > 1:
            return {f"{node.op} of numbers"}
        return {"sum"} if node.op == "sum" and not letters_in(node) else set()
    if node.op in ("union", "intersection", "without"):
        return {node.op} if all(part.op == "set" for part in node.args) else set()
    if node.op in _COLLECTIONS or node.op in ("relation", "minus", "pm", "percent", "degree") or letters_in(node):
        return set()
    if node.op == "power":
        exponent = number(node.args[1])
        if node.args[0] == Node("constant", (), "e"):
            return set()
        return {"root" if exponent is not None and exponent.denominator > 1 else "power"}
    return {str(node.value) if node.op in ("call", "constant") else node.op} - {"infinity"}


def _parts(node: Node, equation: bool) -> tuple[Node, ...]:
    """What an expression is an operation on. With `equation` the left side of an equation too."""
    if node.op == "relation":
        if _is_equation(node):
            return (node.args[0], node.args[-1]) if equation else node.args[-1:]
        several = len(letters_in(node)) > 1  # x < a
        return tuple(side for side in node.args if several or not letters_in(side))  # x in x < 3 is a name
    if node.op == "builder":
        return node.args[1:]
    if node.op == "root" or node.value == "log" or (node.op == "power" and number(node.args[1]) is not None):
        return node.args[:1]
    return node.args


def _is_equation(node: Node) -> bool:
    own = node.op == "relation" and "=" in node.value  # pyright: ignore[reportOperatorIssue]
    return own or (node.op in ("list", "cases") and any(map(_is_equation, node.args)))


def is_copy(answer: Node, gold: Node, prompt: str, *, gold_text: str) -> bool:
    """Whether the prompt holds the answer in other notation. A plain number or a reduced fraction is no copy.

    A copy has the value of an expression of the prompt, and the same numbers, letters and functions in any order.
    Signs, factors of 1, added zeros and parentheses do not count. An answer in the form of the gold answer is no copy
    if the prompt holds the gold answer as it is written: the problem is to choose one of its expressions.
    """
    if not prompt or _is_bare(answer):
        return False
    answer = stated_value(answer)
    same_parts = _leaves(answer) == _leaves(stated_value(gold))
    if same_parts and "".join(gold_text.split()) in "".join(prompt.split()):
        return False
    return any(_is_same(answer, part) for piece in _pieces(prompt) for part in _expressions(piece))


def _is_same(answer: Node, part: Node) -> bool:
    if answer == part or _leaves(answer) != _leaves(part):
        return answer == part
    try:
        return equal(answer, part)
    except UndefinedError:
        return False


@lru_cache(maxsize=4096)
def _leaves(node: Node) -> list[str]:
    """The numbers, letters and functions of an expression in one order, without ones and zeros."""
    parts = (
        str(part.value) if part.op in ("integer", "decimal") else f"{part.op} {part.value}"
        for part in descendants(node)
        if part.op in ("call", "root") or not part.args
    )
    return sorted(part for part in parts if part not in ("0", "1"))


def _pieces(prompt: str) -> Iterator[str]:
    """The parts of a prompt that may be expressions, with or without dollars."""
    for part in _DELIMITERS.split(prompt):
        for piece in dict.fromkeys((part, *_PROSE.split(part))):
            if 1 < len(piece.strip()) <= MAX_PIECE_CHARS and (piece != part or not _PROSE.search(part.strip())):
                yield piece.strip()


@lru_cache(maxsize=2048)  # the responses of a group share a prompt
def _expressions(piece: str) -> tuple[Node, ...]:
    """An expression and all its parts."""
    try:
        return tuple(part for part in descendants(parse(plain_latex(piece))) if part.args)
    except NotRead:
        return ()
