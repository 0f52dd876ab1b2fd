r"""Plain numbers, read from text exactly and without a parser: `1,234`, `-$7.50`, `1.8\times 10^{1}`, `3 million`."""

import contextlib
import re
from decimal import Decimal
from fractions import Fraction

from gar.verify.sentences import TEXT_COMMAND, changes_value

DECIMAL_TOLERANCE = Fraction(2, 10**6)
"""A decimal is a rounded value: 0.333333 is 1/3 to 1e-6 relative, 0.33333 is not."""

# 1234  1,234  1{,}234  1\,234  1 234  +7  -$7.50  $-7  \$7  1.2e3  1.2\times 10^{3}
NUMBER = re.compile(
    r"(?:(?P<sign>[-+]?)(?:\\?[$€£¥])?|\\?[$€£¥](?P<late_sign>[-+])) *"
    r"(?P<integer>[0-9]{1,3}(?P<separator>,|\{,\}|\\[,!]| )[0-9]{3}(?:(?P=separator)[0-9]{3})*|[0-9]+)?"
    r"(?P<fraction>\.[0-9]+|(?<=[0-9])\.?)"
    r"(?:[eE](?P<e>[-+]?[0-9]{1,4})(?![0-9A-Za-z.])"
    r"| *(?:\\times|\\cdot|[×*⋅·]) *10 *\^ *(?:\{ *(?P<power>[-+]?[0-9]{1,4}) *\}|(?P<digit>[0-9])(?![0-9])))?"
)
# -3/4  \frac{-3}{4}  \dfrac{3}{4}  3 1/2  3\frac{1}{2}
_FRACTION = re.compile(
    r"(?P<sign>-?)(?:(?:(?P<count>[0-9]+) +)?(?P<over>[0-9]+)/(?P<under>[0-9]+)"
    r"|(?P<whole>[0-9]+)? *\\[dtc]?frac *\{(?P<top>-?[0-9]+)\} *\{(?P<bottom>-?[0-9]+)\})"
)
_BRACKETED_WORDS = re.compile(r"\(([A-Za-z][A-Za-z ./-]*)\)")
_BASE = re.compile(r" *_ *\{? *([0-9]{1,2}) *\}?")
_SPACING = r"(?:\s|\\[ ,;:!]|~|\\quad)"
_WORDS = re.compile(r"[A-Za-z]{2,}(?:[ .-]+[A-Za-z]{2,}|/[A-Za-z]+)*[ .]*")
_SCALES = {"hundred": 2, "thousand": 3, "lakh": 5, "million": 6, "crore": 7, "billion": 9, "trillion": 12,
           "quadrillion": 15, "quintillion": 18}  # fmt: skip  # a table

_OPERATOR = r"(?:[-+*/×÷·⋅]|\\times|\\cdot|\\div)"
_ARITHMETIC = re.compile(rf"(?:[0-9.()]|{_SPACING}|{_OPERATOR})+")
_UNDONE = re.compile(rf"[0-9)](?:{_SPACING}*{_OPERATOR}.*[0-9]|{_SPACING}+[0-9]|{_SPACING}*\()")


def plain_number(text: str) -> Decimal | None:
    """The exact value of a text that is a number and nothing else. None for any other text."""
    match = NUMBER.fullmatch(text)
    return None if match is None else _value(match)


def ratio(text: str) -> Fraction | None:
    """The exact value of a fraction of two integers or a mixed number. None for anything else, or a denominator 0."""
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    over, under = int(match["over"] or match["top"]), int(match["under"] or match["bottom"])
    count = match["count"] or match["whole"]
    if not under or (count and not 0 < over < under):
        return None
    value = int(count or 0) + Fraction(over, under)
    return -value if match["sign"] else value


def equal_rationals(answer: Fraction, gold: Fraction, *, decimal: bool) -> bool:
    """Whether two values are equal. A decimal may differ a little from a gold answer that is no integer."""
    close = abs(answer - gold) <= DECIMAL_TOLERANCE * abs(gold)
    return answer == gold or (decimal and gold.denominator > 1 and close)


def is_undone_arithmetic(text: str) -> bool:
    """Whether a text consists of digits and operators, with an operation between two numbers."""
    return bool(_ARITHMETIC.fullmatch(text) and _UNDONE.search(text))


def is_quantity(text: str, value: Decimal) -> bool | None:
    """Whether a text is a number with words or a base, and its value is `value`.

    A unit is ignored. A first word such as "million" multiplies. None for a text of another kind, or with a word that
    hedges or changes the value otherwise (`7 or so`, `7 and a half`).
    """
    match = NUMBER.match(text)
    if match is None:
        return None
    if base := _BASE.fullmatch(text, match.end()):
        with contextlib.suppress(ValueError):  # a base or a digit that does not exist
            return int(base[1]) > 1 and int(match[0], int(base[1])) == value
        return False
    rest = _BRACKETED_WORDS.sub(r" \1 ", TEXT_COMMAND.sub(r" \1 ", text[match.end() :]))
    rest = re.sub(_SPACING, " ", rest).strip()
    if not _WORDS.fullmatch(rest):
        return None
    first, *others = words = re.findall("[a-z]+", rest.lower())
    if first in _SCALES:
        words = others
    if changes_value(" ".join(words)):
        return None
    return _value(match, exponent=_SCALES.get(first, 0)) == value


def is_base_copy(answer: str, prompt: str) -> bool:
    """Whether an answer is digits with a base, such as `22_8`, that the prompt holds."""
    digits, _, base = re.sub(r"[{} ]", "", answer).partition("_")
    copy = rf"(?<![0-9.])0*{re.escape(digits.lstrip('0'))} *_ *\{{? *{base}(?![0-9])"
    return bool(base) and re.search(copy, prompt) is not None


def _value(match: re.Match[str], exponent: int = 0) -> Decimal | None:
    """The exact value: a Decimal made from text is never rounded, and compares without rounding.

    None for a product that is not scientific notation, such as 45*10^2: arithmetic left undone.
    """
    sign = match["sign"] or match["late_sign"] or ""
    integer = re.sub("[^0-9]", "", match["integer"] or "0")
    mantissa = f"{sign}{integer}{match['fraction'].rstrip('.')}"
    power = match["power"] or match["digit"]
    if power and not 1 <= abs(Decimal(mantissa)) < 10:
        return None
    return Decimal(f"{mantissa}e{exponent + int(match['e'] or power or 0)}")
