r"""One spelling for each notation: `\dfrac12`, `½` and `{1 \over 2}` become `\frac{1}{2}`. Linear time, no parser.

The rules are in `words.toml`.
"""

import re
import unicodedata

from gar.verify.words import DATA

_NOTATIONS = DATA["notations"]
_PARTS = {name: pattern for name, pattern in _NOTATIONS.items() if isinstance(pattern, str)}


def rewrites(name: str, flags: int = 0) -> tuple[tuple[re.Pattern[str], str], ...]:
    """A list of patterns and spellings from `words.toml`, in order."""
    return tuple((re.compile(_expand(pattern), flags), spelling) for pattern, spelling in _NOTATIONS[name])


def any_of(name: str) -> str:
    """A pattern for any of a list from `words.toml`."""
    return f"(?:{'|'.join(map(_expand, _NOTATIONS[name]))})"


def _expand(pattern: str) -> str:
    """A pattern with the entry `nested` of `words.toml` for `<nested>`."""
    return re.sub("<([a-z]+)>", lambda part: _PARTS.get(part[1], part[0]), pattern)


_SYMBOLS = str.maketrans(_NOTATIONS["symbols"])
_UNICODE, _RULES = rewrites("unicode"), rewrites("latex")
_FONT = re.compile(rf"\\(?:{_PARTS['fonts']})(?![A-Za-z]) *(?:\{{({_PARTS['nested']})\}}|([0-9A-Za-z]))")
_BOLD_SET = re.compile(r"\\mathbf *\{ *([NZQR]) *\}")
_REPEATING = re.compile(r"(?<![0-9.])([0-9]*)\.([0-9]*)\\(?:overline|bar|dot) *\{?([0-9]+)\}?")
_PLAIN = re.compile("[-+$%.,0-9 ]*")


def plain_latex(text: str) -> str:
    """A text in one spelling of each notation, with single spaces and without fonts, sizes and colors."""
    text = " ".join(text.split())
    if _PLAIN.fullmatch(text):
        return text
    if r"\\" in text and r"\begin" not in text:  # escaped twice
        text = text.replace(r"\\", "\\")
    if not text.isascii():
        for pattern, spelling in _UNICODE:
            text = pattern.sub(spelling, text)
        # Digits of other scripts stay: they are no numbers.
        text = unicodedata.normalize("NFKC", text).translate(_SYMBOLS)
        text = "".join(char for char in text if unicodedata.category(char) not in ("Cf", "So"))
    text = _BOLD_SET.sub(r"\\mathbb{\1}", text)
    for _ in range(3):  # fonts within fonts
        text = _FONT.sub(_without_font, text)
    for pattern, spelling in _RULES:
        if "\\" in text or not pattern.pattern.startswith(r"\\"):  # half of the answers have no LaTeX
            text = pattern.sub(spelling, text)
    return _REPEATING.sub(_fraction, text).strip()


def _without_font(match: re.Match[str]) -> str:
    """What is in a font. Words keep a space on both sides, so that they never run into a formula."""
    inner = re.sub("^~(?=[A-Za-z])", " ", match[1] if match[1] is not None else match[2])  # \\mathrm{~cm}
    if re.search(r"[A-Za-z]{2}|[A-Za-z] *[/^]", inner) or inner != inner.strip():
        return f" {inner} "
    return f" {inner}" if inner.isalpha() else inner  # else `\\pi\\mathrm{i}` would be one command


def _fraction(match: re.Match[str]) -> str:
    """A decimal without end as a fraction of two integers."""
    whole, fixed, repeats = match.groups()
    under = (10 ** len(repeats) - 1) * 10 ** len(fixed)
    return rf"\frac{{{int(whole + fixed + repeats) - int(whole + fixed or 0)}}}{{{under}}}"
