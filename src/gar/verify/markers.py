"""Find the markers of thinking and answer parts in a response: the user's, and known ones of other models."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

from gar.types import Tags
from gar.verify.words import DATA

_CHANNEL = r"<\|channel\|>\s*(?P<channel>final|analysis|commentary)\b(?:[^<]*<\|message\|>)?"  # of gpt-oss
_ANALYSIS = re.compile("analysis(?=[A-Z])")  # gpt-oss without its special tokens
_FINAL = "assistantfinal"


def outside_thinking(text: str, tags: Tags, *, starts_inside: bool) -> str:
    """The text outside the thinking parts. Empty if the last one never closes.

    A closing marker alone ends a part that began with the text.
    """
    if _FINAL in text:
        text = text.rpartition(_FINAL)[2]
    elif _ANALYSIS.match(text):
        return ""
    inside = tags.think_open.lower() if starts_inside else ""  # the kind of the open part
    outside, start = "", 0
    for match, kind, closes in _markers(text, "thinking", tags.think_open, tags.think_close):
        if closes and inside in (kind, ""):
            outside = outside if inside else ""
            inside, start = "", match.end()
        elif not closes and not inside:
            outside += text[start : match.start()]
            inside = kind
    return "" if inside else outside + text[start:]


def last_tagged(text: str, tags: Tags, *, known: bool) -> str | None:
    """What the last complete answer part holds: of the user's kind, or of any `known` one. None for nothing."""
    opened: dict[str, int] = {}  # where the last part of each kind begins
    last = None
    for match, kind, closes in _markers(text, "answer", tags.answer_open, tags.answer_close):
        if not known and kind != tags.answer_open.lower():
            continue
        if not closes:
            opened[kind] = match.end()
        elif kind in opened:
            last = text[opened.pop(kind) : match.start()].strip()
    return last or None


def _markers(text: str, part: str, own_open: str, own_close: str) -> Iterator[tuple[re.Match[str], str, bool]]:
    """The markers of a part in order, with their kind, which the opening marker names, and whether they close it."""
    known, pattern = _known_markers(part, own_open, own_close)
    for match in pattern.finditer(text):
        name = match[0].lower()
        if channel := match["channel"]:
            name = "<|channel|>final" if channel.lower() == "final" else "<|channel|>analysis"
        if name in known:  # IGNORECASE takes the long s for an s
            yield match, *known[name]


@lru_cache(maxsize=32)
def _known_markers(part: str, *own: str) -> tuple[dict[str, tuple[str, bool]], re.Pattern[str]]:
    """A part's markers by their text in lower case, and a pattern that finds them."""
    known: dict[str, tuple[str, bool]] = {}
    for opening, closing in (*DATA[part]["pairs"], own):
        kind = opening.lower()
        known |= {kind: (kind, False), closing.lower(): (kind, True)}
    # Grouped by the first character, which `re` then finds three times as fast.
    by_first = groupby(sorted(known, reverse=True), key=lambda text: text[:1])
    groups = [re.escape(first) + f"(?:{'|'.join(re.escape(text[1:]) for text in texts)})" for first, texts in by_first]
    return known, re.compile("|".join([_CHANNEL, *groups]), re.IGNORECASE)
