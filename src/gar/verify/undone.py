r"""Find the operations that an answer leaves undone, and whether it only repeats an expression of its prompt.

Signs, fractions of two integers, mixed numbers, percent and scientific notation are ways to write a number. Anything
else that could be worked out is an operation: `3+15`, `\binom{8}{4}`, `\sqrt{49}`. Operations on variables are not.

Every operation has a name. A variable counts as one, for it may cancel (`3x/x`). Sums and products have several names:
a sum or product of numbers (`3+15`), a coefficient of a constant or an operation (`2\sqrt{3}`), and a sum or product of
constants or operations (`\sqrt{2}\cdot\sqrt{3}`).
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

SUM_OF_NUMBERS, SUM = "sum of numbers", "sum"
PRODUCT_OF_NUMBERS, COEFFICIENT, PRODUCT = "product of numbers", "coefficient", "product"
VARIABLE = "variable"
_IMPLIED = {SUM_OF_NUMBERS: {SUM}, PRODUCT_OF_NUMBERS: {PRODUCT}, COEFFICIENT: {PRODUCT}}
"""A gold answer that has the first name allows the second ones too."""
_COLLECTIONS = {"list", "tuple", "bracket", "set", "builder", "interval", "matrix", "cases", "numbers", "constant"}
MAX_EXPONENT = 1_000  # of ten, which is a way to write a number
MAX_PIECE_CHARS = 500

_DELIMITERS = re.compile(r"\$|\\[()\[\]]|\n")
# A word, the articles, and marks that end a clause.
_PROSE = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}(?![A-Za-z{(])|(?<= )[aAI](?= )|[.,;:?!](?= |$)")


def undone(answer: Node, gold: Node) -> set[str]:
    """The operations of `answer` that `gold` does not have.

    A coefficient of an operation that the gold answer has is always allowed.
    """
    equation = _is_equation(gold)
    value, written = last_side(answer), last_side(gold)
    whole = number(value) if written.op != "over" else None
    if value.value == "/" and value.args[1].value != 1 and whole is not None and whole.denominator == 1:
        return {"division"}  # 36/2
    left = operations(answer, equation=equation) - {COEFFICIENT}
    if not left or _is_power_of_ten(last_side(answer)):
        return set()
    allowed = operations(gold, equation=True)
    left -= allowed | {implied for name in allowed for implied in _IMPLIED.get(name, ())}
    if VARIABLE in allowed and equation:  # (x-1)^2 = 3^2
        left.discard("power")
    return left


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
    if node.op == "call" and node.value == "log":
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


def last_side(node: Node) -> Node:
    """The value of an equation: its last side. Another expression itself."""
    return node.args[-1] if _is_equation(node) and node.op == "relation" else node


def _own_name(node: Node) -> set[str]:
    """The name of the operation at the top of an expression. Empty if there is none, or if it is on variables."""
    if node.op in ("product", "over"):
        return _of_product(node)
    if node.op == "sum":
        if sum(number(_unsigned(part)) is not None for part in node.args) > 1:
            return {SUM_OF_NUMBERS}
        return set() if letters_in(node) else {SUM}
    if node.op in ("union", "intersection", "without"):
        return {node.op} if all(part.op == "set" for part in node.args) else set()
    if node.op in _COLLECTIONS or node.op in ("relation", "minus", "pm", "percent", "degree") or letters_in(node):
        return set()
    if node.op == "power":
        exponent = number(node.args[1])
        if node.args[0] == Node("constant", (), "e"):
            return set() if exponent == -1 else {"exp"}  # 1/e
        return {"root" if exponent is not None and exponent.denominator > 1 else "power"}
    return {str(node.value) if node.op == "call" else node.op}


def _of_product(node: Node) -> set[str]:
    sides = _factors(node)
    numbers = [sum(number(factor) is not None for factor in side) for side in sides]
    others = [sum(number(factor) is None and not letters_in(factor) for factor in side) for side in sides]
    names = set()
    if max(numbers) > 1 or (sum(numbers) > 1 and sum(map(len, sides)) == 2):
        names.add(PRODUCT_OF_NUMBERS)
    if max(others) > 1:
        names.add(PRODUCT)
    elif any(others) and (any(numbers) or all(others)):
        names.add(COEFFICIENT)
    return names


def _unsigned(node: Node) -> Node:
    while node.op in ("minus", "pm"):
        node = node.args[0]
    return node


def _factors(node: Node) -> tuple[list[Node], list[Node]]:
    """A product's factors above and below the fraction bar, without signs. A fraction of two integers is one."""
    node = _unsigned(node)
    if node.op not in ("product", "over"):
        return [node], []
    over: list[Node] = []
    under: list[Node] = []
    for place, part in enumerate(node.args):
        above, below = ([_unsigned(part)], []) if number(part) is not None else _factors(part)
        if node.op == "over" and place == 1:
            above, below = below, above
        over += above
        under += below
    return over, under


def _parts(node: Node, equation: bool) -> tuple[Node, ...]:
    """What an expression is an operation on. With `equation` the left side of an equation too."""
    if node.op in ("product", "over"):
        over, under = _factors(node)
        return (*over, *under)
    if node.op == "relation":
        if _is_equation(node):
            return (node.args[0], node.args[-1]) if equation else node.args[-1:]
        several = len(letters_in(node)) > 1  # x < a
        return tuple(side for side in node.args if several or not letters_in(side))  # x in x < 3 is a name
    if node.op in ("root", "builder"):
        return node.args[:1] if node.op == "root" else node.args[1:]
    if node.op == "power" and number(node.args[1]) is not None:
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
    answer = last_side(answer)
    same_parts = _parts_of(answer) == _parts_of(last_side(gold))
    if same_parts and "".join(gold_text.split()) in "".join(prompt.split()):
        return False
    return any(_is_same(answer, part) for piece in _pieces(prompt) for part in _expressions(piece))


def _is_same(answer: Node, part: Node) -> bool:
    if answer == part or _parts_of(answer) != _parts_of(part):
        return answer == part
    try:
        return equal(answer, part)
    except UndefinedError:
        return False


@lru_cache(maxsize=4096)
def _parts_of(node: Node) -> tuple[str, ...]:
    """The numbers, letters and functions of an expression in one order, without signs, factors of 1 and added zeros."""
    if node.op == "minus":
        return _parts_of(node.args[0])
    parts = list(map(_parts_of, node.args))
    if node.op in ("sum", "product", "over"):
        left_out = ("0",) if node.op == "sum" else ("1",)
        return tuple(sorted(part for each in parts if each != left_out for part in each))
    power = node.args[1].value if node.op == "power" else None
    if isinstance(power, Fraction) and power in range(1, 10):  # x^2 and x x
        return tuple(sorted(parts[0] * int(power)))
    name = str(node.value) if node.op in ("integer", "decimal") else f"{node.op} {node.value}"
    return tuple(sorted([name, *(part for each in parts for part in each)]))


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
