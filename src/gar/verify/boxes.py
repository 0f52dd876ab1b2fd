r"""Find the boxes of a text, \boxed{7}, in linear time, and the answer that they hold."""

import re

from gar.verify.latex import any_of, rewrites
from gar.verify.words import DATA, is_changed, is_open

MAX_ANSWER_CHARS = 2_000  # the longest of IMO-AnswerBench's 400 has under 200
_CONTEXT_CHARS = 120  # around a box

# A box may be written \\boxed where a model escapes twice. `\\.` skips escaped braces such as \{.
_BRACES = re.compile(r"(?P<box>\\\\?(?:boxed|fbox) *\{)|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed *(?P<value>\\frac *(?:[0-9]{2}|\{[^{}]*\} *\{[^{}]*\})|-?[0-9A-Za-z.]+)")
# Between two boxes of one list.
_JOINED = re.compile(
    r"(?![^\n]*\b(?:so|thus|hence|then|therefore)\b)[^.!?\n]{0,40}\b(?:or|and)\b[^.!?\n]{0,40}"
    r"|[\s$\\]*[,;][^\w!?.]*(?:\w{1,3} *= *)?[\s$]*"
)
_TAKEN_BACK = re.compile(
    rf"\W{{0,40}}(?:{'|'.join(map(re.escape, DATA['taken_back']['starts']))})(?!\w)", re.IGNORECASE
)
_AROUND = rewrites("around_a_box")
_BEFORE = re.compile(any_of("before_a_box") + DATA["notations"]["opening"] + r"\Z", re.MULTILINE)
_AFTER = re.compile(DATA["notations"]["closing"] + any_of("after_a_box"))
_PERCENT = re.compile(r"[\s$)}]*\\?%")
SENTENCE_MARK = re.compile(r"[.!?](?![0-9\\=])|[\n。！]")

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
    """The contents of all boxes, in order. Joined ones are one."""
    return [_contents(text, boxes) for boxes in _box_lists(text)]


def boxed_answer(text: str) -> tuple[str, int] | None:
    """The answer in the last box, and where it ends. The box's whole sentence if what touches the box changes it."""
    lists = _box_lists(text)
    if not lists:
        return None
    boxes = lists[-1]
    answer = _contents(text, boxes) if len(boxes) > 1 else _in_context(text, boxes[0])
    return (answer, boxes[-1][3]) if answer else None


def is_taken_back(text: str, start: int) -> bool:
    """Whether the text at `start` takes back what is before it: `Wait, that is wrong`."""
    return _TAKEN_BACK.match(text, start) is not None


def _box_lists(text: str) -> list[list[Box]]:
    r"""The complete boxes, of nested ones the innermost. Joined ones are one list. Without any, the last `\boxed 2`."""
    lists: list[list[Box]] = []
    for box in _boxes(text):
        if lists and _JOINED.fullmatch(text, lists[-1][-1][3], box[0]):
            lists[-1].append(box)
        else:
            lists.append([box])
    bare = [] if lists or "boxed" not in text else list(_BARE_BOX.finditer(text))
    return [[(match.start(), *match.span("value"), match.end())] for match in bare[-1:]] or lists


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
    """The content of a box, or its sentence if the box is a part of a formula, or if words beside it change it."""
    before, after = text[max(0, box[0] - _CONTEXT_CHARS) : box[0]], text[box[3] : box[3] + _CONTEXT_CHARS]
    follows = _AFTER.match(_without_layout(after))
    changed = follows is None or is_changed(follows["words"] or "")
    if not (changed or is_open(before)) and _BEFORE.search(_without_layout(before)):
        percent = r"\%" if _PERCENT.match(after) else ""
        return text[box[1] : box[2]].strip() + percent
    mark = SENTENCE_MARK.search(after)
    first, last = SENTENCE_MARK.split(before)[-1], after[: mark.end()] if mark else after
    if not re.search(r"[^\s$.\\()\[\]]", first + last):  # 0.\boxed{7}
        first, last = before, after
    return f"{first}{text[box[0] : box[3]]}{last}".strip()


def _without_layout(text: str) -> str:
    """What is beside a box, with `$` for each end of a formula, and without spaces of LaTeX, fonts and bold."""
    for pattern, spelling in _AROUND:
        text = pattern.sub(spelling, text)
    return text
