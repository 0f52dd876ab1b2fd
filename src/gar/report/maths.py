"""LaTeX formulas to MathML, which browsers draw by themselves: no library, no fonts, no network.

A tree is `[tag, child, ...]` or `[tag, {attribute: value}, child, ...]`; the children of mi, mn, mo, mtext are texts.
The page makes elements of it by name, from a list of names; nothing here is ever read as HTML. What the common part of
LaTeX does not cover is no formula to us, and stays as the model wrote it.
"""

import re
from typing import Any

from gar.report.maths_symbols import (
    ACCENTS,
    ALIGNED,
    FENCES,
    FRAMES,
    FUNCTIONS,
    IDENTIFIERS,
    INTEGRALS,
    LARGE,
    LIMITS,
    OPERATORS,
    SPACES,
    STYLED,
    styled,
)

Tree = list[Any]

MAX_CHARACTERS = 2000
_MAX_DEPTH = 40
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\s+|.", re.DOTALL)
_FENCE_SIZES = ("big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "Biggl", "Biggr")
_IGNORED = ("displaystyle", "textstyle", "limits", "nolimits", "nonumber", "notag", "hline", "left.", "right.")
_TEXTS = ("text", "textbf", "textit", "textrm", "mbox", "mathrm", "mathbf", "mathit", "mathsf", "boldsymbol", "bm")


class _UnsupportedError(Exception):
    """Not the LaTeX that we know."""


def mathml(latex: str, *, display: bool = False) -> Tree | None:
    """The tree of a formula without its delimiters.

    Args:
        latex: Its text.
        display: It stands on lines of its own: limits go above and below.

    Returns:
        The tree; None where the formula is too long, not well formed, or uses something unknown.

    Example:
        >>> mathml(r"x^2")
        ['mrow', ['msup', ['mi', 'x'], ['mn', '2']]]
    """
    if len(latex) > MAX_CHARACTERS or not latex.strip():
        return None
    parser = _Parser(latex, display=display)
    try:
        row = parser.row(until=())
    except _UnsupportedError:
        return None
    return row if parser.done else None


class _Parser:
    """Recursive descent over tokens; `row` and below consume what they understand."""

    def __init__(self, latex: str, *, display: bool):
        self._tokens = _TOKEN.findall(latex)
        self._at = 0
        self._depth = 0
        self._display = display

    @property
    def done(self) -> bool:
        """All tokens are consumed."""
        return self._at == len(self._tokens)

    def row(self, until: tuple[str, ...]) -> Tree:
        """Atoms up to one of some tokens, which stays, or to the end."""
        children = []
        while (token := self._peek()) is not None and token not in until:
            atom = self._atom()
            if atom is not None:
                children.append(self._with_scripts(atom))
            elif self._peek() in ("^", "_", "'"):
                children.append(self._with_scripts(["mrow"]))
        if until and self.done:
            raise _UnsupportedError
        return ["mrow", *children]

    # ------------------------------------------------------------------------------------------------------ tokens

    def _peek(self) -> str | None:
        while not self.done and self._tokens[self._at].isspace():
            self._at += 1
        return None if self.done else self._tokens[self._at]

    def _next(self) -> str:
        token = self._peek()
        if token is None:
            raise _UnsupportedError
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _UnsupportedError

    def _words(self) -> str:
        """The text between braces, spaces kept."""
        self._expect("{")
        parts, depth = [], 1
        while not self.done:
            token = self._tokens[self._at]
            self._at += 1
            depth += (token == "{") - (token == "}")
            if not depth:
                return re.sub(r"\\([%$&#_{} ])", r"\1", "".join(parts))
            parts.append(token)
        raise _UnsupportedError

    # ------------------------------------------------------------------------------------------------------- atoms

    def _atom(self) -> Tree | None:
        """The next thing without its scripts; None for what leaves no mark."""
        if self._peek() in ("^", "_", "'"):
            return None
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _UnsupportedError
        atom = self._read_atom(self._next())
        self._depth -= 1
        return atom

    def _read_atom(self, token: str) -> Tree | None:
        if token == "{":
            inner = self.row(until=("}",))
            self._next()
            return inner
        if token in ("}", "&", "\\\\", "$"):
            raise _UnsupportedError
        if token.startswith("\\"):
            return self._command(token[1:])
        if token[0].isdigit():
            return ["mn", token]
        if token == "~":
            return ["mspace", {"width": SPACES["~"]}]
        return ["mi", token] if token.isalpha() else _operator(token)

    def _argument(self) -> Tree:
        """What a command or a script applies to: a group, or one token. Of a number that is its first digit."""
        token = self._peek()
        if token is not None and token[0].isdigit() and len(token) > 1:
            self._tokens[self._at] = token[1:]
            return ["mn", token[0]]
        atom = self._atom()
        if atom is None:
            raise _UnsupportedError
        return atom[1] if atom[0] == "mrow" and len(atom) == 2 and isinstance(atom[1], list) else atom

    def _with_scripts(self, base: Tree) -> Tree:
        below = above = None
        primes = ""
        while (token := self._peek()) in ("^", "_", "'"):
            self._next()
            if token == "'":
                primes += "′"
            elif token == "^" and above is None:
                above = self._argument()
            elif token == "_" and below is None:
                below = self._argument()
            else:
                raise _UnsupportedError
        if primes:
            mark: Tree = ["mo", primes]
            above = mark if above is None else ["mrow", mark, above]
        if below is None and above is None:
            return base
        stacked = self._display and base[0] == "mo" and (base[-1] in LARGE.values() or base[-1] in LIMITS)
        names = ("munder", "mover", "munderover") if stacked else ("msub", "msup", "msubsup")
        name = names[2] if below and above else names[0] if below else names[1]
        return [name, base, *(script for script in (below, above) if script is not None)]

    # ---------------------------------------------------------------------------------------------------- commands

    def _command(self, name: str) -> Tree | None:
        if name in IDENTIFIERS:
            return ["mi", IDENTIFIERS[name]]
        if name in OPERATORS:
            return _operator(OPERATORS[name])
        if name in LARGE or name in INTEGRALS:
            return ["mo", (LARGE | INTEGRALS)[name]]
        if name in LIMITS or name in FUNCTIONS:
            return ["mo" if name in LIMITS else "mi", name]
        if name in SPACES:
            return ["mspace", {"width": SPACES[name]}]
        if name in _IGNORED:
            return None
        if name in _FENCE_SIZES:
            return _operator(self._fence())
        return self._structure(name)

    def _structure(self, name: str) -> Tree:
        """Commands with arguments."""
        if name in ("frac", "tfrac"):
            return ["mfrac", self._argument(), self._argument()]
        if name in ("dfrac", "cfrac"):
            return ["mfrac", {"displaystyle": "true"}, self._argument(), self._argument()]
        if name in ("binom", "dbinom", "tbinom"):
            pair = ["mfrac", {"linethickness": "0"}, self._argument(), self._argument()]
            return ["mrow", ["mo", "("], pair, ["mo", ")"]]
        if name == "sqrt":
            return self._root()
        if name in ACCENTS:
            mark = ["mo", {"stretchy": "true" if len(name) > 5 else "false"}, ACCENTS[name]]
            return ["munder" if name.startswith("under") else "mover", self._argument(), mark]
        if name in FRAMES:
            return ["mrow", {"class": FRAMES[name]}, self._argument()]
        if name in _TEXTS:
            return self._text(name)
        if name in STYLED:
            return ["mi", "".join(styled(letter, STYLED[name]) for letter in self._words())]
        if name == "operatorname":
            return ["mi", self._words()]
        if name in ("pmod", "mod"):
            inner = ["mrow", ["mi", "mod"], ["mspace", {"width": "0.3em"}], self._argument()]
            return ["mrow", ["mspace", {"width": "0.6em"}], ["mo", "("], inner, ["mo", ")"]]
        if name == "left":
            return self._fenced()
        if name == "begin":
            return self._environment(self._words())
        raise _UnsupportedError

    def _root(self) -> Tree:
        if self._peek() != "[":
            return ["msqrt", self._argument()]
        self._next()
        degree = self.row(until=("]",))
        self._next()
        return ["mroot", self._argument(), degree]

    def _text(self, name: str) -> Tree:
        if self._peek() != "{":
            return self._argument()
        words = self._words()
        if re.search(r"[\\^_$]", words):
            raise _UnsupportedError
        tag = "mtext" if name.startswith(("text", "mbox")) or len(words) > 1 else "mi"
        style = {"class": "bold"} if name in ("textbf", "mathbf", "boldsymbol", "bm") else {"mathvariant": "normal"}
        return [tag, style, words]

    def _fence(self) -> str:
        token = self._next()
        text = OPERATORS.get(token[1:], "") if token.startswith("\\") else token
        if token != "." and (len(text) != 1 or text.isalnum()):
            raise _UnsupportedError
        return "" if token == "." else text

    def _fenced(self) -> Tree:
        opening = self._fence()
        inner = self.row(until=("\\right",))
        self._next()
        return _between(opening, inner, self._fence())

    def _environment(self, name: str) -> Tree:
        if name not in FENCES:
            raise _UnsupportedError
        if name in ("array", "alignat"):
            self._words()  # how columns are aligned
        rows: list[Tree] = [["mtr"]]
        while True:
            rows[-1].append(["mtd", self.row(until=("&", "\\\\", "\\end"))])
            token = self._next()
            if token == "\\\\":
                rows.append(["mtr"])
            elif token == "\\end":
                break
        if self._words() != name:
            raise _UnsupportedError
        if rows[-1] == ["mtr", ["mtd", ["mrow"]]]:
            rows.pop()
        kind = {"class": "cases" if name == "cases" else "matrix"}
        if name in ALIGNED:
            kind = {"class": "aligned", "displaystyle": "true"}
        return _between(FENCES[name][0], ["mtable", kind, *rows], FENCES[name][1])


def _operator(text: str) -> Tree:
    return ["mo", {"stretchy": "false"}, text] if text in "()[]{}|‖⌊⌋⌈⌉⟨⟩/" and text else ["mo", text.replace("-", "−")]


def _between(opening: str, inner: Tree, closing: str) -> Tree:
    left: list[Tree] = [["mo", {"stretchy": "true", "form": "prefix"}, opening]] if opening else []
    right: list[Tree] = [["mo", {"stretchy": "true", "form": "postfix"}, closing]] if closing else []
    return ["mrow", *left, inner, *right]
