"""Find the markers of thinking and answer parts in a response: the user's, and known ones of other models."""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from gar.types import Tags
from gar.verify.words import DATA

_CHANNEL = r"<\|channel\|>\s*(?P<channel>final|analysis|commentary)\b(?:[^<]*<\|message\|>)?"  # of gpt-oss
_ANALYSIS = re.compile("analysis(?=[A-Z])")  # gpt-oss without its special tokens
_FINAL = "assistantfinal"


@dataclass(frozen=True, slots=True)
class _Marker:
    """A marker opens or closes a part of a kind, which is named by its opening marker."""

    kind: str
    thinking: bool
    closes: bool


Places = list[tuple[int, int, _Marker]]
"""Where markers begin and end in a text."""


def outside_thinking(text: str, tags: Tags, *, starts_inside: bool) -> tuple[str, Places]:
    """The text outside the thinking parts, and the markers of answer parts in it.

    A closing marker alone ends a part that began with the text. Empty if the last thinking part never closes.
    """
    if _FINAL in text:
        text = text.rpartition(_FINAL)[2]
    elif _ANALYSIS.match(text):
        return "", []
    markers = _markers(text, tags)
    if not (markers or starts_inside):
        return text, []
    inside = tags.think_open.lower() if starts_inside else ""  # the kind of the open part
    outside, start, answers = "", 0, []
    for place, end, marker in markers:
        if not marker.thinking:
            if not inside:
                shift = len(outside) - start
                answers.append((place + shift, end + shift, marker))
        elif marker.closes and inside in (marker.kind, ""):
            if not inside:
                outside, answers = "", []
            inside, start = "", end
        elif not marker.closes and not inside:
            outside += text[start:place]
            inside = marker.kind
    return ("", []) if inside else (outside + text[start:], answers)


def last_tagged(text: str, places: Places, only: str = "") -> str | None:
    """What the last complete answer part holds, of any kind or of `only` one. None for nothing."""
    opened: dict[str, int] = {}  # where the last part of each kind begins
    last = None
    for place, end, marker in places:
        if only and marker.kind != only:
            continue
        if not marker.closes:
            opened[marker.kind] = end
        elif marker.kind in opened:
            last = text[opened.pop(marker.kind) : place].strip()
    return last or None


def _markers(text: str, tags: Tags) -> Places:
    known, pattern = _known_markers(tags)
    found: Places = []
    for match in pattern.finditer(text):
        name = match[0].lower()
        if channel := match["channel"]:
            name = "<|channel|>final" if channel.lower() == "final" else "<|channel|>analysis"
        if name in known:  # IGNORECASE takes the long s for an s
            found.append((*match.span(), known[name]))
    return found


@lru_cache(maxsize=32)
def _known_markers(tags: Tags) -> tuple[dict[str, _Marker], re.Pattern[str]]:
    """All markers by their text in lower case, and a pattern that finds them."""
    own = {"thinking": (tags.think_open, tags.think_close), "answer": (tags.answer_open, tags.answer_close)}
    known = {
        text.lower(): _Marker(pair[0].lower(), part == "thinking", closes)
        for part, its_own in own.items()
        for pair in (*DATA[part]["pairs"], its_own)
        for text, closes in zip(pair, (False, True), strict=True)
    }
    # Grouped by the first character, which `re` then finds three times as fast.
    by_first = groupby(sorted(known, reverse=True), key=lambda text: text[:1])
    groups = [re.escape(first) + f"(?:{'|'.join(re.escape(text[1:]) for text in texts)})" for first, texts in by_first]
    return known, re.compile("|".join([_CHANNEL, *groups]), re.IGNORECASE)
