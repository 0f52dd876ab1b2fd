r"""Check the format of a response and find its final answer: two separate facts, both found in linear time.

With the format none a response is read in this order. The first step that finds an answer decides.

1. Thinking: left out, so that a draft is never the answer. If it never closes, there is no answer.
2. Tag: the last tagged answer, <answer>7</answer> or <SOLUTION>7</SOLUTION>. It is read on like a response.
3. Box or announcement: the \boxed{} or the line that announces an answer (`Answer: 7`), whichever ends last. If the
   next words take it back (`Wait, that is wrong`), the rest is read by step 4.
4. Last sentence: the last one that is not polite: the last side of its equation, or its only value.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gar.types import ResponseFormat, Tags
from gar.verify.boxes import MAX_ANSWER_CHARS, SENTENCE_MARK, boxed_answer, is_taken_back
from gar.verify.markers import last_tagged, outside_thinking
from gar.verify.quantities import without_mark_at_end, without_marks
from gar.verify.sentences import sentence_value
from gar.verify.words import DATA, is_open

DEFAULT_TAGS = Tags()
_MARKERS = {marker for part in ("thinking", "answer") for pair in DATA[part]["pairs"] for marker in pair}
_END_TOKEN = re.compile(
    r"\s*(?P<name><\|(?!/)[A-Za-z_0-9]{1,30}\|>|</s>|<eos>|<end_of_turn>|<[｜|]end▁of▁sentence[｜|]>)\Z"
)
_ADJECTIVES = r"(?:(?:the|my|our|final|correct|right|best|overall|numerical|answer)\s+)*"
_NOUN = r"(?:answers?|respuesta(?: final| correcta)?|antwort|réponse|risposta|resposta|ответ)"
# A line that begins with the name of an answer, in any heading, list or bold, and may hold nothing else.
_LINE = re.compile(
    rf"^(?:#{{4}}(?!#)|#{{2,3}}(?= *-?\$?[0-9][0-9,.]*\s*\Z)"
    rf"|(?:[^\w\n\\$(]|_)*(?:A:|{_ADJECTIVES}(?:{_NOUN}|(?:option|choice)(?= *\**[:=]))"
    r"[*_ ]*(?:\([^)\n]*\))?[*_ ]*(?:[:=→⇒|]|\bis\b:?|[*_ ]*$)))",
    re.IGNORECASE | re.MULTILINE,
)
# The same within a sentence, from the name on. "12 answers = 48 points" and "2 points/answer = 48 points" are none.
_IN_SENTENCE = re.compile(
    rf"(?<![/0-9])(?<!per )(?!answers *=)\b{_NOUN}\b\**(?:,? (?:to|of|for|is given by) [^.:;!?\n]{{0,120}}?)??\** *"
    r"(?:(?:is|was|will be|would be|should be|must be|comes to|equals|es|ist|lautet|est|è|é)\b"
    r"(?: (?:option|choice)(?= *\**\(?[A-J]\b))?|[:=→])"
    r"|(?:答案|答え|정답)(?:应该|就)?(?:是|为|选|：|:|は|은|는)|故选[:：]?"
    r"""|["'](?:final_)?answer["'] *:|####(?!#)""",
    re.IGNORECASE,
)
_JSON_VALUE = re.compile(r"""(?P<quote>["'])(?P<text>.*?)(?<!\\)(?P=quote)|(?P<bare>\[[^]]*\]|[^,}\n]*)""")
_POLITE_START = r"(?i:[^\w\n]*(?:" + "|".join(map(re.escape, DATA["polite"]["starts"])) + r")\b)"
_POLITE = re.compile(_POLITE_START)
# Not after a single letter (`C. 12 km`), unless something polite follows.
_SENTENCE_END = re.compile(
    rf"(?<=[.!?])[*$)\"]*\s+(?={_POLITE_START})|(?<=[.!?])(?<!\b[A-Za-z]\.)(?<!\b[DMS][rst]\.)(?<!Mrs\.)(?<!\.\.)"
    r"[*$)\"]*\s+(?![a-z])|(?<=[。！])(?=.)",
)
_LETTER = re.compile(r"\w")
_CALCULATION = re.compile("<<[^<>]*>>")  # as GSM8K's solutions have them
_DISPLAYS = {"$$": "$$", r"\[": r"\]"}
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
    * none: any text is well formatted, an empty one too. The answer is found as this module's docstring says.

    Args:
        text: The response. Trailing special tokens do not matter.
        format: Which of the three.
        tags: The markers of the thinking part and the answer part.
        prefilled_think: The prompt ends in the opening thinking tag, so the response must not repeat it.

    Returns:
        Both facts. A badly formatted response may still have an answer, unless its thinking part was never closed.
    """
    text = text.rstrip()
    markers = _MARKERS | {tags.think_close.lower(), tags.answer_close.lower()}
    while (token := _END_TOKEN.search(text, max(0, len(text) - 40))) and token["name"].lower() not in markers:
        text = text[: token.start()].rstrip()
    outside = outside_thinking(text, tags, starts_inside=prefilled_think)
    reason = ""
    if format == "think-answer":
        answer = last_tagged(outside, tags, known=False)
        box = boxed_answer(answer) if answer else None
        answer = box[0] if box else answer
        reason = _think_answer_fault(text, tags, prefilled_think=prefilled_think)
    elif format == "boxed":
        answer, _ = boxed_answer(outside) or (None, 0)
        reason = "" if answer else r"no complete \boxed{} with an answer outside the thinking part"
    else:
        answer = _free_answer(outside, tags)
    return ParsedResponse(well_formatted=not reason, answer=answer, reason=reason)


def answer_line(text: str) -> str:
    """The text after ####, A: or Answer: in the last line that starts with one of these. "" without such a line."""
    for line in reversed(text.splitlines()):
        match = _LINE.match(line)
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


def _free_answer(text: str, tags: Tags) -> str | None:
    tagged = last_tagged(text, tags, known=True)
    text = _CALCULATION.sub("", tagged or text)
    box = boxed_answer(text)
    found = _announced(text, since=box[1] if box else 0) or box
    if found and not is_taken_back(text, found[1]):
        return found[0]
    return _last_sentence(text[found[1] :]) if found else tagged or _last_sentence(text) or None


def _announced(text: str, since: int) -> tuple[str, int] | None:
    """The answer in the last line or sentence that announces one from a place on, and where that ends."""
    for match in _phrases(text, since):
        start = next((i for i in range(match.end(), len(text)) if text[i] not in " \t\n*:_"), len(text))
        if match[0][0] in "\"'" and (value := _JSON_VALUE.match(text, start)):
            answer, stop = value["text"] or value["bare"] or "", value.end()
        else:
            stop = _end_of_announcement(text, start)
            answer = without_mark_at_end(text[start:stop].strip(), spoken=match[0].rstrip()[-1:].isalpha())
        answer = answer.rstrip(" |") if match[0].endswith("|") else answer  # the last cell of a row
        if not _LETTER.search(answer):
            continue
        near = text[max(0, match.start() - 500, text.rfind("\n", 0, match.start()) + 1) : match.start()]
        if near and is_open(near):
            sentence = SENTENCE_MARK.split(near)[-1]
            return f"{sentence}{text[match.start() : stop]}".strip()[-MAX_ANSWER_CHARS:], stop
        return answer, stop
    return None


def _phrases(text: str, since: int) -> Iterator[re.Match[str]]:
    """The phrases that announce an answer, from the last to the first."""
    stop = len(text)
    while stop > since + 2:
        start = max(text.rfind("\n", since, stop) + 1, since)
        yield from reversed(list(_IN_SENTENCE.finditer(text, start, stop)))
        if phrase := _LINE.match(text, start, stop):
            yield phrase
        stop = start - 1


def _end_of_announcement(text: str, start: int) -> int:
    if closing := _DISPLAYS.get(text[start : start + 2]):
        end = text.find(closing, start + 2)
        return len(text) if end < 0 else end + 2
    line = text.find("\n", start)
    line = len(text) if line < 0 else line
    stop = min(line, start + MAX_ANSWER_CHARS)
    mark = SENTENCE_MARK.search(text, start, stop)
    sentence = mark and _SENTENCE_END.search(text, mark.end(), stop)
    return sentence.start() if sentence else line


def _last_sentence(text: str) -> str:
    """The value that the last sentence states. A last line or sentence that states none, as a whole."""
    text = text.strip()
    if end := _DISPLAY_END.search(text[-MAX_ANSWER_CHARS:]):
        opening = next(opening for opening, closing in _DISPLAYS.items() if closing == end["close"])
        return text[: text.rindex(end["close"])].rpartition(opening)[2].strip()
    lines = text.splitlines()
    while lines and (_POLITE.match(lines[-1]) or not _LETTER.search(lines[-1])):
        lines.pop()
    line = lines[-1].strip() if lines else text
    if len(line) > MAX_ANSWER_CHARS:
        return line
    sentences = [part for part in _SENTENCE_END.split(line) if _LETTER.search(part) and not _POLITE.match(part)]
    last = sentences[-1].strip() if sentences else line
    if not re.search("[A-Za-z]{2}", last):
        return last
    return (sentence_value(without_marks(last)) or last).replace(r"\$", "$").removesuffix(".")
