"""Find the value that a sentence states: `She has 78 apples left.`, `So 3 * 26 = 78 dollars.`

Only the words that touch the value are judged, but a condition or a doubt anywhere leaves it unread.
"""

import re

from gar.verify.quantities import (
    AFTER_VALUE,
    CONTENT,
    LEADING_NUMBER,
    SCALE,
    Quantity,
    Unread,
    read_quantity,
    unit_start,
    without_mark_at_end,
    words_in,
)
from gar.verify.words import DOUBTS, NEVER, NUMBER_WORDS, SCALES, WORDS, lower_words, read_unit

_CHANGES = (NEVER - WORDS["compares"]) | SCALES.keys() | {"point"}
_EQUALS = re.compile(r"(?<![<>!=\\])=(?!=)|\b(?:is|are) equal to\b|\bequals\b(?: to)?|\\Rightarrow|\u21d2")
_BREAK = re.compile(r"[;,](?! *[0-9]{3}(?![0-9]))|\b(?:and|so|or|but|then|because|while)\b", re.IGNORECASE)
# After a value: it is a part of an expression or of a range.
_GOES_ON = re.compile(r" *(?:[-+*^=_<>]|/(?! *[A-Za-z]))|[ )*$]*to (?:\\?[$\u20ac\u00a3])?[0-9]", re.IGNORECASE)
# The sentence goes on to change its value, or to state it anew.
_RESTATES = re.compile(
    r"\b(?:but|however)\b|, now\b|\bbefore *\.?\Z|\b(?:which|that) (?:is|are|was|rounds?|equals?|makes)\b[^.]*[0-9]"
)
# A premise whose conclusion holds no number.
_PREMISE = re.compile(r"\W*(?:since|because|although|though)\b[^,]*(?:,[^,0-9]*)?\Z", re.IGNORECASE)
_IF_EQUAL = re.compile(r"\A[^=]*\bif (?:(?!\bthen\b)[^,=])*=")  # the equation is the condition
_BEFORE_VALUE = re.compile(r"\A(?:[\s,;:!\"'*)\]]|\.(?![0-9]))*")
_DENIALS = DOUBTS | {"no", "non", "about", "at", "or", "minus", "over", "half"}
_SIGNED_NAME = re.compile(r"\s*(?:[-+0-9<>]|\\[a-z]+)+ *[A-Za-z]{1,4}(?:_\{[^{}]*\})?\s*")  # -AB, 2x
_VERB = re.compile(r"[a-z]{2,}(?:ed|[^siu]s)")
_FEWER = re.compile(r"[ *$)]*(?:[a-z]+ )?(?:fewer|less)\b")  # a noun may be between
_TOUCHING = re.compile(r"[ )*$]*(?P<joined>and (?:an? )?)?(?P<word>[a-z]*)")
_REASON = re.compile(r"(?<=[0-9}$)])(?: [a-z]+)?,? (?:since|because)\b *[^ .].*", re.DOTALL)


def read_answer(text: str, nouns: frozenset[str], *, letters: bool, sentences: bool) -> Quantity:
    """The value and unit of an answer, which may be a sentence. `Unread` if it does not state one value."""
    text = _REASON.sub("", text)
    try:
        return read_quantity(text, nouns, letters=letters)
    except Unread as error:
        stated = sentence_value(text) if sentences else None
        if stated is None:
            raise error
        return read_quantity(stated, nouns, letters=letters)


def sentence_value(text: str) -> str | None:
    """The value of a sentence with the unit that touches it. None if it states none, several, or leaves it open.

    The last side of its equation, if it has one chain of equations. Else its only value.
    """
    text = without_mark_at_end(text.partition(r"\approx")[0].rstrip(), spoken=True)  # the exact value is before it
    words = lower_words(text)
    chain = _EQUALS.search(text) is not None
    leave_open = WORDS["guesses"] if chain else DOUBTS
    if "?" in text or ".." in text or not leave_open.isdisjoint(words) or _IF_EQUAL.match(text):
        return None
    if chain:
        return _chain_value(text)
    if _PREMISE.match(text):
        return None
    span = value_span(text)
    if span is None or not (NUMBER_WORDS.keys() - {"one"}).isdisjoint(words):
        return None
    start, end = span
    before, value, after = text[:start], text[start:end], text[end:]
    if re.search(r"[0-9] *[*×+] *[0-9]", value) or _FEWER.match(after):  # arithmetic without its result
        return None
    opening = lower_words(before)
    opens = before.endswith(", ") and opening and opening[0] in WORDS["opens"] and NEVER.isdisjoint(opening)
    verb = re.match(r"[^.;]*\b(?:is|are|was|were|remain)\b *(?P<next>[a-z]*)", after)
    if not (_is_stated(before) or ((not before or opens) and verb and verb["next"] not in NEVER)):
        return None
    alone = _with_touching(value, after)
    return None if alone is None or value_span(text[start + len(alone) :]) else alone


def value_span(text: str, *, letters: bool = False, spaced: bool = False) -> tuple[int, int] | None:
    """Where the first number or formula of a text begins, and where it ends: at a word or a unit. `3 or 7` is one.

    Args:
        text: As `read_quantity` takes it.
        letters: Single letters are no units.
        spaced: A unit of one letter has a space before it: `3m` is a product.
    """
    words = [(*match.span(), match[0].lower()) for match in words_in(text, letters=letters)]
    if letters and not words:
        return 0, len(text)
    left, right, start = None, 0, 0
    for begin, stop, word in [*words, (len(text), len(text), "")]:
        holds = CONTENT.search(text, start, begin)
        if holds:
            left, right = (start if left is None else left), begin
        if left is not None and not (holds and word in ("or", "and")):
            break
        start = stop
    if left is None:
        return None
    value = _BEFORE_VALUE.sub("", text[left:right])
    left, value = right - len(value), value.rstrip(AFTER_VALUE)
    value = value if value.endswith("..") else value.removesuffix(".").removesuffix(" -").rstrip(AFTER_VALUE)
    return left, left + (len(value) if letters else unit_start(value, spaced=spaced))


def _is_stated(before: str) -> bool:
    """Whether the words before a value state it."""
    before = re.sub(r"\badds? up to\b|\bout of\b", "equals", before.rstrip(" ("))
    words = lower_words(before)
    if before.endswith((":", "=")):
        return NEVER.isdisjoint(words)
    while len(words) > 1 and words[-1] in WORDS["adverbs"]:
        words.pop()
    subject = words and (" " in before or words[-1] in ("is", "are"))
    if not subject or not before[-1].isalpha() or words[0] in WORDS["multiplies"] or words[-1] in SCALES:
        return False
    passive = len(words) > 1 and words[-2] in WORDS["be"]
    if words[-1] not in WORDS["states"] | WORDS["transparent"] and (passive or not _VERB.fullmatch(words[-1])):
        return False
    while len(words) > 1 and words[-1] in WORDS["transparent"]:
        words.pop()
    return words[-1] not in NEVER


def _chain_value(text: str) -> str | None:
    """The last side of the one chain of equations in a sentence. A second chain must use the first one's result."""
    parts = _EQUALS.split(text)
    words = [] if "," in parts[0] else lower_words(re.sub(r"\\[a-z]+", " ", parts[0]))
    denied = words and words[0] in _DENIALS and len(words) <= 4  # not x = 5
    if denied or _SIGNED_NAME.fullmatch(parts[0]):
        return None
    for part in parts[1:-1]:
        if not (broken := _BREAK.search(part)):
            continue
        result = LEADING_NUMBER.match(part.strip())
        after = LEADING_NUMBER.findall(part, broken.start())
        if result is None or _digits(result[0]) not in map(_digits, after):
            return None
    last = parts[-1].strip()
    span = value_span(last)
    if span is None or span[0] > 1:
        return None
    return _with_touching(last[: span[1]], last[span[1] :])


def _digits(number: str) -> str:
    return re.sub(r"[^0-9.]", "", number)


def _with_touching(value: str, after: str) -> str | None:
    """A value and the unit after it. None if a word that touches them may change the value."""
    scale = SCALE.match(after)
    _, end = read_unit(after, scale.end() if scale else 0)
    touching = _TOUCHING.match(after.lower(), end)
    changes = touching and (touching["word"] in _CHANGES or (touching["joined"] and touching["word"] in NUMBER_WORDS))
    if changes or _GOES_ON.match(after, end) or _RESTATES.search(after, end):
        return None
    return f"{value}{after[:end]}".strip()
