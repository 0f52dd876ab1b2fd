"""Find the value that a sentence states: `She has 78 apples left.`, `So 3 * 26 = 78 dollars.`

It is the last side of an equation, or the only number, after a verb that states it. Words after it may not change it.
"""

import re

from gar.verify.quantities import (
    CONTENT,
    SCALE,
    Quantity,
    read_quantity,
    unit_start,
    without_mark_at_end,
    without_marks_after,
    words_in,
)
from gar.verify.tree import NotRead
from gar.verify.words import DOUBTS, NEVER, NUMBER_WORDS, SCALES, WORDS, is_open, lower_words, read_unit

_EQUALS = re.compile(r"(?<![<>!=\\])=(?!=)|\b(?:is|are) equal to\b|\bequals\b(?: to)?|\\Rightarrow|\u21d2")
_BREAK = re.compile(r"[;,](?! *[0-9]{3}(?![0-9]))|\b(?:and|so|or|but|then|because|while)\b", re.IGNORECASE)
_REASON = re.compile(r"(?<=[0-9}$)])(?: [a-z]+)?,? \(?(?:since|because)\b *[^ .].*", re.DOTALL)
_BEFORE_VALUE = re.compile(r"\A(?:[\s,;:!\"'*)\]]|\.(?![0-9]))*")
_VERB = re.compile(r"[a-z]{2,}(?:ed|[^siu]s)")
_UNSURE = (NEVER | DOUBTS | SCALES.keys() | NUMBER_WORDS.keys()) - {"every", "last", "one", "over"}  # last week
"""Words that keep a sentence without an equation from being read, wherever they stand."""
_CHANGES = (NEVER | SCALES.keys() | {"point"}) - WORDS["compares"]
_GOES_BACK = re.compile(
    r"\A *(?:to|choose|in base|to the power)? *[0-9]|\b(?:but|however|at most|ago|a half)\b|, (?:now|then)\b"
    r"|\bbefore *\.?\Z|\b(?:which|that) (?:is|are|was|rounds?|equals?|makes)\b[^.]*[0-9]"
)
_MULTIPLE = re.compile(r"(?<![0-9A-Za-z])(?:-|[0-9]+) *[a-z] *\$? *\Z")  # 2x = 7


def read_answer(text: str, *, letters: bool, sentences: bool) -> Quantity:
    """The value and unit of an answer, which may be a sentence. `NotRead` if it does not state one value."""
    text = _REASON.sub("", text)
    try:
        return read_quantity(text, letters=letters)
    except NotRead as error:
        stated = sentence_value(text) if sentences else None
        if stated is None:
            raise error
        return read_quantity(stated, letters=letters)


def sentence_value(text: str) -> str | None:
    """The value of a sentence with the unit that touches it. None if it states none, several, or leaves it open."""
    text = without_mark_at_end(text.partition(r"\approx")[0].rstrip(), spoken=True)  # the exact value is before it
    if "?" in text or ".." in text:
        return None
    return _chain_value(*_EQUALS.split(text)) if _EQUALS.search(text) else _only_value(text)


def _chain_value(first: str, *sides: str) -> str | None:
    """The last side of the one chain of equations in a sentence. None if there is a second chain."""
    words = [word for word in lower_words(first) if len(word) > 1]
    if WORDS["guesses"].intersection(words) or (DOUBTS | {"no"}).intersection(words[-1:]):
        return None
    if any(map(_BREAK.search, sides[:-1])) or (len(sides) == 1 and _MULTIPLE.search(first)):
        return None
    last = sides[-1].strip()
    span = value_span(last)
    if span is None or span[0] > 1:
        return None
    stated, after = _with_unit(last, span[1])
    words = lower_words(after)
    changed = _CHANGES.intersection(words[:1]) or WORDS["guesses"].intersection(words) or _GOES_BACK.search(after)
    return None if changed else stated


def _only_value(text: str) -> str | None:
    """The only number of a sentence, where a verb before it states it and no word may change it."""
    span = value_span(text)
    if span is None or not _is_stated(text[: span[0]]) or is_open(text[: span[0]]):
        return None
    stated, after = _with_unit(text[span[0] :], span[1] - span[0])
    if value_span(after) or re.search(r"[0-9] *[*×+] *[0-9]", stated):
        return None
    return stated if _UNSURE.isdisjoint(lower_words(f"{text[: span[0]]} {after}")) else None


def value_span(text: str) -> tuple[int, int] | None:
    """Where the first number or formula of a text begins, and where it ends: at a word or a unit. `3 or 7` is one."""
    left, right, start = None, 0, 0
    for begin, stop, word in [*((*match.span(), match[0].lower()) for match in words_in(text)), (len(text), 0, "")]:
        holds = CONTENT.search(text, start, begin)
        if holds:
            left, right = (start if left is None else left), begin
        if left is not None and not (holds and word in ("or", "and")):
            break
        start = stop
    if left is None:
        return None
    value = _BEFORE_VALUE.sub("", text[left:right])
    left = right - len(value)
    return left, left + unit_start(without_marks_after(value), spaced=False)


def _is_stated(before: str) -> bool:
    """Whether the words before a value state it."""
    before = before.rstrip(" (")
    if before.endswith((":", "=")):
        return True
    words = lower_words(before)
    if not before[-1:].isalpha() or len(words) < 2 or WORDS["transparent"].issuperset(words):
        return False
    last = next(word for word in reversed(words) if word in WORDS["states"] or word not in WORDS["transparent"])
    return last in WORDS["states"] or _VERB.fullmatch(last) is not None


def _with_unit(text: str, end: int) -> tuple[str, str]:
    """A value that ends at a place, with its scale and unit, and what follows them."""
    scale = SCALE.match(text, end)
    _, end = read_unit(text, scale.end() if scale else end)
    return text[:end].strip(), text[end:]
