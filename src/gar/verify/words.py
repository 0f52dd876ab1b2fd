"""The word lists of `words.toml`, and the units that they name."""

import re
import tomllib
from collections import Counter
from importlib.resources import files

DATA = tomllib.loads(files("gar.verify").joinpath("words.toml").read_text(encoding="utf-8"))
WORDS = {name: frozenset(words.split()) for name, words in DATA["words"].items()}
NEVER, DOUBTS = WORDS["never"] | WORDS["parts"], WORDS["doubts"]
CHANGING = NEVER - WORDS["beside_a_box"]
SCALES: dict[str, int] = DATA["scales"]
NUMBER_WORDS = {word: value for value, word in enumerate(DATA["numerals"]["units"])} | {
    word: 10 * value for value, word in enumerate(DATA["numerals"]["tens"], start=2)
}

Unit = dict[str, int]
"""The powers of the units that a unit is a product of: {"m": 1, "s": -2}."""
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_TIMES = {"s", "min", "h", "day", "night", "week", "month", "year", "time", "piece", "person"}
_NOT_COUNTED = NEVER | SCALES.keys()
_CLAUSE_END = re.compile(r"[.,:;!?\n]|\\\\|\b(?:so|thus|hence|therefore|then|and|but)\b", re.IGNORECASE)
_SUBJECT = re.compile(
    rf"\b(?:(?:{'|'.join(DATA['subject']['parts'])})\b(?=.*\b(?:is|are|was|equals)\b)|could\b(?!.*\bbe\b))"
)
_AUXILIARIES = {"is", "are", "was", "do", "does", "did"}
_LOWER = re.compile(r"(?<![\\a-z])[a-z]+(?:'[a-z]+)?")
_MONTH = re.compile(r"(?<=[a-z,] )May\b")
_FACTOR = re.compile(
    r"[\s(]*(?:(?P<over>/|(?i:per)\b|(?i:an?|each|every)\b(?=\s+[A-Za-z]))|\\cdot(?![a-z])|\\times(?![a-z])|[*·⋅])?[\s(]*"
    r"(?:(?P<power>(?i:square|sq|cubic|cu)\b)\.?\s+)?"
    r"(?P<name>\\?%|(?:US\s*)?\\?\$|[$€£¥¢]|\^?\\circ(?:\s*[CF]\b)?|(?:US\s+)?[A-Za-zµμΩ°]+(?:-hour|-year)?\.?)"
    r"(?:\s*\^\{?\s*(?P<raised>-?[0-9])\s*\}?|(?P<digit>[23])(?![0-9.,])|\s+(?P<word>squared|cubed)\b)?\)?"
)


def lower_words(text: str) -> list[str]:
    """The words of a text in lower case, `isn't` as one, without commands and the month of May."""
    return _LOWER.findall(_MONTH.sub("", text).lower())


def is_open(before: str) -> bool:
    """Whether the clause before an answer denies it, changes it, or leaves it open."""
    stated = _SUBJECT.sub("", _CLAUSE_END.split(before)[-1])
    clause = [word for word in lower_words(stated) if word not in WORDS["articles"]]
    *_, second, last = "", "", *clause
    changed = last in CHANGING | {"no", "times"} or second == "no"
    part = last in ("of", "to", "from") and second in WORDS["parts"] | WORDS["parts_of"]
    return changed or part or not DOUBTS.isdisjoint(clause)


def is_changed(after: str) -> bool:
    """Whether the words after an answer change or deny it: `million`, `more than`, `and a half`."""
    words = lower_words(after)[:3]
    first, second = [*words, "", ""][:2]
    if first in ("at", "in"):
        return second in CHANGING | {"base"}
    if first == "and":
        return not WORDS["parts"].isdisjoint(words)
    denied = {"not", "no"} & {*(words if first in _AUXILIARIES else words[:1])}
    changed = first in CHANGING | SCALES.keys() | {"or"} or second == "than"
    return bool(denied or changed or (DOUBTS - WORDS["beside_a_box"]).intersection(words))


# Each spelling of a unit, and the powers of what it is a product of. The first entry of a spelling counts.
_NAMES = [entry.split() for entry in DATA["units"]["names"].replace("\n", "|").strip("|").split("|")]
_UNITS: dict[str, Unit] = {spelling: {names[0]: 1} for names in reversed(_NAMES) for spelling in names}
for spellings, powers in DATA["products"].items():
    _UNITS |= dict.fromkeys(spellings.split(), powers)


def unit_named(word: str) -> Unit | None:
    """The unit that a word names, in any of its spellings. None if it names none."""
    word = re.sub(r"^US\s*(?=.)", "", re.sub(r"^\^?\\circ\s*", "°", word)).lstrip("\\")
    bare = word.rstrip(".")
    low = bare.lower()
    longer = (name for name in (low, low.removesuffix("s"), low.removesuffix("es")) if len(name) > 2)
    return next((_UNITS[name] for name in (word, bare, *longer) if name in _UNITS), None)


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
