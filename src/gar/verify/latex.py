r"""One spelling for each notation: `\dfrac12`, `½` and `{1 \over 2}` become `\frac{1}{2}`. Linear time, no parser."""

import re
import unicodedata

# Brackets and marks as Chinese texts have them, fractions, powers. Digits of other scripts stay: they are no numbers.
_ASCII = str.maketrans({
    **{char: unicodedata.normalize("NFKC", char) for char in "（）［］｛｝，：；＝＋－＜＞％｜＄"},
    "。": ".", "、": ",", "【": "[", "】": "]", "−": "-", "–": "-", "—": "-", "≤": r"\le ", "≥": r"\ge ",
    "≠": r"\ne ", "≈": r"\approx ", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "≡": r"\equiv ",
    "±": r"\pm ", "∅": r"\emptyset ", "°": r"^\circ ", "º": r"^\circ ", "’": "'", "‘": "'", "→": r"\to ",
    "\ufe0f": "",
    **{char: "\\frac{" + unicodedata.normalize("NFKC", char).replace("\u2044", "}{") + "}"
       for char in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"},
})  # fmt: skip  # a table
_POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_NESTED = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
_FONTS = (
    "mathbf|mathit|mathsf|mathtt|mathnormal|mathrm|text|textrm|textbf|textit|textsf|textnormal|mbox|boldsymbol|bm|pmb"
)
_STYLES = (
    "bf|rm|it|sf|tt|bfseries|itshape|boldmath|tiny|scriptsize|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge"
    "|displaystyle|textstyle|scriptstyle|limits|nolimits|left|right|[bB]ig[lrm]?|[bB]igg[lrm]?|m?left|m?right|strut"
)
_INVERSE = {name: rf"\arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc")}
_BARE_NAMES = r"(?<![\\A-Za-z])(sqrt|ln|log|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|exp)(?= *[(0-9_\\{])"
_BARE = r"(\\(?!frac|sqrt|binom)[A-Za-z]+|[0-9A-Za-z])"  # an argument without braces
_REPEATING = re.compile(r"(?<![0-9.])([0-9]*)\.([0-9]*)\\(?:overline|bar|dot) *\{?([0-9]+)\}?")
_FONT = re.compile(rf"\\({_FONTS})(?![A-Za-z]) *(?:\{{({_NESTED})\}}|([0-9A-Za-z]))")
_SPACING = r"(?:\s|(?<=\S)~|(?<!\\)\\[ ,;:!>]|\\(?:q?quad|enspace|thinspace|hspace\*? *\{[^{}]*\}|hfill)(?![A-Za-z]))"

# In this order.
_RULES = tuple((re.compile(pattern), spelling) for pattern, spelling in (
    ("[⁻⁰¹²³⁴-⁹]+", lambda power: f"^{{{power[0].translate(_POWERS)}}}"),
    (r"\\(?:left|right) *\.", ""),
    (r"(?<=[0-9])(?:\{,\}|,?\\!|,?\\[,;:]|,~|~|,\\! *)\s*(?=[0-9]{3}(?![0-9]))", ","),
    (r"\{ *([,:]) *\}", r"\1"),
    (rf"\\(?:{_STYLES})(?![A-Za-z]) ?", ""),
    (r"\\(?:text)?color *(?:\[[^][]*\])? *\{[^{}]*\}", ""),
    (r"\\(?:underline|overline(?= *\{[^0-9])|uline|hbox|operatorname|ensuremath) *(?=\{)", ""),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"), (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
    (r"\\(?:geqslant|geq|ge)(?![A-Za-z])", r"\\ge"), (r"\\(?:leqslant|leq|le)(?![A-Za-z])", r"\\le"),
    (r"\\(?:neq|ne)(?![A-Za-z])", r"\\ne"), (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
    (r"\\\{ *\\\}", r"\\emptyset"),
    (r"\\(?:lbrace)(?![A-Za-z])", r"\\{"), (r"\\(?:rbrace)(?![A-Za-z])", r"\\}"),
    (r"\\lvert(?![A-Za-z])|\\rvert(?![A-Za-z])|\\vert(?![A-Za-z])", "|"),
    (r"\\langle(?![A-Za-z]) *(.*?) *\\rangle(?![A-Za-z])", r"(\1)"),
    (r"\^? *\{? *\\(?:circ|degree|degrees)(?![A-Za-z]) *\}?", r"^\\circ "),
    ("√ *([0-9]+)", r"\\sqrt{\1}"), ("√ *", r"\\sqrt"), ("π", r"\\pi "),
    (_BARE_NAMES, r"\\\1"), (r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi "),
    (r"\\sqrt *\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\log *_ *(?:e(?![A-Za-z])|\{ *e *\})", r"\\ln "),
    (r"\\(sin|cos|tan|cot|sec|csc) *\^ *\{? *-1 *\}?", lambda name: _INVERSE[name[1]] + " "),
    (r", *and\b", ","),
    (r" *\bper ?cent\b", r"\\%"),
    (_SPACING + "+", " "),
    (rf"\{{({_NESTED})\\over(?![A-Za-z])({_NESTED})\}}", r"\\frac{\1}{\2}"),
    (rf"\{{({_NESTED})\\choose(?![A-Za-z])({_NESTED})\}}", r"\\binom{\1}{\2}"),
    (rf"\\(frac|binom|sqrt)(?![A-Za-z])( *\[[^][]*\])? *{_BARE}", r"\\\1\2{\3}"),
    (rf"\\(frac|binom) *(\{{{_NESTED}\}}) *{_BARE}", r"\\\1\2{\3}"),
))  # fmt: skip  # a table


def plain_latex(text: str) -> str:
    """A text in one spelling of each notation, with single spaces and without fonts, sizes and colors."""
    text = " ".join(text.split())
    if r"\\" in text and r"\begin" not in text:  # escaped twice
        text = text.replace(r"\\", "\\")
    if text.isascii() and "\\" not in text and "{" not in text and "~" not in text and not _MAY_CHANGE.search(text):
        return text
    if not text.isascii():
        text = "".join(char for char in text.translate(_ASCII) if unicodedata.category(char) not in ("Cf", "So"))
    for _ in range(3):  # fonts within fonts
        text = _FONT.sub(_without_font, text)
    for pattern, spelling in _RULES:
        text = pattern.sub(spelling, text)
    return _REPEATING.sub(_fraction, text).strip()


_MAY_CHANGE = re.compile(rf"{_BARE_NAMES}|(?<![A-Za-z])pi(?![A-Za-z])|, *and\b|per ?cent")


def _without_font(match: re.Match[str]) -> str:
    """What is in a font. Words keep a space on both sides, so that they never run into a formula."""
    inner = match[2] if match[2] is not None else match[3]
    return f" {inner} " if re.search(r"[A-Za-z]{2}|[A-Za-z] *[/^]", inner) or inner != inner.strip() else inner


def _fraction(match: re.Match[str]) -> str:
    """A decimal without end as a fraction of two integers."""
    whole, fixed, repeats = match.groups()
    if len(repeats) + len(fixed) > 20:
        return match[0]
    under = (10 ** len(repeats) - 1) * 10 ** len(fixed)
    return rf"\frac{{{int(whole + fixed + repeats) - int(whole + fixed or 0)}}}{{{under}}}"
