r"""Find the boxes of a text, \boxed{7}, in linear time, and the answer that they hold."""

import re

from gar.verify.words import DOUBTS, NEVER, WORDS

MAX_ANSWER_CHARS = 2_000  # the longest of IMO-AnswerBench's 400 has under 200

# A box may be written \\boxed where a model escapes twice. `\\.` skips escaped braces such as \{.
_BRACES = re.compile(r"(?P<box>\\\\?(?:boxed|fbox) *\{)|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed *(?P<value>\\frac *(?:[0-9]{2}|\{[^{}]*\} *\{[^{}]*\})|-?[0-9A-Za-z.]+)")
JOINED = re.compile(
    r"[^.!?\n]{0,40}?(?:\b(?:or|and)\b)[^.!?\n]{0,40}|[\s$\\]*[,;][\s$\\]*(?:[a-z](?:_\{?\d\}?)?\s*=\s*)?"
)
_NAMED_AFTER = re.compile(
    r"[\s$).\]*]*(?:is|was)\s+(?:indeed\s+)?(?:the|our|my)\s+(?:(?:final|correct|right)\s+)*answer\b", re.IGNORECASE
)
_AFTER_BOX = re.compile(r"(?:\\[,;:! ]|[\s$}])*(?:\\(?:text|mathrm|mbox|textbf)\s*\{)?\s*(?P<words>[A-Za-z' ]*)")
_WORDS = re.compile("[A-Za-z' ]*")
_TOUCHING = NEVER - WORDS["beside_a_box"]

Box = tuple[int, int, int, int]
"""Where a box begins, its content begins and ends, and where the box ends."""


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete \boxed{} or \fbox{}, the innermost of nested ones. None without one.

    >>> last_boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}}, \boxed{unfinished")
    '\\frac{1}{2}'
    """
    boxes = boxes_in(text)
    return text[boxes[-1][1] : boxes[-1][2]].strip() if boxes else None


def boxes_in(text: str) -> list[Box]:
    r"""Where each complete \boxed{} begins, its content begins and ends, and it ends. Of nested ones the innermost."""
    open_braces: list[tuple[int, int] | None] = []  # where a box and its content begin. None: another brace
    boxes: list[Box] = []
    first = text.find("box")
    for match in _BRACES.finditer(text, max(0, first - 2)) if first >= 0 else ():
        if match["box"]:
            open_braces.append((match.start(), match.end()))
        elif match[0] == "{":
            open_braces.append(None)
        elif match[0] == "}" and open_braces:
            box = open_braces.pop()
            if box is not None and (not boxes or box[0] > boxes[-1][0]):
                boxes.append((*box, match.start(), match.end()))
    return boxes


def boxed_answer(text: str) -> tuple[str, int] | None:
    """The last box, a list of joined boxes, or the one that is named the answer, and where it ends."""
    boxes = boxes_in(text)
    if not boxes:
        bare = list(_BARE_BOX.finditer(text))
        return (bare[-1]["value"].strip(), bare[-1].end()) if bare else None
    for box in boxes:
        if _NAMED_AFTER.match(text, box[3]):
            return box_in_context(text, box), len(text)
    first = len(boxes) - 1
    while first and JOINED.fullmatch(text[boxes[first - 1][3] : boxes[first][0]]):
        first -= 1
    contents = [text[box[1] : box[2]].strip() for box in boxes[first:]]
    answer = ", ".join(dict.fromkeys(contents)) if len(contents) > 1 else box_in_context(text, boxes[-1])
    return (answer, boxes[-1][3]) if answer else None


def box_in_context(text: str, box: Box) -> str:
    """The content of a box, or its whole sentence if a word that touches the box denies or changes it."""
    before = text[max(0, box[0] - 80) : box[0]].rstrip(" \t\r\n}$*({[")
    backward = _WORDS.match(before[::-1])
    words_before = backward[0][::-1].lower().split()[-3:] if backward else []
    after = _AFTER_BOX.match(text, box[3])
    words_after = after["words"].lower().split()[:3] if after else []
    touching = {*words_before[-1:], *words_after[:1]}
    if not (DOUBTS & {*words_before, *words_after} or _TOUCHING & touching):
        return text[box[1] : box[2]].strip()
    start = max(text.rfind(mark, 0, box[0]) for mark in ("\n", ". ")) + 1
    end = min((place for mark in ("\n", ". ") if (place := text.find(mark, box[3])) >= 0), default=len(text))
    return text[start:end][-MAX_ANSWER_CHARS:].strip()
