"""The smallest parts of an answer: numbers, letters, signs and LaTeX commands, and what the signs mean."""

import re

from gar.verify.quantities import is_prose
from gar.verify.tree import NotRead
from gar.verify.words import DATA, WORDS

MAX_TOKENS = 1_500
_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:E[-+]?[0-9]{1,4})?)"
    r"|(?P<begin>\\begin *\{(?P<opened>[a-z]+)\*?\}(?: *\{[lcr| ]*\})?)|(?P<end>\\end *\{(?P<closed>[a-z]+)\*?\})"
    r"|(?P<row>\\\\(?: *\[[^\]]*\])?|\\cr(?![a-z]))|(?P<command>\\[A-Za-z]+|\\.)|(?P<letters>[^\W\d_]+)|(?P<space>\s+)"
    r"|(?P<sign><=|>=|(?<![0-9)\]}])!=|!!|.)"
)
WORDS_OF_LOGIC = {"or", "and", "mod", "in", "if", "for", "when", "otherwise"}
RELATIONS = {"=": "=", r"\equiv": "==", r"\in": "in", "in": "in", r"\approx": "~", r"\cong": "~", r"\sim": "~"}
RELATIONS |= {"<": "<", r"\lt": "<", ">": ">", r"\gt": ">", r"\ne": "!=", "!=": "!="}
RELATIONS |= {"<=": "<=", r"\le": "<=", ">=": ">=", r"\ge": ">="}
SET_SIGNS = {r"\cup": "union", r"\cap": "intersection", r"\setminus": "without", r"\backslash": "without"}
TIMES = {"*", r"\cdot", r"\times", "×", "·", "⋅", r"\ast"}
OVER = {"/", r"\div", "÷"}
BETWEEN = {",": ",", ";": ",", "or": "or", r"\lor": "or", r"\vee": "or"}
BETWEEN |= {"and": "and", r"\land": "and", r"\wedge": "and"}
CLOSING = {"(": (")", "]"), "[": ("]", ")")}
ENVIRONMENTS = {"cases", "array", "matrix", "smallmatrix", *(f"{kind}matrix" for kind in "pbB")}
CONSTANTS = {r"\pi": "pi", r"\infty": "infinity", "e": "e", "i": "i"}
FENCES = {r"\lfloor": (r"\rfloor", "floor"), r"\lceil": (r"\rceil", "ceiling"), r"\lvert": (r"\rvert", "abs")}
FUNCTIONS = WORDS["functions"]
OTHER_NAMES: dict[str, str] = DATA["functions"]  # other names
OF_SEVERAL = {"max", "min", "gcd", "lcm"}
ACCENTS = {r"\bar", r"\overline", r"\tilde", r"\widehat", r"\dot", r"\vec", r"\overrightarrow"}
ACCENTS |= {r"\mathcal", r"\mathscr", r"\mathfrak"}
PREFIXES = {r"\angle", r"\triangle", r"\square", r"\odot", r"\Delta"}
STARTS = {"(", "[", "{", r"\{", r"\frac", r"\sqrt", r"\binom", r"\mathbb"}
STARTS |= CONSTANTS.keys() | ACCENTS | PREFIXES | FENCES.keys()
STARTS |= {f"\\{name}" for name in FUNCTIONS | OTHER_NAMES.keys() | OF_SEVERAL | WORDS["symbols"]}
"""What a factor may begin with, beside numbers, letters, environments and bars."""


def tokens(text: str) -> list[str]:
    """The signs, numbers, letters and commands of a text. `NotRead` if it holds a word."""
    found: list[str] = []
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "letters" and token not in WORDS_OF_LOGIC:
            if len(token) > 3 and is_prose(token):
                raise NotRead(f"the word {token!r}")
            found += token
        elif kind in ("begin", "end"):
            found.append(rf"\{kind}{{{match['opened'] or match['closed']}}}")
        elif kind == "row":
            found.append("\\\\")
        elif kind != "space":
            found.append(token)
    if len(found) > MAX_TOKENS:
        raise NotRead(f"more than {MAX_TOKENS} signs")
    return found
