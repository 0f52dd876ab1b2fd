"""Compare two answers by the type of the gold answer: number, expression, function, curve, list, tuple, set of numbers,
system, matrix. Each type has one function here, and one section in docs/grading.md.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from gar.verify.evaluate import UndefinedError, equal, has, letters_in, value
from gar.verify.grammar import Node, NotRead, transformed

_REGIONS = {"interval", "union", "intersection", "without", "builder", "numbers"}
_ORDER = {"<", ">", "<=", ">=", "!="}
_REVERSED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_INDEX = re.compile(r"_[0-9]+\Z")
_INFINITY = Node("constant", (), "infinity")
_MINUS_INFINITY = Node("minus", (_INFINITY,))


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval of real numbers between two ends, which may be infinite."""

    low: Node
    high: Node
    has_low: bool
    has_high: bool


@dataclass(frozen=True, slots=True)
class TypedComparison:
    """Compares answers with one gold answer. `exact`: without irrational numbers, which raise `IrrationalError`."""

    exact: bool

    def same(self, answer: Node, gold: Node) -> bool:
        """Whether an answer is the gold answer, by the gold answer's type. `NotRead` if it states several values."""
        gold = gold.args[1] if gold.op == "relation" and gold.value == ("in",) and gold.args[1].op == "set" else gold
        names = _named_values(gold)
        if names:
            return self._same_named(answer, names)
        if gold.op == "cases":
            return answer.op == "cases" and self._same_members(answer.args, gold.args)
        if gold.op == "relation":
            return self._same_relation(answer, gold)
        if _is_inequality(gold) or gold.op in _REGIONS:
            return self._same_region(answer, gold)
        if gold.op in ("list", "set") or has(gold, "pm"):
            return self._same_set(answer, gold)
        answer = _stated(answer)
        answer, gold = _scaled(answer), _scaled(gold)
        if gold.op == "tuple":
            return self._same_tuple(answer, gold)
        if gold.op in ("matrix", "bracket"):
            answer, gold = _column(answer, gold)
            return answer.op == gold.op and answer.value == gold.value and self._in_order(answer.args, gold.args)
        return self._same_value(answer, gold)

    def _same_value(self, answer: Node, gold: Node) -> bool:
        """A number, or an expression with letters."""
        if answer.op == "list" or has(answer, "pm"):
            first, *others = [_stated(item) for item in _expanded(answer)]
            if others and not all(self._same_value(item, first) for item in others):
                raise NotRead("the answer lists several values, and the gold answer is one")
            answer = first
        if answer.op == "bracket":
            raise NotRead("square brackets around one value")
        if answer.op == "relation" or not _is_scalar(answer):
            return False
        return equal(answer, gold, exact=self.exact)

    def _same_relation(self, answer: Node, gold: Node) -> bool:
        """A named value, a function, a curve, or an inequality."""
        if _is_inequality(gold):
            region = self._region(gold)
            return self._same_region(answer, gold) if region is not None else self._same_sides(answer, gold)
        if "=" not in gold.value:  # pyright: ignore[reportOperatorIssue]
            region = gold.args[-1]
            return (
                self._same_region(answer, gold)
                if gold.value == ("in",)
                else answer.value == gold.value and self._in_order(answer.args, gold.args) and bool(region)
            )
        name, stated = gold.args[0], _stated(gold)
        if answer.op != "relation":
            is_name = _is_name(name)
            return is_name and self.same(answer, stated)
        if _is_inequality(answer):
            return False
        answer = _with_parameters_of(answer, gold)
        if _is_name(name) and (answer.args[0] == name or _names_a_graph(answer.args[0], name)):
            return self.same(_stated(answer), stated)
        return self._same_sides(answer, gold)

    def _same_sides(self, answer: Node, gold: Node) -> bool:
        """A curve, or an inequality with several letters: the differences of the sides are proportional."""
        if answer.op != "relation" or len(answer.args) != 2 or len(gold.args) != 2:
            return False
        sides = [_difference(answer), _difference(gold)]
        if answer.value != gold.value:
            if _REVERSED.get(str(answer.value[0])) != gold.value[0]:  # pyright: ignore[reportIndexIssue, reportOptionalSubscript]
                return False
            sides[0] = Node("minus", (sides[0],))
        if letters_in(sides[0]) != letters_in(sides[1]) or not all(map(_is_scalar, sides)):
            return False
        ratio = Node("over", (sides[0], sides[1]))
        other = _relettered(ratio, {name: f"{name}~" for name in letters_in(ratio)})
        if not equal(ratio, other, exact=self.exact):
            return False
        return gold.value == ("=",) or equal(Node("call", (ratio,), "abs"), ratio, exact=self.exact)

    def _same_tuple(self, answer: Node, gold: Node) -> bool:
        if len(gold.args) == 2 and (_is_inequality(answer) or answer.op == "builder"):
            return self._same_region(answer, gold)
        answer, gold = _column(answer, gold)
        if names := _named_values(answer):
            answer = Node("tuple", tuple(names.values()))
        if answer.op == "list" and any(part.op == "tuple" for part in answer.args) != any(
            part.op == "tuple" for part in gold.args
        ):
            raise NotRead("the answer lists several values, and the gold answer is one")
        return answer.op in ("tuple", "list") and self._in_order(answer.args, gold.args)

    def _same_set(self, answer: Node, gold: Node) -> bool:
        """A list or a set: every member of one is a member of the other."""
        answer = _stated(answer)
        if answer.op == "tuple" and has(gold, "tuple"):
            return len(gold.args) == 1 and self.same(answer, gold.args[0])
        if answer.op in _REGIONS or answer.op == "interval":
            return False
        if any(part.value == r"\ldots" for part in (*gold.args, *answer.args)):
            return self._in_order(answer.args, gold.args)
        if gold.op == "set" and answer.op not in ("set", "list", "tuple") and not has(answer, "pm"):
            return False
        return self._same_members(_expanded(answer), _expanded(gold))

    def _same_members(self, answers: Sequence[Node], golds: Sequence[Node]) -> bool:
        names = {part.args[0] for part in golds if part.op == "relation"}
        if len(names) == 1 and not any(_is_inequality(part) for part in golds):
            answers = [_with_parameters_of(part, golds[0]) if part.op == "relation" else part for part in answers]
            given = {part.args[0] for part in answers if part.op == "relation"}
            bases = {_INDEX.sub("", str(name.value)) for name in given}
            if given <= names or (len(bases) == 1 and all(part.op == "letter" for part in (*given, *names))):
                answers, golds = [_stated(part) for part in answers], [_stated(part) for part in golds]
        elif not names:
            answers = [_stated(part) for part in answers]
        if not answers or not golds:
            return not answers and not golds
        found = [[self._same_or_not(a, b) for b in golds] for a in answers]
        return all(map(any, found)) and all(map(any, zip(*found, strict=True)))

    def _same_or_not(self, answer: Node, gold: Node) -> bool:
        try:
            return self.same(answer, gold)
        except (NotRead, UndefinedError):
            return False

    def _in_order(self, answers: Sequence[Node], golds: Sequence[Node]) -> bool:
        return len(answers) == len(golds) and all(map(self._same_or_not, answers, golds))

    def _same_named(self, answer: Node, names: dict[Node, Node]) -> bool:
        """Values of several unknowns: by their names in any order, or without names in order."""
        answer = _stated(answer)
        if given := _named_values(answer):
            return given.keys() == names.keys() and all(self.same(given[name], names[name]) for name in names)
        bare = answer.op in ("tuple", "list") and not any(part.op == "relation" for part in answer.args)
        return bare and self._in_order(answer.args, tuple(names.values()))

    def _same_region(self, answer: Node, gold: Node) -> bool:
        """An interval, a union of some, or an inequality in one letter."""
        letters = [_letter_of(side) for side in (answer, gold)]
        if None not in letters and letters[0] != letters[1]:
            return False
        pieces, gold_pieces = self._region(answer), self._region(gold)
        if pieces is None and answer.op == "list":
            raise NotRead("the answer lists several values, and the gold answer is one")
        if pieces is None or gold_pieces is None:
            return answer == gold
        return len(pieces) == len(gold_pieces) and all(map(self._same_piece, pieces, gold_pieces))

    def _same_piece(self, answer: Piece, gold: Piece) -> bool:
        flags = (answer.has_low, answer.has_high) == (gold.has_low, gold.has_high)
        return flags and self._same_end(answer.low, gold.low) and self._same_end(answer.high, gold.high)

    def _same_end(self, answer: Node, gold: Node) -> bool:
        return (
            answer == gold
            if _INFINITY in (*answer.args, answer, *gold.args, gold)
            else equal(answer, gold, exact=self.exact)
        )

    def _region(self, node: Node) -> list[Piece] | None:
        """The intervals that a set of real numbers consists of, in order. None for another set."""
        if node.op in ("interval", "tuple") and len(node.args) == 2:
            brackets = str(node.value or "()")
            ends = _closed(*node.args, brackets[0] == "[", brackets[1] == "]")
            return [ends]
        if node == Node("numbers", (), "R"):
            return [Piece(_MINUS_INFINITY, _INFINITY, False, False)]
        if node.op == "set":
            return self._joined([Piece(part, part, True, True) for part in node.args])
        if node.op == "builder":
            return self._region(node.args[1])
        if node.op == "relation":
            return self._region_of_relation(node)
        if node.op in ("list", "union", "intersection", "without"):
            return self._combined(node)
        return None

    def _combined(self, node: Node) -> list[Piece] | None:
        regions = [self._region(part) for part in node.args]
        if None in regions:
            return None
        known: list[list[Piece]] = [region for region in regions if region is not None]
        if node.op == "union" or (node.op == "list" and node.value == "or"):
            return self._joined([piece for region in known for piece in region])
        if node.op == "without":
            known[1] = self._complement(known[1])
        elif node.value == ",":
            return None
        first, *others = known
        for other in others:
            outside = self._joined(self._complement(first) + self._complement(other))
            first = self._complement(outside)
        return first

    def _region_of_relation(self, node: Node) -> list[Piece] | None:
        signs, sides = list(node.value), list(node.args)  # pyright: ignore[reportArgumentType]
        if signs == ["in"]:
            return self._region(sides[1]) if sides[0].op in ("letter", "call") else None
        if not set(signs) <= _ORDER:
            return None
        if len(sides) == 2 and not letters_in(sides[0]):  # 3 < x
            sides, signs = sides[::-1], [_REVERSED.get(signs[0], signs[0])]
        if len(sides) == 2:
            left, end, sign = *sides, signs[0]
            size = left.op == "call" and left.value == "abs"
            name = left.args[0] if size else left
            if name.op != "letter" or name.value in letters_in(end):
                return None
            below = [
                Piece(Node("minus", (end,)) if size else _MINUS_INFINITY, end, size and sign == "<=", sign == "<=")
            ]
            if sign in ("<", "<="):
                return below
            if sign == "!=":
                return self._complement([Piece(end, end, True, True)]) if not size else None
            return self._complement([Piece(below[0].low, end, size and sign == ">", sign == ">")])
        if len(sides) == 3 and sides[1].op == "letter":
            if set(signs) <= {">", ">="}:
                sides, signs = sides[::-1], [_REVERSED[sign] for sign in signs[::-1]]
            if set(signs) <= {"<", "<="}:
                return [Piece(sides[0], sides[2], signs[0] == "<=", signs[1] == "<=")]
        return None

    def _joined(self, pieces: list[Piece]) -> list[Piece]:
        """Intervals in order, those that touch as one. Intervals whose ends have letters stay as they are."""
        if any(letters_in(end) for piece in pieces for end in (piece.low, piece.high)):
            return pieces
        place = {id(piece): (self._number(piece.low), not piece.has_low) for piece in pieces}
        joined: list[Piece] = []
        for piece in sorted(pieces, key=lambda piece: place[id(piece)]):
            last = joined[-1] if joined else None
            if last is not None and self._touch(last, piece):
                longer = (
                    piece
                    if (self._number(piece.high), piece.has_high) > (self._number(last.high), last.has_high)
                    else last
                )
                joined[-1] = Piece(last.low, longer.high, last.has_low, longer.has_high)
            else:
                joined.append(piece)
        return joined

    def _touch(self, first: Piece, second: Piece) -> bool:
        end, start = self._number(first.high), self._number(second.low)
        return start < end or (start == end and (first.has_high or second.has_low))

    def _complement(self, pieces: list[Piece]) -> list[Piece]:
        ends = [
            Piece(_MINUS_INFINITY, _MINUS_INFINITY, False, False),
            *pieces,
            Piece(_INFINITY, _INFINITY, False, False),
        ]
        gaps = [Piece(a.high, b.low, not a.has_high, not b.has_low) for a, b in pairwise(ends)]
        gaps = [_closed(gap.low, gap.high, gap.has_low, gap.has_high) for gap in gaps]
        return [
            gap
            for gap in gaps
            if gap.low != gap.high or (gap.has_low and gap.has_high and _INFINITY not in (gap.low, *gap.low.args))
        ]

    def _number(self, node: Node) -> Any:
        number = value(node, exact=self.exact)
        return number.real if getattr(number, "imag", 0) == 0 else Fraction(0)


def _closed(low: Node, high: Node, has_low: bool, has_high: bool) -> Piece:
    """An interval. An infinite end is never part of it."""
    high = _INFINITY if high == Node("sum", (_INFINITY,)) else high
    return Piece(low, high, has_low and low != _MINUS_INFINITY, has_high and high != _INFINITY)


def _is_scalar(node: Node) -> bool:
    return not has(node, "list", "tuple", "bracket", "set", "relation", "matrix", "cases", "numbers", *_REGIONS)


def _is_inequality(node: Node) -> bool:
    if node.op == "list":
        return all(map(_is_inequality, node.args))
    return node.op == "relation" and set(node.value) <= _ORDER  # pyright: ignore[reportArgumentType]


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
    return y in (answer, gold) and "call" in (answer.op, gold.op) and len(answer.args + gold.args) == 1


def _letter_of(node: Node) -> str | None:
    """The letter that an inequality or a membership is about. None if it has none or several."""
    letters = letters_in(node) if node.op == "relation" or (node.op == "list" and _is_inequality(node)) else frozenset()
    return next(iter(letters)) if len(letters) == 1 else None


def _stated(node: Node) -> Node:
    """What an equation states: its last side."""
    if node.op == "relation" and set(node.value) == {"="}:  # pyright: ignore[reportArgumentType]
        return node if _is_multiple(node.args[0]) else node.args[-1]
    return node.args[1] if node.op == "relation" and node.value == ("in",) and node.args[1].op == "set" else node


def _is_multiple(node: Node) -> bool:
    """Whether the left side of an equation is `-x` or `2x`, which is another value than `x`."""
    *factors, last = node.args or (node,)
    return node.op in ("minus", "product") and last.op == "letter" and not any(map(letters_in, factors))


def stated_value(node: Node, *, by_name: bool = False) -> Node:
    """What an equation states: its last side. `by_name`: only if its left side is a name."""
    return node if by_name and node.op == "relation" and not _is_name(node.args[0]) else _stated(node)


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
    names = dict(zip(ours, theirs, strict=True))
    return transformed(
        answer, lambda node: node._replace(value=names.get(node.value, node.value)) if node.op == "letter" else node
    )


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


def recased(answer: Node, gold: Node) -> Node:
    """An answer with one letter in the gold answer's case, if it differs in nothing else: `X` for `x`."""
    ours, theirs = letters_in(answer), letters_in(gold)
    other = [name for name in ours - theirs if name.swapcase() in theirs - ours and name.swapcase() != name]
    if len(other) != 1 or len(ours - theirs) != 1:
        return answer
    return _relettered(answer, {other[0]: other[0].swapcase()})


def _relettered(node: Node, names: dict[Any, Any]) -> Node:
    """An expression in other letters."""

    def change(part: Node) -> Node:
        return part._replace(value=names.get(part.value, part.value)) if part.op in ("letter", "call") else part

    return transformed(node, change)
