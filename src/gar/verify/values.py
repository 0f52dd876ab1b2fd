"""Compare two answers by the type of the gold answer: number, expression, function, curve, list, tuple, set of numbers,
system, matrix. Each type has one function here, and one section in docs/grading.md.
"""

import re
from collections.abc import Sequence
from typing import Any

from gar.verify.evaluate import UndefinedError, equal, has, letters_in
from gar.verify.regions import is_inequality, is_region, same_region
from gar.verify.tree import Node, NotRead, transformed

_REGIONS = {"interval", "union", "intersection", "without", "builder", "numbers"}
_INDEX = re.compile(r"_[0-9]+\Z")


def same(answer: Node, gold: Node) -> bool:
    """Whether an answer is the gold answer, by the gold answer's type. `NotRead` if it states several values."""
    gold = stated_value(gold) if gold.value == ("in",) else gold
    if names := _named_values(gold):
        return _same_named(answer, names)
    if gold.op == "cases":
        return answer.op == "cases" and _same_members(answer.args, gold.args)
    if gold.op == "relation":
        return _same_relation(answer, gold)
    if is_inequality(gold) or gold.op in _REGIONS:
        return _same_region(answer, gold)
    if gold.op in ("list", "set") or has(gold, "pm"):
        return _same_set(answer, gold)
    answer = stated_value(answer)
    answer, gold = _scaled(answer), _scaled(gold)
    if gold.op == "tuple":
        return _same_tuple(answer, gold)
    if gold.op in ("matrix", "bracket"):
        answer, gold = _column(answer, gold)
        return answer.op == gold.op and answer.value == gold.value and _in_order(answer.args, gold.args)
    return _same_value(answer, gold)


def _same_value(answer: Node, gold: Node) -> bool:
    """A number, or an expression with letters."""
    if answer.op == "list" or has(answer, "pm"):
        first, *others = [stated_value(item) for item in _expanded(answer)]
        if others and not all(_same_value(item, first) for item in others):
            raise NotRead("the answer lists several values, and the gold answer is one")
        answer = first
    return equal(answer, gold)


def _same_relation(answer: Node, gold: Node) -> bool:
    """A named value, a function, a curve, an inequality, or a member of a set."""
    if "=" not in gold.value:  # pyright: ignore[reportOperatorIssue]
        if is_region(gold) and _same_region(answer, gold):
            return True
        return answer.value == gold.value and _in_order(answer.args, gold.args)
    name, stated = gold.args[0], stated_value(gold)
    if answer.op != "relation":
        return _is_name(name) and same(answer, stated)
    answer = _with_parameters_of(answer, gold)
    if _is_name(name) and (answer.args[0] == name or _names_a_graph(answer.args[0], name)):
        return same(stated_value(answer), stated)
    return _same_sides(answer, gold)


def _same_sides(answer: Node, gold: Node) -> bool:
    """A curve: the differences of the sides are proportional."""
    if answer.value != ("=",) or gold.value != ("=",):
        return False
    sides = [_difference(answer), _difference(gold)]
    if letters_in(sides[0]) != letters_in(sides[1]) or not all(map(_is_scalar, sides)):
        return False
    ratio = Node("over", (sides[0], sides[1]))
    other = _relettered(ratio, {name: f"{name}~" for name in letters_in(ratio)})
    return equal(ratio, other)


def _same_tuple(answer: Node, gold: Node) -> bool:
    member = answer.op == "relation" and answer.value == ("in",)
    if len(gold.args) == 2 and (is_inequality(answer) or answer.op == "builder" or member):
        return _same_region(answer, gold)
    answer, gold = _column(answer, gold)
    return answer.op in ("tuple", "list") and _in_order(answer.args, gold.args)


def _same_set(answer: Node, gold: Node) -> bool:
    """A list or a set: every member of one is a member of the other."""
    answer = stated_value(answer)
    if answer.op == "tuple" and has(gold, "tuple"):
        return len(gold.args) == 1 and same(answer, gold.args[0])
    return _same_members(_expanded(answer), _expanded(gold))


def _same_members(answers: Sequence[Node], golds: Sequence[Node]) -> bool:
    names, given = ({part.args[0] for part in parts if part.op == "relation"} for parts in (golds, answers))
    if len(given) == 1 < len(names):  # x = 1 or x = 2, and the gold answer x_1 = 1, x_2 = 2
        names, answers, golds = given, golds, answers
    if len(names) == 1 and not any(is_inequality(part) for part in golds):
        answers = [_with_parameters_of(part, golds[0]) if part.op == "relation" else part for part in answers]
        given = {part.args[0] for part in answers if part.op == "relation"}
        bases = {_INDEX.sub("", str(name.value)) for name in given}
        if given <= names or (len(bases) == 1 and all(part.op == "letter" for part in (*given, *names))):
            answers, golds = [stated_value(part) for part in answers], [stated_value(part) for part in golds]
    found = [[_same_or_not(a, b) for b in golds] for a in answers]
    return all(map(any, found)) and all(map(any, zip(*found, strict=True)))


def _same_or_not(answer: Node, gold: Node) -> bool:
    try:
        return same(answer, gold)
    except (NotRead, UndefinedError):
        return False


def _in_order(answers: Sequence[Node], golds: Sequence[Node]) -> bool:
    return len(answers) == len(golds) and all(map(_same_or_not, answers, golds))


def _same_named(answer: Node, names: dict[Node, Node]) -> bool:
    """Values of several unknowns: by their names in any order, or without names in order."""
    answer = stated_value(answer)
    if given := _named_values(answer):
        return given.keys() == names.keys() and all(same(given[name], names[name]) for name in names)
    bare = answer.op in ("tuple", "list") and not any(part.op == "relation" for part in answer.args)
    return bare and _in_order(answer.args, tuple(names.values()))


def _same_region(answer: Node, gold: Node) -> bool:
    """An interval, a union of some, or an inequality in one letter."""
    if is_region(answer) and is_region(gold):
        return same_region(answer, gold)
    return answer == gold


def _is_scalar(node: Node) -> bool:
    return not has(node, "list", "tuple", "bracket", "set", "relation", "matrix", "cases", "numbers", *_REGIONS)


def _is_name(node: Node) -> bool:
    """Whether the left side of an equation only names its value: `x`, `a_n`, `f(x)`, `(x, y)`, `AB`."""
    if node.op in ("product", "tuple"):
        return all(part.op == "letter" for part in node.args)
    return (
        node.op == "letter"
        or (node.op == "call" and str(node.value) in letters_in(node))
        or node == Node("constant", (), "i")
    )


def _names_a_graph(answer: Node, gold: Node) -> bool:
    """Whether one side is `y` and the other `f(x)`."""
    y = Node("letter", (), "y")
    return y in (answer, gold) and _is_name(answer) and _is_name(gold) and len(answer.args + gold.args) == 1


def stated_value(node: Node, *, by_name: bool = False) -> Node:
    """What an equation states: its last side. `by_name`: only if its left side is a name."""
    if by_name and node.op == "relation" and not _is_name(node.args[0]):
        return node
    if node.op == "relation" and set(node.value) == {"="}:  # pyright: ignore[reportArgumentType]
        return node if _is_multiple(node.args[0]) else node.args[-1]
    return node.args[1] if node.op == "relation" and node.value == ("in",) and node.args[1].op == "set" else node


def _is_multiple(node: Node) -> bool:
    """Whether the left side of an equation is `-x` or `2x`, which is another value than `x`."""
    *factors, last = node.args or (node,)
    return node.op in ("minus", "product") and last.op == "letter" and not any(map(letters_in, factors))


def _named_values(node: Node) -> dict[Node, Node]:
    """The values of several unknowns, by name: of `x = 1, y = 2` or a system. Empty for anything else."""
    if node.op == "relation" and node.value == ("=",) and node.args[0].op == "tuple" and node.args[1].op == "tuple":
        return dict(zip(node.args[0].args, node.args[1].args, strict=False))
    if node.op not in ("list", "cases") or not all(
        part.op == "relation" and part.value == ("=",) for part in node.args
    ):
        return {}
    names = {part.args[0]: part.args[1] for part in node.args if _is_name(part.args[0])}
    bases = {_INDEX.sub("", str(name.value)) for name in names}
    return names if len(names) == len(node.args) and (len(bases) == len(names) > 1 or node.op == "cases") else {}


def _expanded(node: Node) -> list[Node]:
    r"""The members of a list or set, with two for a member with `\pm`. A single one as itself."""
    members = node.args if node.op in ("list", "set", "tuple", "bracket") else (node,)
    expanded: list[Node] = []
    for member in members:
        expanded += [_with_sign(member, sign) for sign in "+-"] if has(member, "pm") else [member]
    return expanded


def _with_sign(node: Node, sign: str) -> Node:
    def change(part: Node) -> Node:
        if part.op != "pm":
            return part
        return part.args[0] if (part.value == r"\pm") == (sign == "+") else Node("minus", part.args)

    return transformed(node, change)


def _difference(node: Node) -> Node:
    return Node("sum", (node.args[0], Node("minus", (node.args[1],))))


def _with_parameters_of(answer: Node, gold: Node) -> Node:
    """A function with the names of the gold answer's parameters: `f(t) = t^2` for `f(x) = x^2`."""
    left, gold_left = answer.args[0], gold.args[0]
    ours, theirs = ([part.value for part in side.args] for side in (left, gold_left))
    calls = left.op == gold_left.op == "call" and left.value == gold_left.value and len(ours) == len(theirs)
    letters = all(part.op == "letter" for part in (*left.args, *gold_left.args))
    if not calls or not letters or ours == theirs or set(theirs) & letters_in(answer):
        return answer
    return _relettered(answer, dict(zip(ours, theirs, strict=True)))


def _scaled(node: Node) -> Node:
    """A matrix with its factor in its entries."""
    if node.op not in ("product", "over") or [part.op for part in node.args].count("matrix") != 1:
        return node
    place = [part.op for part in node.args].index("matrix")
    matrix = node.args[place]
    entries = (node._replace(args=(*node.args[:place], entry, *node.args[place + 1 :])) for entry in matrix.args)
    return matrix._replace(args=tuple(entries))


def _column(answer: Node, gold: Node) -> tuple[Node, Node]:
    """A vector as a tuple, beside a tuple."""
    if {answer.op, gold.op} == {"matrix", "tuple"}:
        answer, gold = (
            Node("tuple", side.args) if side.value == 1 or len(side.args) == side.value else side
            for side in (answer, gold)
        )
    return answer, gold


def _relettered(node: Node, names: dict[Any, Any]) -> Node:
    """An expression in other letters."""

    def change(part: Node) -> Node:
        return part._replace(value=names.get(part.value, part.value)) if part.op in ("letter", "call") else part

    return transformed(node, change)
