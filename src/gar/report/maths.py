"""LaTeX formulas to MathML, which browsers draw by themselves: no script, no fonts, no network.

`math-core` does the conversion. A formula that it refuses stays as the model wrote it. The markup is never read as
HTML: it becomes a tree, `[tag, child, ...]` or `[tag, {attribute: value}, child, ...]`, which has only listed elements
and attributes, and the page creates MathML elements from the tree.
"""

import html
import re
from typing import Any
from xml.etree import ElementTree

from math_core import LatexError, LatexToMathML

Tree = list[Any]

MAX_CHARACTERS = 2000
"""Longest formula. It also bounds the converter's recursion: 2,000 levels need 3 MB of the 8 MB of a usual stack."""
_MAX_DEPTH = 40
_ELEMENTS = {
    "mi", "mn", "mo", "mtext", "mspace", "mrow", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "munder",
    "mover", "munderover", "mmultiscripts", "mprescripts", "mtable", "mtr", "mtd", "mpadded", "mphantom",
}  # fmt: skip
_ATTRIBUTES = {
    "style", "mathvariant", "stretchy", "symmetric", "form", "lspace", "rspace", "minsize", "maxsize", "movablelimits",
    "accent", "accentunder", "width", "height", "depth", "voffset", "linethickness", "displaystyle", "scriptlevel",
}  # fmt: skip
_STYLE = re.compile(r"[\w\s:;.#%-]*")
_IN_TEXT = {"mtext", "b", "i", "em", "u", "code", "span"}
# Definitions multiply the depth of a formula, and a stack that overflows in the converter ends the process.
_DEFINITION = re.compile(r"\\(?:[a-z]*def|let|[a-z]*command)(?![a-zA-Z])")
_BARE_PERCENT = re.compile(r"(\\.)|%", re.DOTALL)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ENTITY = re.compile(r"&(?!lt;|gt;|amp;|quot;)\w+;")
_CONVERTER = LatexToMathML(
    macros={"mbox": r"\text{#1}", "dotsb": r"\cdots", "dotsc": r"\ldots"},
    allow_unreliable_rendering=True,
    fancy_error=False,
    max_expansions=100,
)


class _UnsupportedError(Exception):
    """Markup that the page does not draw."""


def mathml(latex: str, *, display: bool = False) -> Tree | None:
    """The tree of a formula without its delimiters.

    Args:
        latex: Its text. A bare % is read as a per cent sign, and the comma in 1,000 as part of the number.
        display: The formula is a display formula, with limits above and below.

    Returns:
        The tree; None if the formula is empty or too long, defines commands, is not well formed, or uses something
        unknown.

    Example:
        >>> mathml(r"x^2")
        ['mrow', ['msup', ['mi', 'x'], ['mn', '2']]]
    """
    if len(latex) > MAX_CHARACTERS or not latex.strip() or _DEFINITION.search(latex):
        return None
    source = _THOUSANDS.sub("{,}", _BARE_PERCENT.sub(lambda match: match[1] or r"\%", latex))
    try:
        markup = _CONVERTER.convert_with_local_state(source, displaystyle=display)
        math = ElementTree.fromstring(_ENTITY.sub(lambda match: html.unescape(match[0]), markup))
        return ["mrow", *(_tree(child, depth=1) for child in math)]
    except (LatexError, UnicodeEncodeError, ElementTree.ParseError, _UnsupportedError):
        return None


def _tree(element: ElementTree.Element, *, depth: int) -> Tree:
    if depth > _MAX_DEPTH or element.tail or (element.text and len(element)):
        raise _UnsupportedError
    if element.tag == "mtext":
        return _text(element)
    children = [element.text] if element.text else [_tree(child, depth=depth + 1) for child in element]
    if element.tag == "menclose" and element.get("notation") == "box":
        return ["mrow", {"class": "boxed"}, *children]
    if element.tag not in _ELEMENTS:
        raise _UnsupportedError
    attributes = {name: value for name, value in element.attrib.items() if name in _ATTRIBUTES}
    if not _STYLE.fullmatch(attributes.get("style", "")):
        raise _UnsupportedError
    return [element.tag, *([attributes] if attributes else []), *children]


def _text(element: ElementTree.Element) -> Tree:
    """Words; of their HTML only bold type is kept."""
    names = {part.tag for part in element.iter()}
    if not names <= _IN_TEXT:
        raise _UnsupportedError
    return ["mtext", *([{"class": "bold"}] if "b" in names else []), "".join(element.itertext())]
