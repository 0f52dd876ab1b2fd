"""Find the value that a sentence states: `She has 78 apples left.`, `So 3 * 26 = 78 dollars.`

It is the last side of an equation, or the only number, after a verb that states it. Words after it may not change it.
"""

import re

from gar.verify.quantities import (
    CONTENT,
    SCALE,
    Quantity,
    Unread,
    read_quantity,
    unit_start,
    without_mark_at_end,
    without_marks_after,
    words_in,
)
from gar.verify.words import DOUBTS, NEVER, NUMBER_WORDS, SCALES, WORDS, lower_words, read_unit

_EQUALS = re.compile(r"(?<![<>!=\\])=(?!=)|\b(?:is|are) equal to\b|\bequals\b(?: to)?|\\Rightarrow|\u21d2")
_BREAK = re.compile(r"[;,](?! *[0-9]{3}(?![0-9]))|\b(?:and|so|or|but|then|because|while)\b", re.IGNORECASE)
_REASON = re.compile(r"(?<=[0-9}$)])(?: [a-z]+)?,? \(?(?:since|because)\b *[^ .].*", re.DOTALL)
# A premise whose conclusion follows the value.
_PREMISE = re.compile(r"\W*(?:since|because|although|though|if|when)\b[^,]*\Z", re.IGNORECASE)
_BEFORE_VALUE = re.compile(r"\A(?:[\s,;:!\"'*)\]]|\.(?![0-9]))*")
_VERB = re.compile(r"[a-z]{2,}(?:ed|[^siu]s)")
_CHANGES = NEVER | SCALES.keys() | {"point"}
_GOES_BACK = re.compile(
    r"\b(?:but|however)\b|, (?:now|then)\b|\bbefore *\.?\Z"
    r"|\b(?:which|that) (?:is|are|was|rounds?|equals?|makes)\b[^.]*[0-9]"
)


def read_answer(text: str, nouns: frozenset[str], *, letters: bool, sentences: bool, compares: bool) -> Quantity:
    """The value and unit of an answer, which may be a sentence. `Unread` if it does not state one value.

    `compares`: the problem asks for a comparison, so that `78 more than Tim` may be read.
    """
    text = _REASON.sub("", text)
    try:
        return read_quantity(text, nouns, letters=letters)
    except Unread as error:
        stated = sentence_value(text, compares=compares) if sentences else None
        if stated is None:
            raise error
        return read_quantity(stated, nouns, letters=letters)


def sentence_value(text: str, *, compares: bool = False) -> str | None:
    """The value of a sentence with the unit that touches it. None if it states none, several, or leaves it open."""
    text = without_mark_at_end(text.partition(r"\approx")[0].rstrip(), spoken=True)  # the exact value is before it
    if "?" in text or ".." in text:
        return None
    return _chain_value(*_EQUALS.split(text)) if _EQUALS.search(text) else _only_value(text, compares)


def _chain_value(first: str, *sides: str) -> str | None:
    """The last side of the one chain of equations in a sentence. None if there is a second chain."""
    words = [word for word in lower_words(re.sub(r"\\[a-z]+", " ", first)) if len(word) > 1]
    if WORDS["guesses"].intersection(words) or (DOUBTS | {"no"}).intersection(words[-1:]):
        return None
    if any(map(_BREAK.search, sides[:-1])):
        return None
    last = sides[-1].strip()
    span = value_span(last)
    if span is None or span[0] > 1:
        return None
    return _with_unit(last[: span[1]], last[span[1] :], _CHANGES - WORDS["compares"])


def _only_value(text: str, compares: bool) -> str | None:
    """The only number of a sentence, where a verb before it states it."""
    words, span = set(lower_words(text)) - ({"than"} if compares else set()), value_span(text)
    if span is None or not (DOUBTS | {"no"} | NUMBER_WORDS.keys() - {"one"}).isdisjoint(words):
        return None
    before, value, after = text[: span[0]], text[slice(*span)], text[span[1] :]
    if _PREMISE.match(before) or re.search(r"[0-9] *[*×+] *[0-9]", value) or not _is_stated(before):
        return None
    alone = _with_unit(value, after, _CHANGES - {"more"})
    return None if alone is None or value_span(text[span[0] + len(alone) :]) else alone


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
    words = lower_words(before)
    if before.endswith((":", "=")):
        return NEVER.isdisjoint(words)
    if len(words) < 2 or not before[-1].isalpha():
        return False
    while words and words[-1] in WORDS["transparent"] - WORDS["states"]:
        words.pop()
    stated = words and (words[-1] in WORDS["states"] or _VERB.fullmatch(words[-1]))
    touching = next((word for word in reversed(words) if word not in WORDS["transparent"]), "no")
    return bool(stated) and NEVER.isdisjoint((words[0], touching)) and touching not in SCALES


def _with_unit(value: str, after: str, changes: frozenset[str]) -> str | None:
    """A value and the unit after it. None if what follows takes it back, or begins with a word that changes it."""
    scale = SCALE.match(after)
    _, end = read_unit(after, scale.end() if scale else 0)
    words = lower_words(after[end:])
    if changes.intersection(words[:1]) or _GOES_BACK.search(after, end):
        return None
    return f"{value}{after[:end]}".strip()
