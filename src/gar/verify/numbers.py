r"""Plain numbers, read from text exactly and without a parser: `1,234`, `-$7.50`, `1.8\times 10^{1}`, `3 million`."""

import re
from fractions import Fraction

DECIMAL_TOLERANCE = Fraction(2, 10**6)
"""A decimal is a rounded value: 0.333333 is 1/3 to 1e-6 relative, 0.33333 is not."""
MAX_CHARS = 4_000

# 1234  1,234  1{,}234  1\,234  1 234  +7  -$7.50  $-7  \$7  1.2e3  1.2\times 10^{3}
NUMBER = re.compile(
    r"(?:(?P<sign>[-+]?)(?:\\?[$€£¥])?|\\?[$€£¥](?P<late_sign>[-+])) *"
    r"(?P<integer>[0-9]{1,3}(?P<separator>,|\{,\}|\\[,!]| )[0-9]{3}(?:(?P=separator)[0-9]{3})*|[0-9]+)?"
    r"(?P<fraction>\.[0-9]+|(?<=[0-9])\.?)"
    r"(?:[eE](?P<e>[-+]?[0-9]{1,4})(?![0-9A-Za-z.])"
    r"| *(?:\\times|\\cdot|[×*⋅·]) *10 *\^ *(?:\{ *(?P<power>[-+]?[0-9]{1,4}) *\}|(?P<digit>[0-9])(?![0-9])))?"
)


def plain_number(text: str) -> Fraction | None:
    """The exact value of a text that is a number and nothing else. None for any other text."""
    if len(text) > MAX_CHARS:  # Python refuses to read 4,300 digits
        return None
    if text.isascii() and text.isdigit():
        return Fraction(int(text))
    match = NUMBER.fullmatch(text)
    return None if match is None else _value(match)


def equal_rationals(answer: Fraction, gold: Fraction, *, decimal: bool) -> bool:
    """Whether two values are equal. A decimal may differ a little from a gold answer that is no integer."""
    if answer == gold or not decimal or gold.denominator == 1:
        return answer == gold
    return abs(answer - gold) <= DECIMAL_TOLERANCE * abs(gold)


def equal_values(answer: Fraction, gold: Fraction, percent: tuple[bool, bool], *, decimal: bool) -> bool:
    """Whether two values are equal, either of which may be followed by a percent sign.

    `15%` is 0.15. Without a fraction of 1 to compare with, the sign may be missing on one side: `15` for `15%`, and
    `15%` for 15, but not `0.15%` for 0.15.
    """
    if percent == (False, False):
        return equal_rationals(answer, gold, decimal=decimal)
    scales = tuple(Fraction(1, 100) if is_percent else Fraction(1) for is_percent in percent)
    if equal_rationals(answer * scales[0], gold * scales[1], decimal=decimal):
        return True
    same = percent == (False, True) or (percent == (True, False) and abs(gold) >= 1)
    return same and equal_rationals(answer, gold, decimal=decimal)


def _value(match: re.Match[str]) -> Fraction | None:
    """The exact value. None for a product that is not scientific notation, such as 45*10^2: arithmetic left undone."""
    sign = match["sign"] or match["late_sign"] or ""
    integer = (match["integer"] or "0").replace(match["separator"] or ",", "")
    mantissa = f"{sign}{integer}{match['fraction'].rstrip('.')}"
    power = match["power"] or match["digit"]
    if power and not 1 <= abs(Fraction(mantissa)) < 10:
        return None
    return Fraction(f"{mantissa}e{int(match['e'] or power or 0)}")
