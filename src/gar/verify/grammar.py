r"""The grammar of answers: LaTeX or plain notation as a tree, or an error. Nothing is left out or guessed.

The tree keeps what is written: `\frac{36}{2}` is a quotient and `3+15` a sum. `evaluate.py` works out its value.
"""

import re
from fractions import Fraction
from functools import lru_cache

from gar.verify import tokens as signs
from gar.verify.latex import rewrites
from gar.verify.tree import Node, NotRead, is_deeper, is_proper_fraction, product_of
from gar.verify.words import WORDS

MAX_DEPTH = 70
_DIGITS = tuple("0123456789.")
_LETTER = re.compile("[A-Za-z\u0370-\u03ff]")
_REWRITES = rewrites("grammar")
_INEQUALITY = re.compile(r"[<>]|\\[lg]e(?![a-z])")
_OR = re.compile(r"\\(?:cup|lor|vee)(?![a-z])")


@lru_cache(maxsize=4096)  # the responses of a group share a gold answer, and steps repeat it
def parse(text: str) -> Node:
    """The tree of the whole text.

    Raises:
        NotRead: It is no expression.
    """
    parser = _Parser(_rewritten(text))
    try:
        tree = parser.items()
    except RecursionError:
        raise NotRead("nested too deep") from None
    if parser.here:
        raise NotRead(f"{parser.here!r} is out of place")
    if is_deeper(tree, MAX_DEPTH):  # whatever walks the tree calls itself
        raise NotRead("nested too deep")
    return tree


def _rewritten(text: str) -> str:
    """A text without notations that the parser does not have."""
    for pattern, spelling in _REWRITES:
        text = pattern.sub(spelling, text)
    return _OR.sub(" or ", text) if _INEQUALITY.search(text) else text


class _Parser:
    """A parser by recursive descent."""

    def __init__(self, text: str) -> None:
        self._tokens = [*signs.tokens(text), ""]
        self._at = 0
        self._bars = 0  # open `|`, inside which a bar closes

    @property
    def here(self) -> str:
        return self._tokens[self._at]

    def take(self) -> str:
        token = self.here
        if not token:
            raise NotRead("it ends too early")
        self._at += 1
        return token

    def accept(self, *tokens: str) -> bool:
        if self.here in tokens and self.here:
            self.take()
            return True
        return False

    def expect(self, *tokens: str) -> str:
        if self.here not in tokens:
            raise NotRead(f"{self.here or 'the end'!r} where {tokens[0]!r} is expected")
        return self.take()

    def items(self) -> Node:
        """One item, or several between commas, `or` and `and`."""
        items, between = [self.relation()], set()
        while self.here in signs.BETWEEN:
            between.add(signs.BETWEEN[self.take()])
            if between == {","} and self.here in ("and", "or"):
                between.add(self.take())
            items.append(self.relation())
        return items[0] if len(items) == 1 else Node("list", tuple(items), "".join(sorted(between)))

    def relation(self) -> Node:
        sides, between = [self.sets()], []
        while self.here in signs.RELATIONS:
            sign = signs.RELATIONS[self.take()]
            between.append("=" if sign == "==" and sides[0].op == "call" else sign)  # f(x) = 0 for all x
            sides.append(self.sets())
        return Node("relation", tuple(sides), tuple(between)) if between else sides[0]

    def sets(self) -> Node:
        left = self.sum()
        while self.here in signs.SET_SIGNS:
            left = Node(signs.SET_SIGNS[self.take()], (left, self.sum()))
        return left

    def sum(self) -> Node:
        terms: list[Node] = []
        while not terms or self.here in ("+", "-", r"\pm", r"\mp"):
            sign = self.take() if self.here in ("+", "-", r"\pm", r"\mp") else "+"
            term = self.term()
            if sign == "-":
                term = Node("minus", (term,))
            elif sign != "+":
                term = Node("pm", (term,), sign)
            terms.append(term)
        return terms[0] if len(terms) == 1 else Node("sum", tuple(terms))

    def term(self) -> Node:
        factors = [self.factor()]
        while True:
            if self.here in signs.TIMES:
                self.take()
                factors.append(self.factor())
            elif self.here in signs.OVER:
                self.take()
                factors = [Node("over", (product_of(factors), self.factor()), "/")]
            elif self.accept(r"\bmod", r"\mod", "mod"):
                factors = [Node("call", (product_of(factors), self.factor()), "mod")]
            elif self._starts_factor():
                number, factor = factors[-1].op in ("integer", "decimal"), self.power()
                if number and factor.op in ("integer", "decimal"):
                    raise NotRead("two numbers side by side")
                if number and is_proper_fraction(factor) and factors[-1].op == "integer":
                    factor = Node("mixed", (factors.pop(), factor))
                factors.append(factor)
            else:
                return product_of(factors)

    def _starts_factor(self) -> bool:
        token = self.here
        if token == "|" or token == r"\|":
            return not self._bars
        return (
            token in signs.STARTS
            or _LETTER.fullmatch(token) is not None
            or (token[:1] in _DIGITS and token != ".")
            or token.startswith(r"\begin")
        )

    def factor(self) -> Node:
        minus = 0
        while self.here in ("-", "+"):
            minus += self.take() == "-"
        node = self.power()
        for _ in range(minus):
            node = Node("minus", (node,))
        return node

    def power(self) -> Node:
        node = self.atom()
        while True:
            if self.here in ("!", "!!"):
                node = Node("call", (node,), "factorial" if self.take() == "!" else "double factorial")
            elif self.here in ("%", r"\%") and node.op != "percent":
                self.take()
                node = Node("percent", (node,))
            elif self.accept("^"):
                if self.accept(r"\circ", "°"):
                    node = Node("degree", (node,))
                elif node.op == "numbers" and self.here in ("+", "-", "*"):
                    node = Node("numbers", (), f"{node.value}{self.take()}")
                else:
                    node = Node("power", (node, self.script()))
            else:
                return node

    def script(self) -> Node:
        """An exponent: a group, a signed number, or one factor."""
        if self.here == "-":
            self.take()
            return Node("minus", (self.script(),))
        if self.here == "{":
            return self.group()
        node = self.atom()
        return Node("power", (node, self.script())) if self.accept("^") else node

    def group(self) -> Node:
        """What is in braces."""
        self.expect("{")
        node = self._inside()
        self.expect("}")
        return node

    def _inside(self) -> Node:
        """What is in brackets, where bars outside do not close."""
        bars, self._bars = self._bars, 0
        node = self.items()
        self._bars = bars
        return node

    def atom(self) -> Node:
        token = self.here
        if token[:1] in _DIGITS and token != ".":
            return self._number()
        if token in signs.CONSTANTS:
            self.take()
            if self.here != "_":
                return Node("constant", (), signs.CONSTANTS[token])
            return self._letter(token)
        if token == "{":
            return self.group()
        if token in ("(", "["):
            return self._bracket()
        if token == r"\{":
            return self._set()
        if token in ("|", r"\|"):
            return self._between(token, token, "abs")
        if token in signs.FENCES:
            return self._between(token, *signs.FENCES[token])
        if token.startswith(r"\begin"):
            return self._environment()
        if token[:1] == "\\":
            return self._command(self.take())
        if _LETTER.fullmatch(token):
            return self._letter(self.take())
        raise NotRead(f"{token or 'the end'!r} is out of place")

    def _number(self) -> Node:
        text = self.take()
        if len(text) > 4_000:  # Python refuses to read 4,300 digits
            raise NotRead("a number of too many digits")
        if self.here == "_":
            raise NotRead("a number with a base")
        return Node("decimal" if "." in text else "integer", (), Fraction(text.rstrip(".")))

    def _letter(self, name: str) -> Node:
        """A variable with its index and primes, or an unknown function of what follows in parentheses."""
        if self.accept("_"):
            name += "_" + self._plain_script()
        while self.accept("'"):
            name += "'"
        letter = Node("letter", (), name)
        if self.here == "(" and name not in signs.CONSTANTS and self._holds_arguments():
            arguments = self._bracket()
            return Node("call", arguments.args if arguments.op == "tuple" else (arguments,), name)
        return letter

    def _holds_arguments(self) -> bool:
        """Whether parentheses hold the arguments of a function: one letter or number, or several things."""
        depth, single = 0, self._tokens[self._at + 1 : self._at + 3]
        if single[1:] == [")"]:
            return True
        for token in self._tokens[self._at :]:
            depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
            if depth == 0:
                return False
            if depth == 1 and token == ",":
                return True
        return False

    def _plain_script(self) -> str:
        """An index as text."""
        if not self.accept("{"):
            return self.take()
        parts, depth = [], 1
        while depth:
            token = self.take()
            depth += (token == "{") - (token == "}")
            parts.append(token)
        return "".join(parts[:-1])

    def _bracket(self) -> Node:
        """What is in parentheses or square brackets: a group, a tuple or an interval."""
        opening = self.take()
        inside = self._inside()
        closing = self.expect(*signs.CLOSING[opening])
        parts = inside.args if inside.op == "list" and inside.value == "," else (inside,)
        if f"{opening}{closing}" == "()":
            return inside if len(parts) == 1 else Node("tuple", parts)
        if len(parts) == 2:
            return Node("interval", parts, opening + closing)
        if f"{opening}{closing}" != "[]":
            raise NotRead("brackets that do not match")
        if inside.op == "matrix":
            return inside
        return Node("bracket", parts)

    def _set(self) -> Node:
        self.take()
        self._bars += 1
        first = self.items()
        self._bars -= 1
        if self.accept("|", r"\mid", ":"):
            first = Node("builder", (first, self.items()))
            self.expect(r"\}")
            return first
        self.expect(r"\}")
        return Node("set", first.args if first.op == "list" else (first,))

    def _between(self, opening: str, closing: str, name: str) -> Node:
        self.expect(opening)
        self._bars += 1
        inside = self.sum()
        self._bars -= 1
        self.expect(closing)
        return Node("call", (inside,), name)

    def _environment(self) -> Node:
        """A matrix, or the lines of a system or of a function by cases."""
        name = self.take()[len(r"\begin{") : -1]
        end, rows = rf"\end{{{name}}}", [[]]
        while not self.accept(end):
            if self.accept("\\\\"):
                rows.append([])
            elif not self.accept("&", ",", ".", ";", "if", "for", "when"):
                rows[-1].append(Node("letter", (), self.take()) if self.here == "otherwise" else self.relation())
        rows = [row for row in rows if row]
        if name == "cases" or any(part.op == "relation" for row in rows for part in row):
            return Node("cases", tuple(row[0] if len(row) == 1 else Node("tuple", tuple(row)) for row in rows))
        if name not in signs.ENVIRONMENTS or len({len(row) for row in rows}) != 1:
            raise NotRead("rows of unequal length")
        return Node("matrix", tuple(part for row in rows for part in row), len(rows[0]))

    def _command(self, token: str) -> Node:
        name = token[1:]
        if token == r"\frac":
            return Node("over", (self._argument(), self._argument()))
        if token == r"\binom":
            return Node("call", (self._argument(), self._argument()), "binomial")
        if token == r"\sqrt":
            index = Node("integer", (), Fraction(2))
            if self.accept("["):
                index = self.sum()
                self.expect("]")
            return Node("root", (self._argument(), index))
        if token == r"\mathbb":
            return Node("numbers", (), self._plain_script())
        if token in signs.ACCENTS:
            return self._letter(f"{token}{{{self._plain_script()}}}")
        if token in signs.PREFIXES and self.here[:1].isalpha():
            parts = [self.take()]
            while self.here[:1].isalpha() and self.here not in signs.WORDS_OF_LOGIC:
                parts.append(self.take())
            return Node("letter", (), f"{token} {''.join(parts)}")
        if name in signs.FUNCTIONS | signs.OTHER_NAMES.keys() | signs.OF_SEVERAL:
            return self._function(name)
        if name in WORDS["symbols"]:
            return self._letter(token)
        raise NotRead(f"{token!r} is not known")

    def _argument(self) -> Node:
        return self.group() if self.here == "{" else self.atom()

    def _function(self, name: str) -> Node:
        r"""A function and its argument: `\sin^2 x`, `\log_2(3)`, `\cos 2t`, `\tan^{-1} 2`."""
        name = signs.OTHER_NAMES.get(name, name)
        base = self._argument() if name == "log" and self.accept("_") else Node("integer", (), Fraction(10))
        power = self.script() if self.accept("^") else None
        arguments, e = self._arguments(), Node("constant", (), "e")
        if name in ("log", "ln"):
            node = Node("call", (*arguments, base if name == "log" else e), "log")
        elif name == "exp":
            node = Node("power", (e, *arguments))
        else:
            node = Node("call", arguments, name)
        return node if power is None else Node("power", (node, power))

    def _arguments(self) -> tuple[Node, ...]:
        if self.here == "(":
            inside = self._bracket()
            return inside.args if inside.op == "tuple" else (inside,)
        if self.here == "{":
            return (self.group(),)
        if self.here == "-":
            self.take()
            return (Node("minus", self._arguments()),)
        factors = [self.power()]
        while self._starts_factor() and self.here not in ("(", "[", "|") and self.here[1:] not in signs.FUNCTIONS:
            factors.append(self.power())
        return (product_of(factors),)
