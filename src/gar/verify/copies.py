r"""Find out whether an answer only repeats an expression of its prompt.

Both are compared as normal forms of their parse trees, in which spaces, parentheses, signs, factors of 1, added zeros,
first powers and the order of terms and factors do not count. So `\frac{-0156}{-2}` is a copy of `156/2`, and `-1+x^2`
of `x^2-1`. `3/6` is no copy of `2/4`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from gar.verify.expressions import Parsed, parse_tree
from gar.verify.operations import (
    GROUPS,
    MAX_EXPONENT,
    OVER,
    RELATIONS,
    TIMES,
    Tree,
    collapsed,
    is_bare,
    is_leaf,
    literal,
    number,
    parts_of,
    rule_of,
)

MAX_PIECE_CHARS = 500

_DELIMITERS = re.compile(r"\$|\\[()\[\]]|\n")
# A word, the articles, and marks that end a clause.
_PROSE = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}(?![A-Za-z{(])|(?<= )[aAI](?= )|[.,;:?!](?= |$)")

# What a copy shares with its original, however it is written: integers, letters and commands.
_TOKENS = re.compile(r"(?<![0-9/])[0-9]+(?![0-9/])|\\[A-Za-z]+|(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")


def is_copy(answer: Parsed, gold: Parsed, prompt: str) -> bool:
    """Whether the prompt holds the answer in other notation. A plain number or a reduced fraction is no copy.

    Nor is an answer in the form of the gold answer, where the prompt holds the gold answer as it is written: the
    problem is to choose one of its expressions.
    """
    if not prompt or is_bare(answer.tree):
        return False
    form = normal_form(answer.tree)
    if form == normal_form(gold.tree) and "".join(gold.text.split()) in "".join(prompt.split()):
        return False
    tokens = {*_TOKENS.findall(form)} - {"0", "1", "2"}
    return any(form in _forms(piece) for piece in _pieces(prompt) if all(token in piece for token in tokens))


def normal_form(tree: Tree) -> str:
    r"""One text for all ways to write an expression, up to spaces, signs, order, parentheses, 1 and 0.

    The value of an equation is its last side.
    """
    sign, form = _signed(tree)
    return f"-{form}" if sign < 0 else form


def _pieces(prompt: str) -> Iterator[str]:
    """The parts of a prompt that may be expressions, with or without dollars."""
    for part in _DELIMITERS.split(prompt):
        for piece in dict.fromkeys((part, *_PROSE.split(part))):
            if 1 < len(piece.strip()) <= MAX_PIECE_CHARS and (piece != part or not _PROSE.search(part.strip())):
                yield piece.strip().replace("{,}", "")


@lru_cache(maxsize=1024)  # the responses of a group share a prompt
def _forms(piece: str) -> frozenset[str]:
    """The normal forms of an expression and of all its parts."""
    tree = parse_tree(piece)
    return frozenset() if tree is None else frozenset(map(normal_form, _subtrees(tree)))


def _subtrees(tree: Tree) -> Iterator[Tree]:
    tree = collapsed(tree)
    if not is_leaf(tree):
        yield tree
        for part in parts_of(tree):
            yield from _subtrees(part)


def _signed(tree: Tree) -> tuple[int, str]:
    """The sign of an expression and the normal form of the rest."""
    sign, powers = _product(tree)
    forms = sorted(base if power == 1 else f"{base}^{power}" for base, power in powers.items() if power)
    return sign, "*".join(forms) or "1"


def _product(tree: Tree) -> tuple[int, Counter[str]]:
    """The sign of an expression, its factors and their exponents."""
    node = collapsed(tree)
    while rule_of(node) in RELATIONS and any(child.getText() == "=" for child in node.getChildren()):
        node = collapsed(parts_of(node)[-1])
    if is_leaf(node):
        value = literal(node.getText())
        return 1, Counter() if value == 1 else Counter([node.getText() if value is None else str(value)])
    rule, parts, first = rule_of(node).removesuffix("_nofunc"), parts_of(node), node.getChild(0).getText()
    if rule == "math" or (rule in GROUPS and len(parts) == 1):
        return _product(parts[0])
    if rule == "additive":
        sign, form = _sum(node)
        return sign, Counter([form])
    if rule == "unary" and len(parts) == 1:
        sign, powers = _product(parts[0])
        return -sign if first == "-" else sign, powers
    over = rule == "frac" or (rule == "mp" and node.getChild(1).getText() in OVER)
    if over or rule == "unary" or (rule == "mp" and node.getChild(1).getText() in TIMES):
        sign, powers = _product(parts[0])
        for part in parts[1:]:
            other, of_part = _product(part)
            sign *= other
            powers.update({base: -power if over else power for base, power in of_part.items()})
        return sign, powers
    if rule in ("exp", "atom_expr") and len(parts) == 2 - (rule == "atom_expr"):
        exponent = number(parts[-1] if rule == "exp" else parts_of(parts[-1])[0])
        if exponent is not None and exponent.denominator == 1 and abs(exponent) < MAX_EXPONENT:
            sign, powers = _product(node.getChild(0))
            power = int(exponent)
            return sign ** (power % 2), Counter({base: power * inner for base, inner in powers.items()})
    texts = [child.getText() if is_leaf(child) else normal_form(child) for child in node.getChildren()]
    idle = "{}()" if rule == "func" else "{}"
    return 1, Counter([f"{rule}[{' '.join(text for text in texts if text not in idle)}]"])


def _sum(node: Tree) -> tuple[int, str]:
    """The sign that makes the first term positive, and the sum: -(1-x) is x-1."""
    terms = sorted((form, sign) for sign, form in _terms(node) if form != "0")
    if not terms:
        return 1, "0"
    first = terms[0][1]
    return first, terms[0][0] if len(terms) == 1 else f"({''.join('-+'[sign == first] + form for form, sign in terms)})"


def _terms(node: Tree, sign: int = 1) -> Iterator[tuple[int, str]]:
    node = collapsed(node)
    rule, parts = rule_of(node).removesuffix("_nofunc"), parts_of(node)
    if rule == "additive":
        yield from _terms(parts[0], sign)
        yield from _terms(parts[1], -sign if node.getChild(1).getText() == "-" else sign)
    elif len(parts) == 1 and rule in (*GROUPS, "unary"):
        yield from _terms(parts[0], -sign if node.getChild(0).getText() == "-" else sign)
    else:
        inner, form = _signed(node)
        yield sign * inner, form
