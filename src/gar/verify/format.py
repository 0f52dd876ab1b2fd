"""Check the format of a response and find its final answer: two separate facts, both found in linear time.

The answer is read in one order, `ORDER`. The search leaves out the thinking part, so that a draft is never the answer.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from gar.types import ResponseFormat, Tags
from gar.verify.boxes import JOINED, MAX_ANSWER_CHARS, box_in_context, boxed_answer, boxes_in, last_boxed
from gar.verify.quantities import sentence_value, without_marks
from gar.verify.words import DATA, DOUBTS, NEVER, WORDS

DEFAULT_TAGS = Tags()
ORDER = (
    ("thinking", "Leave out the thinking part. If it never closes, there is no answer."),
    ("tag", "The last tagged answer: <answer>7</answer>, <SOLUTION>7</SOLUTION>. It is read on like a response."),
    ("box or announcement", r"The \boxed{} or the line that announces an answer (`Answer: 7`), whichever ends last."),
    (
        "last sentence",
        "The last sentence that is not polite: the last side of its equation, or its only value.",
    ),
)
"""How a response is read for its answer. The first step that finds one decides. A table of `docs/grading.md` too."""

_THINKING = list(DATA["thinking"].values())
_END_TOKEN = re.compile(r"\s*(?:<\|(?!/)[A-Za-z_0-9]{1,30}\|>|</s>|<eos>|<end_of_turn>|<[｜|]end▁of▁sentence[｜|]>)\Z")
_ANSWER_TAGS = [[rf"<{name}>", rf"</{name}>"] for name in DATA["answer"]["tags"]] + DATA["answer"]["pairs"]

_ADJECTIVES = r"(?:(?:the|my|our|final|correct|right|best|overall|numerical|answer)\s+)*"
_NOUN = r"(?:answers?|respuesta(?: final| correcta)?|antwort|réponse|risposta|resposta|ответ)"
_PHRASE = re.compile(
    # A line that begins with the name of an answer, in any heading, list or bold, and may hold nothing else.
    rf"(?:^(?:[^\w\n\\$(]|_)*(?:####(?!#)|{_ADJECTIVES}(?:{_NOUN}|(?:option|choice)(?= *\**[:=]))"
    r"[*_ ]*(?:\([^)\n]*\))?[*_ ]*"
    r"(?:[:=→⇒]|\bis\b:?|[*_ ]*$)|A:)"
    # The same within a sentence.
    rf"|\b{_NOUN}\b\**(?:,? (?:to|of|for|is given by) [^.:;!?\n]{{0,120}}?)??\** *"
    r"(?:(?:is|was|will be|would be|should be|must be|comes to|equals|es|ist|est|è|é)\b"
    r"(?: (?:option|choice)(?= *\**\(?[A-J]\b))?|[:=→])"
    r"|(?:答案|答え|정답)(?:应该|就)?(?:是|为|：|:|は|은|는)"
    r'|"(?:final_)?answer" *:)[*_:\s]*?(?=\S|$)',
    re.IGNORECASE | re.MULTILINE,
)
# What a phrase holds, in lower case: found faster than the phrase.
_ANSWER_NAME = re.compile(
    "answer|####|a:|option|choice|respuesta|antwort|réponse|risposta|resposta|ответ|答案|答え|정답"
)
_POLITE_START = r"(?i:[^\w\n]*(?:" + "|".join(map(re.escape, DATA["polite"]["starts"])) + r")\b)"
_POLITE = re.compile(_POLITE_START, re.IGNORECASE)
# Not after a single letter (`C. 12 km`), unless something polite follows.
_SENTENCE_END = re.compile(
    rf"(?<=[.!?])[*$)\"]*\s+(?={_POLITE_START})|(?<=[.!?])(?<!\b[A-Za-z]\.)(?<!\b[DMS][rst]\.)(?<!Mrs\.)(?<!\.\.)"
    r"[*$)\"]*\s+(?![a-z])|(?<=[。！])(?=.)",
)
_SENTENCE_MARK = re.compile(r"[.!?\n。！]")
_WORD = re.compile("[a-z]+(?:'[a-z]+)?")
_CLAUSE_END = re.compile(r"[.,:;!?\n]")
_CALCULATION = re.compile("<<[^<>]*>>")  # as GSM8K's solutions have them
_DISPLAY_END = re.compile(r"(?P<close>\$\$|\\\])[\s.]*\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedResponse:
    """A response's format and final answer.

    `answer` is None if there is none. `reason` is why a response is not well formatted, and empty if it is.

    Example: ParsedResponse(well_formatted=False, answer="7", reason="2 <think>, expected 1")
    """

    well_formatted: bool
    answer: str | None
    reason: str = ""


def parse_response(
    text: str, *, format: ResponseFormat = "think-answer", tags: Tags = DEFAULT_TAGS, prefilled_think: bool = False
) -> ParsedResponse:
    r"""Find out whether a response is well formatted, and its final answer.

    * think-answer: well formatted is exactly one thinking part, then exactly one answer part that is not empty, and
      nothing but white space outside. The answer is the last complete answer part, or the box within it.
    * boxed: well formatted is a complete \boxed{} that is not empty, outside the thinking part. It is the answer.
    * none: any text is well formatted, an empty one too. The answer is found by `ORDER`.

    Args:
        text: The response. Trailing special tokens do not matter.
        format: Which of the three.
        tags: The markers of the thinking part and the answer part.
        prefilled_think: The prompt ends in the opening thinking tag, so the response must not repeat it.

    Returns:
        Both facts. A badly formatted response may still have an answer, unless its thinking part was never closed.
    """
    text = text.rstrip()
    while text.endswith(">") and (token := _END_TOKEN.search(text, max(0, len(text) - 40))):
        text = text[: token.start()].rstrip()
    outside = _without_thinking(text, tags, starts_inside=prefilled_think)
    find_answer = {"think-answer": _think_answer, "boxed": _boxed_answer, "none": _free_answer}[format]
    answer = find_answer(outside, tags)
    reason = ""
    if format == "think-answer":
        reason = _think_answer_fault(text, tags, prefilled_think=prefilled_think)
    elif format == "boxed" and not answer:
        reason = r"no complete \boxed{} with an answer outside the thinking part"
    return ParsedResponse(well_formatted=not reason, answer=answer, reason=reason)


def answer_line(text: str) -> str:
    """The text after ####, A: or Answer: in the last line that starts with one of these. "" without such a line."""
    for line in reversed(text.splitlines()):
        match = _PHRASE.match(line)
        if match and (answer := line[match.end() :].strip(" *")):
            return answer
    return ""


def _think_answer_fault(text: str, tags: Tags, *, prefilled_think: bool) -> str:
    """Why `text` is not one thinking part and one answer part. Empty if it is."""
    opening = "" if prefilled_think else tags.think_open
    expected = {
        tags.think_open: int(not prefilled_think),
        tags.think_close: 1,
        tags.answer_open: 1,
        tags.answer_close: 1,
    }
    for tag, count in expected.items():
        if text.count(tag) != count:
            return f"{text.count(tag)} {tag}, expected {count}"
    start, middle, begin, end = map(re.escape, (opening, tags.think_close, tags.answer_open, tags.answer_close))
    parts = re.fullmatch(rf"{start}.*{middle}\s*{begin}(?P<answer>.*){end}", text.strip(), re.DOTALL)
    if parts is None:
        return "tags out of order, or text outside the thinking and the answer part"
    return "" if parts["answer"].strip() else "empty answer"


def _without_thinking(text: str, tags: Tags, *, starts_inside: bool) -> str:
    """The text outside the thinking parts. A closing marker alone ends a part that began with the text.

    Empty if the last thinking part never closes.
    """
    pieces, start = [], 0
    inside = 0 if starts_inside else -1  # the kind of the open part. The first is the user's
    for place, end, kind, closes in _markers(text, ((tags.think_open, tags.think_close), "thinking")):
        if closes and inside in (kind, -1):
            pieces = [] if inside < 0 else pieces
            inside, start = -1, end
        elif not closes and inside < 0:
            pieces.append(text[start:place])
            inside = kind
    return "" if inside >= 0 else "".join([*pieces, text[start:]])


def _markers(text: str, which: tuple[tuple[str, str], str]) -> Iterator[tuple[int, int, int, bool]]:
    """Each marker in a text: where it begins and ends, its kind (0 is the user's), and whether it closes a part."""
    lead, marker = _patterns(*which)
    for place in lead.finditer(text):
        if match := marker.match(text, place.start()):
            kind, closes = divmod((match.lastindex or 1) - 1, 2)
            yield match.start(), match.end(), kind, bool(closes)


@lru_cache(maxsize=32)
def _patterns(own: tuple[str, str], kind: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What a marker may begin with, which is found fast, and a pattern of all markers, two groups for each kind."""
    pairs = [list(map(re.escape, own)), *(_THINKING if kind == "thinking" else _ANSWER_TAGS)]
    marker = re.compile("|".join(f"({mark})" for pair in pairs for mark in pair), re.IGNORECASE)
    leads = ("<[|?/A-Za-z]", r"\[", "\u25c1", "analysis", "assistantfinal", *pairs[0])
    return re.compile("|".join(leads)), marker  # alternatives with literal beginnings: `re` skips the rest of a text


def _think_answer(text: str, tags: Tags) -> str | None:
    answer = _tagged(text, tags, every=False)
    return answer if answer is None else last_boxed(answer) or answer


def _boxed_answer(text: str, tags: Tags) -> str | None:
    box = boxed_answer(text)
    return box[0] if box else None


def _free_answer(text: str, tags: Tags) -> str | None:
    tagged = _tagged(text, tags, every=True)
    text = _CALCULATION.sub("", tagged or text)
    found = [answer for answer in (_announced(text), boxed_answer(text)) if answer]
    return max(found, key=lambda answer: answer[1])[0] if found else tagged or _last_sentence(text) or None


def _tagged(text: str, tags: Tags, *, every: bool) -> str | None:
    """What the last complete tagged answer holds, with the user's tags or `every` known ones. None for nothing."""
    opened: dict[int, int] = {}  # where the last part of each kind begins
    last = None
    for place, end, kind, closes in _markers(text, ((tags.answer_open, tags.answer_close), "answer")):
        if kind and not every:
            continue
        if not closes:
            opened[kind] = end
        elif kind in opened:
            last = text[opened.pop(kind) : place].strip()
    return last or None


def _announced(text: str) -> tuple[str, int] | None:
    """The answer in the last line or sentence that announces one, and where that ends."""
    for match in _phrases(text):
        start = match.end()
        while start < len(text) and text[start] in " \t\n*:_":
            start += 1
        stop = _end_of_announcement(text, start)
        answer = text[start:stop].strip().removesuffix(".")
        if answer.count("}") > answer.count("{"):  # of a JSON object
            answer = answer.rstrip('"} ')
        if not re.search(r"\w", answer):
            continue
        near = text[max(0, match.start() - 500) : match.start()].rpartition("\n")[2]
        sentence = _SENTENCE_MARK.split(near)[-1]
        words = _WORD.findall(_CLAUSE_END.split(sentence.lower())[-1])
        if DOUBTS & {*words} or NEVER & {*words[-2:]} or WORDS["conditions"] & {*_WORD.findall(sentence.lower())}:
            return f"{sentence}{text[match.start() : stop]}".strip()[-MAX_ANSWER_CHARS:], stop
        boxes = boxes_in(answer)
        if not boxes:
            return (boxed_answer(answer) or (answer,))[0], stop
        joined = len(boxes) > 1 and JOINED.fullmatch(answer[boxes[0][3] : boxes[1][0]])
        return (boxed_answer(answer) or (answer,))[0] if joined else box_in_context(answer, boxes[0]), stop
    return None


def _phrases(text: str) -> Iterator[re.Match[str]]:
    """The phrases that announce an answer, from the last to the first."""
    stop = len(text)
    while stop > 0:
        start = text.rfind("\n", 0, stop) + 1
        if _ANSWER_NAME.search(text[start:stop].lower()):
            yield from reversed(list(_PHRASE.finditer(text, start, stop)))
        stop = start - 1


def _end_of_announcement(text: str, start: int) -> int:
    for opening, closing in (("$$", "$$"), (r"\[", r"\]")):
        if text.startswith(opening, start):
            end = text.find(closing, start + 2)
            return len(text) if end < 0 else end + 2
    line = text.find("\n", start)
    line = len(text) if line < 0 else line
    stop = min(line, start + MAX_ANSWER_CHARS)
    mark = _SENTENCE_MARK.search(text, start, stop)
    sentence = mark and _SENTENCE_END.search(text, mark.end(), stop)
    return sentence.start() if sentence else line


def _last_sentence(text: str) -> str:
    """The value that the last sentence states. A last line or sentence that states none, as a whole."""
    text = text.strip()
    if end := _DISPLAY_END.search(text[-MAX_ANSWER_CHARS:]):
        opening = "$$" if end["close"] == "$$" else r"\["
        return text[: text.rindex(end["close"])].rpartition(opening)[2].strip()
    lines = text.splitlines()
    while lines and (_POLITE.match(lines[-1]) or not re.search(r"\w", lines[-1])):
        lines.pop()
    if not lines:
        return text
    line = lines[-1].strip()
    if len(line) > MAX_ANSWER_CHARS:
        return line
    sentences = _SENTENCE_END.split(line)
    while len(sentences) > 1 and _POLITE.match(sentences[-1]):
        sentences.pop()
    last = sentences[-1].strip()
    if not re.search("[A-Za-z]{2}", last):
        return last
    return (sentence_value(without_marks(last)) or last).replace(r"\$", "$").removesuffix(".")
