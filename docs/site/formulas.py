"""Pages write formulas in LaTeX between dollars. The site has them as MathML, which needs no script and no font.

A number keeps its standard deviation on its line.
"""

import html
import re
from typing import TYPE_CHECKING

from math_core import LatexError, LatexToMathML

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
"""A formula as `pymdownx.arithmatex` leaves it: `\\(...\\)` in a sentence, `\\[...\\]` on separate lines."""
_CONVERTER = LatexToMathML()


def mathml(latex: str, *, display: bool) -> str:
    """The `math` element of a formula.

    Args:
        latex: The formula without its dollars.
        display: Whether the formula is on separate lines.

    Raises:
        LatexError: It is not well formed, or uses an unknown command.
    """
    return _CONVERTER.convert_with_local_state(latex.strip(), displaystyle=display)


def on_page_content(content: str, page: "Page", **_: object) -> str:
    """Replace every formula of a page, and the spaces around ±. A formula that cannot be converted ends the build."""

    def replacement(match: re.Match[str]) -> str:
        latex = html.unescape(match[3])
        try:
            return mathml(latex, display=match[2] == "[")
        except LatexError as error:
            from mkdocs.exceptions import PluginError

            raise PluginError(f"{page.file.src_path}: cannot convert the formula {latex!r}: {error}") from error

    return _MARKED.sub(replacement, content).replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
