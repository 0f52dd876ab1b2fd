r"""Find the boxes of a text, \boxed{7}, in linear time, and the answer that they hold."""

import re

from gar.verify.words import DOUBTS, NEVER, WORDS, lower_words

MAX_ANSWER_CHARS = 2_000  # the longest of IMO-AnswerBench's 400 has under 200

# A box may be written \\boxed where a model escapes twice. `\\.` skips escaped braces such as \{.
_BRACES = re.compile(r"(?P<box>\\\\?(?:boxed|fbox) *\{)|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed *(?P<value>\\frac *(?:[0-9]{2}|\{[^{}]*\} *\{[^{}]*\})|-?[0-9A-Za-z.]+)")
# Between two boxes of one list.
_JOINED = re.compile(
    r"(?![^\n]*\b(?:so|thus|hence|then|therefore)\b)[^.!?\n]{0,40}\b(?:or|and)\b[^.!?\n]{0,40}"
    r"|[\s$\\]*[,;][^\w!?.]*(?:\w{1,3} *= *)?[\s$]*"
)
_NAMED_AFTER = re.compile(
    r"[\s$).\]]*(?:is|was)\s+(?:indeed\s+)?(?:the|our|my)\s+(?:(?:final|correct|right)\s+)*answer\b", re.IGNORECASE
)
_AFTER_BOX = re.compile(r"(?:\\[,;:! ]|[\s$}])*(?:\\(?:text|mathrm|mbox|textbf)\s*\{)?\s*(?P<words>[A-Za-z' ]*)")
_WORDS = re.compile("[A-Za-z' ]*")
SENTENCE_MARK = re.compile("[.!?\\n。！]")
_COPULA = re.compile(r" (?:is|es|ist|est|lautet)\Z")
_CLAUSE_END = re.compile("[.,:;!?\n]")
_OPEN = DOUBTS | NEVER | WORDS["conditions"]
_TOUCHING = NEVER - WORDS["beside_a_box"]

Box = tuple[int, int, int, int]
"""Where a box begins, its content begins and ends, and where the box ends."""


def last_boxed(text: str) -> str:
    r"""The content of the last complete \boxed{} or \fbox{}, the innermost of nested ones. "" without one.

    Boxes that a comma, "or" or "and" joins are one list.

    >>> last_boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}}, \boxed{unfinished")
    '\\frac{1}{2}'
    >>> last_boxed(r"So $x=\boxed{3}$ or $x=\boxed{-5}$.")
    '3, -5'
    """
    lists = box_lists(text)
    return _contents(text, lists[-1]) if lists else ""


def box_lists(text: str) -> list[list[Box]]:
    """The complete boxes of a text, of nested ones the innermost. Joined ones are one list."""
    lists: list[list[Box]] = []
    for box in _boxes(text):
        if lists and _JOINED.fullmatch(text, lists[-1][-1][3], box[0]):
            lists[-1].append(box)
        else:
            lists.append([box])
    return lists


def boxed_answer(text: str, lists: list[list[Box]], *, first: bool = False) -> tuple[str, int] | None:
    """The answer in the last (or `first`) of the boxes, or the one that is named the answer, and where it ends."""
    if not lists:
        bare = list(_BARE_BOX.finditer(text)) if "boxed" in text else []
        return (bare[-1]["value"].strip(), bare[-1].end()) if bare else None
    boxes, stop = lists[0 if first else -1], 0
    for others in lists if len(lists) > 1 else ():
        if not stop and _NAMED_AFTER.match(text, others[-1][3]):
            boxes, stop = others, len(text)
    answer = _contents(text, boxes) if len(boxes) > 1 else _in_context(text, boxes[0])
    return (answer, stop or boxes[-1][3]) if answer else None


def is_open(before: str) -> bool:
    """Whether the sentence before an answer denies it, or leaves it open."""
    sentence = SENTENCE_MARK.split(before)[-1]
    words = lower_words(sentence)
    if _OPEN.isdisjoint(words):
        return False
    clause = lower_words(_CLAUSE_END.split(sentence)[-1])
    return not (DOUBTS.isdisjoint(clause) and NEVER.isdisjoint(clause[-2:]) and WORDS["conditions"].isdisjoint(words))


def _boxes(text: str) -> list[Box]:
    open_braces: list[tuple[int, int] | None] = []  # where a box and its content begin. None: another brace
    boxes: list[Box] = []
    first = text.find("box")
    if first < 0:
        return []
    for match in _BRACES.finditer(text, max(0, first - 2)):
        char = match[0]
        if char == "}" and open_braces:
            box = open_braces.pop()
            if box is not None and (not boxes or box[0] > boxes[-1][0]):
                boxes.append((*box, match.start(), match.end()))
        elif match.lastgroup:
            open_braces.append(match.span())
        elif char == "{":
            open_braces.append(None)
    return boxes


def _contents(text: str, boxes: list[Box]) -> str:
    return ", ".join(dict.fromkeys(text[begin:end].strip() for _, begin, end, _ in boxes))


def _in_context(text: str, box: Box) -> str:
    """The content of a box, or its whole sentence if a word that touches the box denies or changes it."""
    content = text[box[1] : box[2]].strip()
    before = text[max(0, box[0] - 80) : box[0]].rstrip(" \t\r\n}$*({[").rpartition("\n")[2].lower()
    if _OPEN.isdisjoint(lower_words(f"{before} {text[box[3] : box[3] + 40]}")):
        return content
    reversed_words, after = _WORDS.match(_COPULA.sub("", before)[::-1]), _AFTER_BOX.match(text, box[3])
    words_before = reversed_words[0][::-1].split()[-3:] if reversed_words else []
    words_after = after["words"].lower().split()[:3] if after else []
    announces, phrase, _ = before.rpartition("answer")
    near = (DOUBTS & {*words_before, *words_after}) | (_TOUCHING & {*words_before[-1:], *words_after[:1]})
    if not near and not (phrase and is_open(announces)):
        return content
    start = max(text.rfind(mark, 0, box[0]) for mark in ("\n", ". ")) + 1
    end = min((place for mark in ("\n", ". ") if (place := text.find(mark, box[3])) >= 0), default=len(text))
    return text[start:end][-MAX_ANSWER_CHARS:].strip()
