r"""Read the one value that an answer states, and its unit: `The answer is $78$ km.`, `x = 78`, `78 apples`.

Only units, a few neutral words, and words of the problem may be beside the value. The word lists are in `words.toml`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gar.verify.words import DATA, DOUBTS, NEVER, NUMBER_WORDS, SCALES, WORDS, Unit, read_unit, unit_named

_MATH = re.compile(r"\$\$([^$]+)\$\$|\$([^$]+)\$(?![0-9])|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_MARKS = re.compile(r"\*\*|`|</?(?:b|strong)>")
_BOX = re.compile(r"\\boxed *\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_WORD = re.compile(
    r"(?<![\\A-Za-z_])(?<!\\begin\{)(?<!\\end\{)(?:[A-Za-z]{2,}(?:[-'][A-Za-z]+)*(?![A-Za-z])|(?<= )a(?= [a-z]{2}))"
)
_CONTENT = re.compile(r"[0-9]|\\(?!cdot|times|circ|begin|end)[A-Za-z]|(?<=[$€£¥])[a-z]")
_BEFORE_VALUE = re.compile(r"\A(?:[\s,;:!\"'*)\]]|\.(?![0-9])|-(?= ))*")
_AFTER_VALUE = " \t,;:\"'*(/"
_UNIT_PLACE = re.compile(r"(?<=[0-9}!)])(?P<gap> *)(?=[msghLlKNJWVA](?![A-Za-z])|\^\\circ)")
_CURRENCY = re.compile(r"^(?P<sign>[-+]? *)(?:US *)?\\?(?P<currency>[$€£¥]) *(?P<late>[-+]?)(?=[0-9.\\])")
_LAST_SIDE = re.compile(r"\A.*[^<>!=]= *(?=[-+]? *\\?[$€£¥])")  # all before it
_PERCENT = re.compile(r" *\\?%$")
_LETTER = re.compile(r"(?<![\\A-Za-z0-9])[A-Za-z](?![A-Za-z])|(?<=[0-9])[A-DF-Za-df-z]")  # a variable
_MATHS_SIGN = re.compile(r"\.\.|[=<>?~+*^_/|0-9]|\\[a-zA-Z]")
_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore|then|finally)\b,? *|\\therefore *)*(?:"
    r"(?:(?:(?:the|my|our|its|a|this|that) )?(?:(?:final|correct|right|exact|numerical|required|desired|combined) )*"
    r"(?:answer|result|solution|value|total|sum|number)"
    r"(?: (?:to|of|for) (?:the|this) (?:question|problem|expression))?|it)"
    r" *(?:\bis\b(?: equal to)?|\bequals\b|would be|must be|should be|comes to|:|=)"
    r"|(?:we|i) (?:get|have|obtain|find)\b|=>?) *:?(?: *(?:exactly|simply|just)\b)? *",
    re.IGNORECASE,
)
_EXCLAMATION = re.compile(r"(?<=[0-9])(\**)!+(\**)\Z")
_RUN_TOGETHER = re.compile("[0-9] +[0-9]+-[A-Za-z]|^[^'\"]*[0-9]'")  # 12 200-page books, 7'
_TWICE = re.compile(r"([0-9][0-9,]*) *\(([^()]*)\)")  # 90 (ninety)
_LITTLE = {"or", "and", "no", "if", "is"}
_NEUTRAL_PHRASES = re.compile("|".join(rf"\b{phrase}\b" for phrase in DATA["neutral"]["phrases"]), re.IGNORECASE)
_POWER = re.compile(r"(?: +(?:[mshgLK]|mol)(?= *\^))? *\^ *\{? *-?[0-9] *\}?|[23](?![0-9.,/])")  # of a unit
_IN_UNIT = re.compile(r"\bin (?=([A-Za-z]+))")
_NUMERAL = re.compile(
    r"(?:(?P<minus>negative|minus) +)?(?P<words>(?:(?:"
    + "|".join([*NUMBER_WORDS, *SCALES, "and", "a"])
    + r")\b[ -]*)+)",
    re.IGNORECASE,
)
_INCH = re.compile(r"((?:[0-9}]|square|cubic) *)in(?:\.|(?= *(?:\Z|[\^/])))")
LEADING_NUMBER = re.compile(r"[-+]?(?:\\?[$€£¥] *)?[-+]?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value as text, and the powers of its units. `percent` if a percent sign follows the value."""

    value: str
    unit: Unit = field(default_factory=dict)
    percent: bool = False


class Unread(ValueError):
    """A text that does not state one value, with the reason."""


def without_marks(text: str) -> str:
    """A text without bold, the delimiters of formulas and boxes. A dollar sign before a number stays, as `\\$`."""
    text = _MATH.sub(lambda match: f" {next(filter(None, match.groups()), '')} ", _MARKS.sub("", text))
    text = text.replace(r"\therefore", "so ")
    for _ in range(3):
        text = _BOX.sub(r" \1 ", text)
    text = text.replace(r"\boxed{", "")  # cut off
    return " ".join(text.replace("$", r"\$").replace(r"\\$", r"\$").split())


def without_lead(text: str) -> str:
    """A text without an introduction such as `The answer is`, and without a full stop."""
    rest = text
    while (match := _LEAD.match(rest)) and match.end() and match.end() < len(rest):
        rest = rest[match.end() :]
    return without_mark_at_end(rest.strip(), spoken=rest != text)


def without_mark_at_end(text: str, *, spoken: bool = False) -> str:
    """A text without its full stop. In a sentence `42!` is no factorial either."""
    if spoken:
        text = _EXCLAMATION.sub(r"\1\2", text)
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def words_in(text: str, start: int = 0, *, letters: bool = False) -> Iterator[re.Match[str]]:
    """The words of a text. Beside letters of algebra only those that are no products of letters."""
    return (match for match in _WORD.finditer(text, start) if not letters or is_prose(match[0]))


def is_prose(word: str) -> bool:
    """Whether letters are a word and no product such as `abc`."""
    low = word.lower()
    spoken = re.search("[aeiouy]", low) is not None and list(low) != sorted(low)
    return low in _LITTLE or (len(low) > 2 and (spoken or low in NEVER or low in DOUBTS))


def read_quantity(text: str, nouns: frozenset[str] | None = frozenset(), *, letters: bool = False) -> Quantity:
    """A value with nothing beside it but an introduction, a unit, neutral words and words of the problem.

    Args:
        text: As `plain_latex` and `without_marks` leave it.
        nouns: Words that may be beside a value, in lower case: the problem's. None: any that change nothing.
        letters: The gold answer has letters, so that single letters and short words are no units.

    Raises:
        Unread: It does not state one value.
    """
    text = _INCH.sub(r"\1inch", _spelled_out(without_lead(text)))
    if (twice := _TWICE.match(text)) and _spelled_out(twice[2]).strip() == twice[1].replace(",", ""):
        text = text.replace(twice[0], twice[1], 1)
    words = list(words_in(text, letters=letters))
    spans = [(0, len(text))] if letters and not words else contents(text, words)
    if len(spans) != 1 or _RUN_TOGETHER.search(text):
        raise Unread("the answer does not state one value" if spans else "the answer holds no number")
    start, end = spans[0]
    value, before, after = text[start:end], _NEUTRAL_PHRASES.sub(" ", text[:start]), text[end:]
    for match in words_in(before, letters=letters):
        if match[0] not in WORDS["currencies"]:
            _judge(match[0].lower(), nouns or frozenset(), units=False)
    if not letters:
        value, letter_unit = _without_letters(value, spaced=nouns is None)
        after = f" {letter_unit} {after}" if letter_unit else after
    value, unit = _without_currency(value)
    if value.count("{") != value.count("}"):  # words within a formula
        raise Unread("the answer does not state one value")
    value, after = _scaled(value, after)
    percent = _PERCENT.search(value) is not None
    value = _PERCENT.sub("", value).strip()
    for name, power in _unit_after(after, nouns, letters=letters, plain=_is_plain(value)).items():
        unit[name] = power if unit.get(name) == power else unit.get(name, 0) + power  # $78 dollars
    percent = unit.pop("percent", 0) == 1 or percent
    return Quantity(value, {name: power for name, power in unit.items() if power}, percent)


def _is_plain(value: str) -> bool:
    return LEADING_NUMBER.fullmatch(value) is not None


def _without_currency(value: str) -> tuple[str, Unit]:
    """A value without the sign of a currency before it, and this unit. The last side of an equation, if it has one."""
    side = _LAST_SIDE.sub("", value)
    currency = _CURRENCY.match(side)
    if currency is None:
        return value, {}
    number = f"{currency['sign'].strip()}{currency['late']}{side[currency.end() :]}"
    return number, dict(unit_named(currency["currency"]) or {})


def _without_letters(value: str, *, spaced: bool) -> tuple[str, str]:
    """A value without its unit of single letters (`10 m/s`), and this unit."""
    for place in _UNIT_PLACE.finditer(value):
        letter = value[place.end()]
        spare = not place["gap"] and (letter.isupper() or (spaced and letter != "^"))  # 64K, a product 3m
        variable = _LETTER.search(value, value.rfind("=") + 1, place.start())
        if not (spare or variable) and read_unit(value, place.end())[1] == len(value):
            return value[: place.start()], value[place.end() :]
    return value, ""


def _scaled(value: str, after: str) -> tuple[str, str]:
    """A number times the word such as `million` that follows it, and the rest."""
    scale = re.match(r"[ -]*([a-z]+)\b", after, re.IGNORECASE)
    if scale is None or scale[1].lower() not in SCALES or not _is_plain(value):
        return value, after
    power = SCALES[scale[1].lower()]
    whole, _, part = value.replace(",", "").partition(".")
    digits = f"{whole}{part[:power].ljust(power, '0')}"
    return f"{digits}.{part[power:]}".rstrip("."), after[scale.end() :]


def _unit_after(rest: str, nouns: frozenset[str] | None, *, letters: bool, plain: bool) -> Unit:
    """The unit in what follows a value. `Unread` if there is anything else but neutral words and the problem's."""
    unit: Unit = {}
    rest = _NEUTRAL_PHRASES.sub(" ", _IN_UNIT.sub(lambda match: "" if unit_named(match[1]) else match[0], rest))
    place, known = 0, False
    while True:
        if not known and (not letters or _WORD.match(rest.lstrip(" \\("))):
            unit_here, place = read_unit(rest, place)
            unit, known = (unit_here, True) if unit_here else (unit, False)
        match = next(words_in(rest, place, letters=letters), None)
        gap = rest[place : len(rest) if match is None else match.start()]
        if _MATHS_SIGN.search(gap):
            raise Unread("the answer does not state one value")
        if match is None:
            return unit
        word = match[0].lower()
        if not (known or word in NEVER or word in WORDS["neutral"] or match[0].isupper()) and (
            nouns is None or _is_noun(word, nouns) or (plain and not unit and _is_plural(word))
        ):
            unit = {word.removesuffix("s"): 1}
        elif not (word == "of" and unit):  # 3 bolts of fiber
            _judge(word, nouns or frozenset())
        place = match.end()


def _is_plural(word: str) -> bool:
    regular = re.fullmatch("[a-z'-]{2,}[^sui]s", word) is not None
    return word in WORDS["nouns"] or (regular and word not in WORDS["no_plurals"])


def _is_noun(word: str, nouns: frozenset[str]) -> bool:
    return not nouns.isdisjoint((word, word.removesuffix("s"), word.removesuffix("es"), f"{word}s", f"{word}es"))


def _judge(word: str, nouns: frozenset[str], *, units: bool = True) -> None:
    """`Unread` if a word beside a value may change it."""
    if word in NEVER or not (word in WORDS["neutral"] or _is_noun(word, nouns) or (units and unit_named(word))):
        raise Unread(f"the answer does not state one value: {word!r}")


def contents(text: str, words: Iterable[re.Match[str]]) -> list[tuple[int, int]]:
    """The parts of a text between its words that hold a number or a formula. `3 or 7` is one part."""
    spans: list[tuple[int, int]] = []
    start, joins = 0, False
    for begin, end, word in [*((*match.span(), match[0].lower()) for match in words), (len(text), len(text), "")]:
        if spans and (power := _POWER.match(text, start)):
            start = power.end()
        piece = text[start:begin]
        holds = _CONTENT.search(piece) is not None
        if holds:
            left = begin - len(_BEFORE_VALUE.sub("", piece))
            value = piece.rstrip(_AFTER_VALUE)
            value = value if value.endswith("..") else value.removesuffix(".").removesuffix(" -").rstrip(_AFTER_VALUE)
            right = start + len(value)
            if joins:
                left, _ = spans.pop()
            spans.append((left, right))
        joins, start = holds and word in ("or", "and"), end
    return spans


def _spelled_out(text: str) -> str:
    """A number in words at the beginning, in digits: `seventy-eight apples`, `negative 5`."""
    numeral = None if text[:1].isdigit() else _NUMERAL.match(text)
    if numeral is None:
        return re.sub(r"^(?:negative|minus) +(?=[0-9\\])", "-", text, flags=re.IGNORECASE)
    words = re.findall("[a-z]+", numeral["words"].lower())
    if NUMBER_WORDS.keys().isdisjoint(words):
        return text
    total = current = 0
    for word in words:
        current += NUMBER_WORDS.get(word, 0)
        if word in SCALES:
            current = (current or 1) * 10 ** SCALES[word]
        if SCALES.get(word, 0) > 2:
            total, current = total + current, 0
    return f"{'-' if numeral['minus'] else ''}{total + current} {text[numeral.end() :]}".strip()
