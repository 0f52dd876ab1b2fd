r"""Find the final answer of a response in any form, in linear time. A response is read in this order.

The first step that finds an answer decides.

1. Thinking: left out, so that a draft is never the answer. If it never closes, there is no answer.
2. Tag: the last tagged answer, <answer>7</answer> or <SOLUTION>7</SOLUTION>. It is read on like a response.
3. Box or announcement: the \boxed{} or the line that announces an answer (`Answer: 7`), whichever ends last. If the
   next words take it back (`Wait, that is wrong`), the rest is read by step 4.
4. Last sentence: the last one that is not polite: the last side of its equation, or its only value.
"""

import re
from collections.abc import Iterator

from gar.types import Tags
from gar.verify.boxes import MAX_ANSWER_CHARS, SENTENCE_MARK, boxed_answer, is_taken_back
from gar.verify.markers import last_tagged
from gar.verify.quantities import without_mark_at_end, without_marks
from gar.verify.sentences import sentence_value
from gar.verify.words import DATA, is_open

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
    r"(?!\W+(?:indeed )?(?:correct|verified|confirmed|reasonable)\b)"
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


def answer_line(text: str) -> str:
    """The text after ####, A: or Answer: in the last line that starts with one of these. "" without such a line."""
    for line in reversed(text.splitlines()):
        match = _LINE.match(line)
        if match and (answer := line[match.end() :].strip(" *")):
            return answer
    return ""


def free_answer(text: str, tags: Tags) -> str | None:
    """The final answer in the text outside the thinking part. None if there is none."""
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
