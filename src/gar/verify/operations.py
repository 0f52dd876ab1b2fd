r"""Find the operations that an expression leaves undone, on the parse tree of math-verify's grammar.

Signs, fractions of two integers, mixed numbers, percent and scientific notation are ways to write a number. Anything
else that could be worked out is an operation: `3+15`, `\binom{8}{4}`, `\sqrt{49}`. Operations on variables are not.

Every operation has a name. A variable counts as one, for it may cancel (`3x/x`). Sums and products have several names:
a sum or product of numbers (`3+15`), a coefficient of a constant or an operation (`2\sqrt{3}`), and a sum or product of
constants or operations (`\sqrt{2}\cdot\sqrt{3}`).
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from antlr4 import ParserRuleContext, TerminalNode
from latex2sympy2_extended.antlr_parser import PSParser

MAX_EXPONENT = 10_000

SUM_OF_NUMBERS, SUM = "sum of numbers", "sum"
PRODUCT_OF_NUMBERS, COEFFICIENT, PRODUCT = "product of numbers", "coefficient", "product"
VARIABLE = "variable"
_FUNCTIONS = {r"\sqrt": "root", r"\exp": "e", r"\ln": "log", r"\log": "log", r"\lg": "log"}
_IMPLIED = {SUM_OF_NUMBERS: {SUM}, PRODUCT_OF_NUMBERS: {PRODUCT}, COEFFICIENT: {PRODUCT}}
"""A gold answer that has the first name allows the second ones too."""

# Grammar rules that only group their parts.
_ELEMENTS = {
    "comma_elements", "semicolon_elements", "comma_elements_no_relation", "semicolon_elements_no_relation",
}  # fmt: skip  # a list of names
_STRUCTURE = _ELEMENTS | {
    "group", "formatting_group", "ordered_tuple", "interval", "finite_set", "matrix_row", "atom_expr_list",
    "literal_set", "set_elements", "set_group", "args", "func_common_args", "func_multi_arg", "func_single_arg",
    "number_subexpr", "func_normal_multi_arg", "func_single_arg_noparens", "func_multi_arg_noparens", "limit_sub",
    "subexpr", "supexpr", "subeq", "supeq",
}  # fmt: skip  # a list of names
_LISTS = _ELEMENTS | {"plus_minus_expr"}
GROUPS = {"group", "formatting_group", "ordered_tuple"}
RELATIONS = {"relation", "equality", "set_relation", "set_elements_relation"}
_PRODUCTS = {"mp", "mp_nofunc", "unary", "unary_nofunc", "frac"}
_SET_OPERATIONS = {"union_expr", "intersection_expr", "minus_expr"}
_UNDONE_ALWAYS = {r"\int", r"\sum", r"\prod", r"\lim"}
_CONSTANTS = {r"\pi", "π", "e", "i", "I", r"\mathrm{i}", r"\mathrm{e}"}
_LETTERS = {
    getattr(PSParser, name)
    for name in ("LETTER_NO_E", "GREEK_CMD", "OTHER_SYMBOL_CMD", "VARIABLE", "ACCENT", "DIFFERENTIAL")
}
TIMES = {"*", "×", "⋅", "∗", "·", r"\times", r"\cdot"}
OVER = {"/", ":", "÷", r"\div"}
_POWER_OF_TEN = re.compile(r"10\^\{?([-+]?[0-9]{1,4})\}?")
_PERCENT = re.compile(r" *\\?%$")

Tree = Any  # antlr4 has no types


def undone(answer: Tree, gold: Tree) -> set[str]:
    """The operations of `answer` that `gold` does not have. Both are trees from `expressions.parse`.

    A coefficient of an operation that the gold answer has is always allowed.
    """
    left = operations(answer, equation=_has_equation(gold)) - {COEFFICIENT}
    if left:
        allowed = operations(gold, equation=True)
        left -= allowed | {implied for name in allowed for implied in _IMPLIED.get(name, ())}
        if VARIABLE in allowed and _has_equation(gold):  # (x-1)^2 = 3^2
            left.discard("power")
    return left


def is_list(tree: Tree) -> bool:
    r"""Whether an answer lists values without brackets: `3, 7`, `3 or 7`, `x = 1, 2`, `\pm 7`."""
    node = collapsed(tree)
    *_, value = sides(parts_of(node)[0] if rule_of(node) == "math" and parts_of(node) else node)
    return rule_of(value) in _LISTS


def operations(tree: Tree, *, equation: bool = False) -> set[str]:
    """The names of all operations on numbers and constants.

    With `equation` both sides of an equation count, otherwise only the last side, which is its value.
    """
    node = collapsed(tree)
    if is_leaf(node):
        return {VARIABLE} if _has_letter(node) else set()
    if number(node) is not None:
        return set()
    rule, parts = rule_of(node), parts_of(node)
    if rule == "additive":
        terms = list(_terms(node))
        return _of_sum(terms) | _of_all(terms, equation)
    if rule in _PRODUCTS:
        return _of_product(node, equation)
    if rule in ("exp", "exp_nofunc", "atom_expr"):
        return _of_power(node, parts, equation)
    if rule in RELATIONS:
        return _of_relation(node, equation)
    if rule == "plus_minus_expr":
        return (_of_sum(parts) if len(parts) == 2 else set()) | _of_all(parts, equation)
    if rule in _SET_OPERATIONS:
        finite = all(rule_of(collapsed(part)) == "finite_set" for part in parts)
        return ({rule.removesuffix("_expr")} if finite else set()) | _of_all(parts, equation)
    if rule == "math" or rule in _STRUCTURE or (rule == "matrix" and node.MATRIX_XRIGHTARROW() is None):
        return _of_all(parts, equation)
    if rule == "postfix" and node.getText().endswith((r"^\circ", "°", "'")):  # degrees, minutes of arc
        return _of_all(parts[:1], equation)
    return _of_function(node, parts, equation)


def number(tree: Tree) -> Fraction | None:
    r"""The exact value of a number, however it is written. None for a tree with an operation or a letter.

    `-7`, `2.50`, `\frac{36}{2}`, `3/4`, `2\frac{1}{2}`, `50\%` (which is 1/2), `6.02\times 10^{23}`, `30^\circ`.
    """
    node = collapsed(tree)
    if is_leaf(node):
        return literal(node.getText())
    rule, children = rule_of(node).removesuffix("_nofunc"), node.children
    if rule == "math":
        return number(children[0]) if len(children) == 2 else None  # the second child is the end of the text
    if rule == "unary" and is_leaf(children[0]):
        value = number(children[1])
        return -value if value is not None and children[0].getText() == "-" else value
    if rule == "unary" and len(children) == 2:
        return _mixed(children)
    if rule in GROUPS and len(children) == 3:
        return number(children[1])
    operator = children[1].getText() if rule in ("mp", "postfix") else "/" if rule == "frac" else ""
    if operator == "/":
        top, bottom = map(number, parts_of(node))
        if top is None or not bottom or max(top.denominator, bottom.denominator) > 1:
            return None
        return top / bottom
    if operator in TIMES:
        return _scientific(number(children[0]), children[2])
    return number(children[0]) if operator in (r"^\circ", "°") and len(children) == 2 else None


def is_bare(tree: Tree) -> bool:
    """Whether a tree holds only finished values: no operation, no letters, no unreduced fraction."""
    node = collapsed(tree)
    if is_leaf(node):
        return True
    rule, parts = rule_of(node), parts_of(node)
    value = number(node)
    if value is not None and (rule == "frac" or (rule == "mp" and "/" in node.getText())):
        written = tuple(map(number, parts))
        plain = all(rule_of(collapsed(part)) in ("", "unary") for part in parts)
        return plain and (abs(written[0] or 0), written[1]) == abs(value).as_integer_ratio()
    if value is not None and rule in ("mp", "postfix"):  # scientific notation, degrees
        return True
    signed = rule == "unary" and len(parts) == 1
    relation = rule in ("relation", "set_elements_relation")
    return (signed or relation or rule == "math" or rule in _STRUCTURE) and all(map(is_bare, parts))


def _of_sum(terms: list[Tree]) -> set[str]:
    if sum(number(term) is not None for term in terms) > 1:
        return {SUM_OF_NUMBERS}
    return set() if any(map(_has_letter, terms)) else {SUM}


def _of_product(node: Tree, equation: bool) -> set[str]:
    if _is_derivative(node):
        return {"derivative"}
    over, under = [], []
    for factor, below in _factors(node):
        (under if below else over).append(factor)
    numbers = [sum(number(factor) is not None for factor in side) for side in (over, under)]
    others = [[f for f in side if number(f) is None and not _has_letter(f)] for side in (over, under)]
    names = _of_all(over + under, equation)
    if max(numbers) > 1 or (sum(numbers) > 1 and len(over + under) == 2):
        names.add(PRODUCT_OF_NUMBERS)
    if max(map(len, others)) > 1:
        names.add(PRODUCT)
    elif any(others) and (any(numbers) or all(others)):
        names.add(COEFFICIENT)
    return names


def _of_power(node: Tree, parts: list[Tree], equation: bool) -> set[str]:
    upper = next((part for part in parts if rule_of(part) == "supexpr"), None)
    if rule_of(node) == "atom_expr" and upper is None:
        return {VARIABLE}  # with a subscript
    base, exponent = node.getChild(0), upper if upper is not None else parts[-1]
    names = _of_all([base, exponent], equation)
    if not _has_letter(node):
        value = number(parts_of(exponent)[0] if upper is not None else exponent)
        names.add("root" if value is not None and value.denominator > 1 else "power")
    return names


def _of_relation(node: Tree, equation: bool) -> set[str]:
    both = list(sides(node))
    if not any(child.getText() in ("=", r"\in", "==") for child in node.getChildren()):
        return _of_all([side for side in both if not is_leaf(collapsed(side))], equation)  # x in x < 3 is a name
    return _of_all([both[0], both[-1]] if equation else both[-1:], equation)


def _of_function(node: Tree, parts: list[Tree], equation: bool) -> set[str]:
    rule, first = rule_of(node), str(node.getChild(0).getText())
    name = _FUNCTIONS.get(first, first) if rule == "func" else rule
    name = "factorial" if rule == "postfix" else str(name).removesuffix("_group")
    undone_always = name in _UNDONE_ALWAYS or rule in ("det", "eval_at", "matrix")
    inner = _of_all(parts, equation)
    inner -= {"root", "power"} if name == "log" else set()  # the logarithm of a root is a multiple of a logarithm
    return inner if _has_letter(node) and not undone_always else inner | {name}


def _of_all(nodes: list[Tree], equation: bool) -> set[str]:
    return {name for node in nodes for name in operations(node, equation=equation)}


def _terms(node: Tree) -> Iterator[Tree]:
    node = collapsed(node)
    if rule_of(node) == "additive" or rule_of(node) in GROUPS:
        for part in parts_of(node):
            yield from _terms(part)
    else:
        yield node


def _factors(node: Tree, below: bool = False) -> Iterator[tuple[Tree, bool]]:
    """The factors of a product, and whether each is in the denominator."""
    node = collapsed(node)
    if number(node) is not None or rule_of(node) not in _PRODUCTS | GROUPS:
        yield node, below
        return
    first, *others = parts_of(node)
    if rule_of(node) == "frac":
        divides = [True]
    elif rule_of(node) == "mp" and node.getChild(1).getText() not in TIMES | OVER:
        yield node.getChild(1), below  # mod counts as a factor, and so as an operation
        divides = [False]
    else:
        divides = [rule_of(node) == "mp" and node.getChild(1).getText() in OVER] * len(others)
    yield from _factors(first, below)
    for other, flips in zip(others, divides, strict=True):
        yield from _factors(other, below ^ flips)


def sides(node: Tree) -> Iterator[Tree]:
    """The sides of a relation, or the tree itself."""
    node = collapsed(node)
    if rule_of(node) in RELATIONS:
        for part in parts_of(node):
            yield from sides(part)
    else:
        yield node


def literal(text: str) -> Fraction | None:
    """The value of digits, perhaps with a point, an exponent or a percent sign. None for any other text."""
    percent = _PERCENT.search(text)
    digits = (text[: percent.start()] if percent else text).replace(",", "")
    if not re.fullmatch(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?", digits):
        return None
    return Fraction(digits) / (100 if percent else 1)


def _scientific(mantissa: Fraction | None, power: Tree) -> Fraction | None:
    exponent = _POWER_OF_TEN.fullmatch(power.getText())
    if mantissa is None or exponent is None or not 1 <= abs(mantissa) < 10:
        return None
    return mantissa * Fraction(10) ** int(exponent[1])


def _mixed(children: list[Tree]) -> Fraction | None:
    whole, part = children[0].getText(), number(children[1])
    proper = rule_of(collapsed(children[1])) == "frac" and part is not None and 0 < part < 1
    return int(whole) + part if part is not None and proper and whole.isdecimal() else None


def _is_derivative(node: Tree) -> bool:
    for child in (node, *node.getChildren()):
        child = collapsed(child)
        if rule_of(child) == "frac" and re.match(r"d[a-zA-Z]|\\partial", child.lower.getText()):
            return re.match(r"d|\\partial", child.upper.getText()) is not None
    return False


def _has_equation(tree: Tree) -> bool:
    return any(leaf.getText() in ("=", r"\in") for leaf in _leaves(tree))


def _has_letter(tree: Tree) -> bool:
    return any(leaf.symbol.type in _LETTERS and leaf.getText().strip() not in _CONSTANTS for leaf in _leaves(tree))


def _leaves(tree: Tree) -> Iterator[Tree]:
    if is_leaf(tree):
        yield tree
    else:
        for child in tree.getChildren():
            yield from _leaves(child)


def is_leaf(tree: Tree) -> bool:
    """Whether a tree is one token."""
    return isinstance(tree, TerminalNode)


def collapsed(tree: Tree) -> Tree:
    """A tree without the nodes at its top that have one child."""
    while isinstance(tree, ParserRuleContext) and tree.getChildCount() == 1:
        tree = tree.getChild(0)
    return tree


def rule_of(tree: Tree) -> str:
    """The grammar rule of a node. Empty for a token."""
    return PSParser.ruleNames[tree.getRuleIndex()] if isinstance(tree, ParserRuleContext) else ""


def parts_of(node: Tree) -> list[Tree]:
    """The children that hold a value: not operators, brackets and command names."""
    return [] if is_leaf(node) else [child for child in node.getChildren() if not is_leaf(child)]
