"""The word lists of `words.toml`, and the units that they name."""

import re
import tomllib
from collections import Counter
from importlib.resources import files

DATA = tomllib.loads(files("gar.verify").joinpath("words.toml").read_text(encoding="utf-8"))
WORDS = {name: frozenset(words.split()) for name, words in DATA["words"].items()}
NEVER, DOUBTS = WORDS["never"], WORDS["doubts"]
SCALES: dict[str, int] = DATA["scales"]
NUMBER_WORDS = {word: value for value, word in enumerate(DATA["numerals"]["units"])} | {
    word: 10 * value for value, word in enumerate(DATA["numerals"]["tens"], start=2)
}

Unit = dict[str, int]
"""The powers of the units that a unit is a product of: {"m": 1, "s": -2}."""
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_TIMES = {"s", "min", "h", "day", "night", "week", "month", "year", "time", "piece", "person"}
_NOT_COUNTED = NEVER | SCALES.keys() | {"mil", "mille"}
_LOWER = re.compile("[a-z]+(?:'[a-z]+)?")
_MONTH = re.compile(r"(?<=[a-z,] )May\b")
_FACTOR = re.compile(
    r"[\s(]*(?:(?P<over>/|(?i:per)\b|(?i:an?|each|every)\b(?=\s+[A-Za-z]))|\\cdot(?![a-z])|\\times(?![a-z])|[*·⋅])?[\s(]*"
    r"(?:(?P<power>(?i:square|sq|cubic|cu)\b)\.?\s+)?"
    r"(?P<name>\\?%|(?:US\s*)?\\?\$|[$€£¥¢]|\^?\\circ(?:\s*[CF]\b)?|(?:US\s+)?[A-Za-zµμΩ°]+(?:-hour|-year)?\.?)"
    r"(?:\s*\^\{?\s*(?P<raised>-?[0-9])\s*\}?|(?P<digit>[23])(?![0-9.,])|\s+(?P<word>squared|cubed)\b)?\)?"
)


def lower_words(text: str) -> list[str]:
    """The words of a text in lower case, `isn't` as one, without the month of May, which is no doubt."""
    return _LOWER.findall(_MONTH.sub("", text).lower())


def _spellings() -> dict[str, Unit]:
    """Each spelling of a unit, and what it is a product of."""
    units: dict[str, Unit] = {}
    for entry in DATA["units"]["names"].replace("\n", "|").strip("|").split("|"):
        name, *spellings = entry.split()
        for spelling in (name, *spellings):
            if "/" in spelling or "*" in spelling:
                units |= dict.fromkeys((name, *spellings), _product(spelling, units))
            else:
                units.setdefault(spelling, {name: 1})
    return units


def _product(text: str, units: dict[str, Unit]) -> Unit:
    over, _, under = text.partition("/")
    powers = Counter(over.split("*"))
    powers.subtract([under] if under else [])
    return {next(iter(units.get(name, {name: 1}))): power for name, power in powers.items()}


_UNITS = _spellings()


def unit_named(word: str) -> Unit | None:
    """The unit that a word names, in any of its spellings. None if it names none."""
    word = re.sub(r"^US\s*(?=.)", "", re.sub(r"^\^?\\circ\s*", "°", word)).lstrip("\\")
    if len(word) > 1:
        word = word.rstrip(".") if word not in _UNITS else word
    if word in _UNITS:
        return _UNITS[word]
    if len(word) < 3:
        return None
    word = word.lower()
    for name in dict.fromkeys((word, word.removesuffix("s"), word.removesuffix("es"))):
        if name in _UNITS and len(name) > 2:
            return _UNITS[name]
    return None


def read_unit(text: str, start: int) -> tuple[Unit, int]:
    """The unit that begins at a place of a text, and where it ends: `km/h`, `meters per second squared`, `m^2`.

    Empty without one.
    """
    unit: Counter[str] = Counter()
    while match := _FACTOR.match(text, start):
        named, over, word = unit_named(match["name"]), (match["over"] or "").lower(), match["name"].lower()
        if named is None and over in ("/", "per") and len(word) > 2 and word.isalpha() and word not in _NOT_COUNTED:
            named = {word: 1}  # per room
        if named is None or (over in ("a", "an", "each", "every") and not named.keys() & _TIMES):
            break
        power = int(match["raised"] or match["digit"] or _POWERS.get(match["word"] or "", 1))
        power *= _POWERS.get((match["power"] or "").lower(), 1) * (-1 if over else 1)
        for name, times in named.items():
            unit[name] += power * times
        start = match.end()
    if "celsius" in unit or "fahrenheit" in unit:
        del unit["deg"]
    return {name: power for name, power in unit.items() if power}, start
