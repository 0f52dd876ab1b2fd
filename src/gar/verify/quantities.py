r"""Read the one value that an answer states, and its unit: `The answer is $78$ km.`, `x = 78`, `78 apples`.

Only units, a few neutral words, and what a number counts may be beside the value. The word lists are in `words.toml`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gar.verify.numbers import plain_number
from gar.verify.tree import NotRead
from gar.verify.words import DOUBTS, NEVER, NUMBER_WORDS, SCALES, WORDS, Unit, read_unit, unit_named

_MATH = re.compile(r"\$\$([^$]+)\$\$|\$([^$]+)\$(?![0-9])|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_POWER = re.compile(r"(?<=[0-9A-Za-z)\]}])\*\*(?=[-+0-9A-Za-z(\\{])")  # of Python, tight on both sides: bold is not
_MARKS = re.compile(r"\*\*|`|</?(?:b|strong)>")
_BOX = re.compile(r"\\boxed *\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_WORD = re.compile(
    r"(?<![\\A-Za-z_])(?<!\\begin\{)(?<!\\end\{)(?:[A-Za-z]{2,}(?:[-'][A-Za-z]+)*(?![A-Za-z])|(?<= )a(?= [a-z]{2}))"
)
CONTENT = re.compile(r"[0-9]|\\(?!cdot|times|circ|begin|end)[A-Za-z]|(?<=[$€£¥])[a-z]")
_AFTER_VALUE = ' \t,;:*(/"'
_UNIT_PLACE = re.compile(r"(?<=[0-9}!).])(?P<gap> *)(?=[msghLlKNJWVA](?![A-Za-z])|\^\\circ|\\?%(?!%))")  # 10 m/s
_ANGLE_OF = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)")
_CURRENCY = re.compile(
    r"(?:.*[^<>!=]= *)?(?P<sign>[-+]? *)(?:US *)?\\?(?P<currency>[$€£¥]) *(?P<late>[-+]?)(?=[0-9.\\])"
)
_GAP = re.compile(r"(?:[\s,;:!\"'()\[\]{}-]|\.(?!\.))*")
"""What may be between the words after a value."""
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
_NAME = re.compile(r"((?:[A-Z]{2,4}|[A-Za-z])(?:_(?:\{[^{}]*\}|[A-Za-z0-9]))?'*) *=(?!=) *")  # x =, AB =, a_n =
_NO_THINGS = NEVER | WORDS["states"] | {"choose", *NUMBER_WORDS, *(f"{word}s" for word in NUMBER_WORDS)}
"""Words that name nothing that a number could count."""
_JOINING = {"or", "and", "mod"}
_LITTLE = {"or", "and", "no", "if", "is"}
SCALE = re.compile(rf"[ -]*({'|'.join(SCALES)})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value as text, and the powers of its units. `percent` if a percent sign follows. `name` is `x` in `x = 7`."""

    value: str
    unit: Unit = field(default_factory=dict)
    percent: bool = False
    name: str = ""


def without_marks(text: str) -> str:
    """A text without bold, the delimiters of formulas and boxes. A dollar sign before a number stays, as `\\$`."""
    text = _MATH.sub(lambda match: f" {next(filter(None, match.groups()), '')} ", _MARKS.sub("", _POWER.sub("^", text)))
    text = text.replace(r"\therefore", "so ")
    for _ in range(3):
        text = _BOX.sub(r" \1 ", text)
    text = text.replace(r"\boxed{", "")  # cut off
    return " ".join(text.replace("$", r"\$").replace(r"\\$", r"\$").split())


def without_lead(text: str) -> str:
    """A text without an introduction such as `The answer is`, and without a full stop."""
    rest = text
    while match := _LEAD.match(rest):
        rest = rest[match.end() :]
    return without_mark_at_end(rest.strip(), spoken=rest != text)


def without_mark_at_end(text: str, *, spoken: bool = False) -> str:
    """A text without its full stop. In a sentence `42!` is no factorial either."""
    if spoken:
        text = _EXCLAMATION.sub(r"\1\2", text)
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def without_marks_after(value: str) -> str:
    """A value without what may part it from the next word."""
    value = value.rstrip(_AFTER_VALUE)
    return value if value.endswith("..") else value.removesuffix(".").removesuffix(" -").rstrip(_AFTER_VALUE)


def words_in(text: str, start: int = 0, *, letters: bool = False) -> Iterator[re.Match[str]]:
    """The words of a text. Beside letters of algebra only those that are no products of letters."""
    return (match for match in _WORD.finditer(text, start) if not letters or is_prose(match[0]))


def is_prose(word: str) -> bool:
    """Whether letters are a word and no product such as `abc`."""
    low = word.lower()
    spoken = not word.isupper() and re.search("[aeiouy]", low) is not None and list(low) != sorted(low)
    return low in _LITTLE or (len(low) > 2 and (spoken or low in NEVER or low in DOUBTS))


def read_quantity(text: str, *, letters: bool = False, gold: bool = False) -> Quantity:
    """A value with nothing beside it but a name, a unit and neutral words, or the things that a plain number counts.

    Words are peeled off both ends. What is then left is the value, however it reads.

    Args:
        text: As `plain_latex`, `without_marks` and `without_lead` leave it.
        letters: The gold answer has letters, so that single letters and short words are no units.
        gold: It is a gold answer, in which any words that change nothing may follow a number.

    Raises:
        NotRead: It does not state one value.
    """
    text, name = _without_words_before(text, letters=letters)
    end = next((word.start() for word in words_in(text, letters=letters) if word[0].lower() not in _JOINING), len(text))
    value = text[:end].rstrip(_AFTER_VALUE)
    if value.endswith("\\$") and "\\$" not in value[:-2]:  # 78$
        value = value[:-2]
    value = without_marks_after(value)
    value = value[: len(value) if letters else unit_start(value, spaced=gold)]
    after, unit = text[len(value) :], {}
    if currency := _CURRENCY.match(value):
        value = f"{currency['sign'].strip()}{currency['late']}{value[currency.end() :]}"
        unit = unit_named(currency["currency"]) or {}
    if not CONTENT.search(value) and not (letters and value):
        raise NotRead("the answer holds no number")
    plain = plain_number(value) is not None
    if plain and (scale := SCALE.match(after)):
        value, after = f"{value}e{SCALES[scale[1].lower()]}", after[scale.end() :]
    unit = unit | _unit_after(after, counts=plain, gold=gold)
    percent = unit.pop("percent", 0)
    if percent not in (0, 1) or value.count("{") != value.count("}"):  # words within a formula
        raise NotRead("the answer does not state one value")
    return Quantity(value.strip(), unit, percent == 1, name)


def _without_words_before(text: str, *, letters: bool) -> tuple[str, str]:
    """A text without the words and the name before its value, and the name. `NotRead` if they may change the value."""
    named = ""
    while True:
        text = text.lstrip(" ,:;*")
        if (name := _NAME.match(text)) and not letters:
            text, named = text[name.end() :], named or name[1].replace(" ", "")
        elif (word := next(words_in(text, letters=letters), None)) and not word.start():
            if word[0].lower() not in WORDS["neutral"]:
                raise NotRead(f"the answer does not state one value: {word[0]!r}")
            text = text[word.end() :].lstrip(" =")
        else:
            return text, named


def unit_start(value: str, *, spaced: bool) -> int:
    """Where the unit of single letters begins at the end of a value: `10 m/s`. Without one, the length of the value."""
    for place in _UNIT_PLACE.finditer(value):
        letter = value[place.end()]
        spare = not place["gap"] and (letter.isupper() or (spaced and letter.isalpha()))  # 64K, a product 3m
        angle = letter == "^" and _ANGLE_OF.search(value)  # \cos 20^\circ
        open_bracket = value.count("(", 0, place.start()) > value.count(")", 0, place.start())
        if not (spare or angle or open_bracket) and read_unit(value, place.end())[1] == len(value):
            return place.start()
    return len(value)


def _unit_after(rest: str, *, counts: bool, gold: bool) -> Unit:
    """The unit after a value, or the things that it counts, up to a plural. `NotRead` if more follows."""
    unit, things = _words_after(rest)
    rate = all(power < 0 for power in unit.values())  # 60 words per minute
    if things and not (rate and (gold or (counts and _is_plural(things[-1])))):
        raise NotRead(f"the answer does not state one value: {things[0]!r}")
    return {things[-1].removesuffix("s"): 1} if things and not unit else unit


def _words_after(rest: str) -> tuple[Unit, list[str]]:
    """The unit in what follows a value, and words that are not neutral. `NotRead` if any may change the value."""
    unit: Unit = {}
    things: list[str] = []
    place = 0
    while True:
        if not unit:
            unit, place = read_unit(rest, place)
        match = next(words_in(rest, place), None)
        if not _GAP.fullmatch(rest, place, len(rest) if match is None else match.start()):
            raise NotRead("the answer does not state one value")
        if match is None:
            return unit, things
        word = match[0].lower()
        if word not in WORDS["neutral"] and unit_named(word) is None:
            if word in _NO_THINGS or match[0].isupper():
                raise NotRead(f"the answer does not state one value: {word!r}")
            things.append(word)
        place = match.end()


def _is_plural(word: str) -> bool:
    regular = re.fullmatch("[a-z'-]{2,}[^sui]s", word) is not None
    return regular and word not in WORDS["no_plurals"]
