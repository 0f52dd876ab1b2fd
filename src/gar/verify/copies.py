r"""Find out whether an answer only repeats an expression of its prompt.

Both are compared as normal forms of their shapes, in which spaces, parentheses, signs, factors of 1, added zeros, first
powers and the order of terms and factors do not count. So `\frac{-0156}{-2}` is a copy of `156/2`, and `-1+x^2` of
`x^2-1`. `3/6` is no copy of `2/4`.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

import sympy

from gar.verify.expressions import Parsed, parse_shape
from gar.verify.shapes import Shape, is_bare, last_side

MAX_PIECE_CHARS = 500
MAX_EXPONENT = 10_000

_DELIMITERS = re.compile(r"\$|\\[()\[\]]|\n")
# A word, the articles, and marks that end a clause.
_PROSE = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}(?![A-Za-z{(])|(?<= )[aAI](?= )|[.,;:?!](?= |$)")
_TOKEN = re.compile("[0-9]+|[A-Za-z]")  # a symbol's name that any copy of it has too


def is_copy(answer: Parsed, gold: Parsed, prompt: str) -> bool:
    """Whether the prompt holds the answer in other notation. A plain number or a reduced fraction is no copy.

    Nor is an answer in the form of the gold answer, where the prompt holds the gold answer as it is written: the
    problem is to choose one of its expressions.
    """
    if not prompt or is_bare(answer.shape):
        return False
    form = normal_form(last_side(answer.shape))
    if form == normal_form(last_side(gold.shape)) and "".join(gold.text.split()) in "".join(prompt.split()):
        return False
    tokens = {symbol.name for symbol in form.free_symbols if _TOKEN.fullmatch(symbol.name)}
    return any(form in _forms(piece) for piece in _pieces(prompt) if all(token in piece for token in tokens))


def normal_form(shape: Shape) -> Shape:
    """One shape for all ways to write an expression, up to spaces, signs, order, parentheses, 1 and 0."""
    if isinstance(shape, sympy.Symbol):
        return sympy.Integer(shape.name) if shape.name in ("0", "1") else shape
    if not shape.args or isinstance(shape, sympy.MatrixBase):
        return shape
    parts = [normal_form(part) for part in shape.args]
    if isinstance(shape, sympy.Pow):
        base, power = parts
        if isinstance(power, sympy.Symbol) and power.name.isdecimal() and int(power.name) < MAX_EXPONENT:
            power = sympy.Integer(power.name)
        if power.is_even and base.could_extract_minus_sign():
            base = -base
        return base**power
    return shape.func(*parts)


def _pieces(prompt: str) -> Iterator[str]:
    """The parts of a prompt that may be expressions, with or without dollars."""
    for part in _DELIMITERS.split(prompt):
        for piece in dict.fromkeys((part, *_PROSE.split(part))):
            if 1 < len(piece.strip()) <= MAX_PIECE_CHARS and (piece != part or not _PROSE.search(part.strip())):
                yield piece.strip().replace("{,}", "")


@lru_cache(maxsize=1024)  # the responses of a group share a prompt
def _forms(piece: str) -> frozenset[Shape]:
    """The normal forms of an expression and of all its parts."""
    shape = parse_shape(piece)
    if shape is None:
        return frozenset()
    return frozenset(normal_form(part) for part in sympy.preorder_traversal(shape) if part.args)
