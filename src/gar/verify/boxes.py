r"""Find the boxes of a text, \boxed{7}, in linear time, and the answer that they hold."""

import re

from gar.verify.words import DATA, DOUBTS, NEVER, WORDS, lower_words

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
_NAMED_BEFORE = re.compile(
    r"(?P<before>.*)\banswers?\b[^.!?\n]{0,80}?(?:\b(?:is|are)\b|[:=])[\s$(\[*\\]*\Z", re.IGNORECASE | re.DOTALL
)
_TAKEN_BACK = re.compile(
    rf"\W{{0,40}}(?:{'|'.join(map(re.escape, DATA['taken_back']['starts']))})(?!\w)", re.IGNORECASE
)
# The words that touch a box, across marks of formulas.
_WORDS_BEFORE = re.compile(r"[A-Za-z' ]*[^\w.,;:!?]*\Z")
_WORDS_AFTER = re.compile(r"(?:\\(?:text|mathrm|mbox|textbf)\s*\{|\\[^A-Za-z]|[\s$}*])*[A-Za-z' ]*")
# Signs that touch a box and change its value or make it a part of a formula.
_SIGN_BEFORE = re.compile(
    r"(?:[-+*/^_<>~≠≈]|\\(?:n(?:e|eq|ot(?:in)?)|[lg](?:e|eq|t)(?:q|slant)?|approx|sim|pm|mp|cdot|times|div)(?![A-Za-z])"
    r"|(?<=[ $])(?:or|nor|and))[\s$({\[]*\Z|[0-9]\Z"
)
_BULLET = re.compile(r"(?:\A|\n)[ \t]*(?:[-*+>]|---+) +(?:\$+|\\[(\[]|\*\*)\s*\Z")
_SIGN_AFTER = re.compile(
    r"[\s$)}\]]*(?:[*/^_+!]|\\(?:ne|neq|cdot|times|div|pm|frac|sqrt)(?![A-Za-z])|- ?[0-9]|or\b|[0-9])"
)
SENTENCE_MARK = re.compile("[.!?\\n。！]")
_CLAUSE_END = re.compile("[.,:;!?\n]")
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
    contents = boxed_contents(text)
    return contents[-1] if contents else ""


def boxed_contents(text: str) -> list[str]:
    """The contents of all boxes, as `last_boxed` has that of the last."""
    return [_contents(text, boxes) for boxes in box_lists(text)]


def box_lists(text: str) -> list[list[Box]]:
    r"""The complete boxes, of nested ones the innermost. Joined ones are one list. Without any, the last `\boxed 2`."""
    lists: list[list[Box]] = []
    for box in _boxes(text):
        if lists and _JOINED.fullmatch(text, lists[-1][-1][3], box[0]):
            lists[-1].append(box)
        else:
            lists.append([box])
    bare = [] if lists or "boxed" not in text else list(_BARE_BOX.finditer(text))
    return [[(match.start(), *match.span("value"), match.end())] for match in bare[-1:]] or lists


def boxed_answer(text: str, lists: list[list[Box]]) -> tuple[str, int] | None:
    """The answer in the last of the boxes, or in the last that are named the answer, and where it ends."""
    if not lists:
        return None
    named = [boxes for boxes in lists if _is_named(text, boxes)]
    boxes = named[-1] if named and not _is_taken_back_later(text, named[-1][-1][3]) else lists[-1]
    answer = _contents(text, boxes) if len(boxes) > 1 else _in_context(text, boxes[0])
    return (answer, boxes[-1][3]) if answer else None


def is_taken_back(text: str, start: int) -> bool:
    """Whether the text from a place on begins by taking back what is before it: `Wait, that is wrong`."""
    return _TAKEN_BACK.match(text, start) is not None


def _is_taken_back_later(text: str, start: int) -> bool:
    return any(is_taken_back(text, mark.end()) for mark in SENTENCE_MARK.finditer(text, start))


def _is_named(text: str, boxes: list[Box]) -> bool:
    """Whether the words before or after a box name it the answer."""
    begin, end = boxes[0][0], boxes[-1][3]
    phrase = _NAMED_BEFORE.match(text[max(0, begin - 160) : begin])
    asked = text[end : end + 5].lstrip("$ )*").startswith("?")
    return bool(_NAMED_AFTER.match(text, end) or (phrase and not asked and not is_open(phrase["before"])))


def is_open(before: str) -> bool:
    """Whether the sentence before an answer denies it, or leaves it open."""
    sentence = SENTENCE_MARK.split(before)[-1]
    clause = lower_words(_CLAUSE_END.split(sentence)[-1])
    conditions = WORDS["conditions"].intersection(lower_words(sentence))
    return bool(conditions or DOUBTS.intersection(clause) or NEVER.intersection(clause[-2:]))


def _boxes(text: str) -> list[Box]:
    open_braces: list[tuple[int, int] | None] = []  # where a box and its content begin. None: another brace
    boxes: list[Box] = []
    for match in _BRACES.finditer(text, max(0, text.find("box") - 2)):
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
    before, after = text[max(0, box[0] - 80) : box[0]], text[box[3] : box[3] + 80]
    words_before, words_after = (
        lower_words(match[0]) if match else [] for match in (_WORDS_BEFORE.search(before), _WORDS_AFTER.match(after))
    )
    doubts = (DOUBTS | {"no"}).intersection(words_before[-3:] + words_after[:3])
    changes = _TOUCHING.intersection(words_before[-1:] + words_after[:1])
    announces, phrase, _ = before.lower().rpartition("answer")
    signs = _SIGN_BEFORE.search(_BULLET.sub("", before)) or _SIGN_AFTER.match(after)
    if doubts or changes or signs or (phrase and is_open(announces)):
        return f"{SENTENCE_MARK.split(before)[-1]}{text[box[0] : box[3]]}{SENTENCE_MARK.split(after)[0]}".strip()
    return text[box[1] : box[2]].strip()
