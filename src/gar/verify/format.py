"""Check the format of a response and find its final answer: two separate facts, both found in linear time.

The search for the answer leaves out the thinking part, so that a draft is never taken for the answer.
"""

import re
from dataclasses import dataclass

from gar.types import ResponseFormat, Tags
from gar.verify.sentences import changes_value, has_words, last_value, stated_value, without_full_stop

DEFAULT_TAGS = Tags()
MAX_ANSWER_CHARS = 2_000  # the longest of IMO-AnswerBench's 400 has under 200

# A box may be written \\boxed where a model escapes twice. `\\.` skips escaped braces such as \{.
_BRACES = re.compile(r"(?P<box>\\\\?(?:boxed|fbox) *\{)|\\.|[{}]", re.DOTALL)
_ANSWER_LINE = re.compile(r"(?:####|(?:final )?answer:|A:)\**[ \t]*(?P<answer>\S.*)", re.IGNORECASE)
_ANSWER_SENTENCE = re.compile(r"\banswer is:?[ \t]*(?P<answer>\S.*?)(?:\.(?=\s|$)|$)", re.IGNORECASE | re.MULTILINE)
_CLAUSE_END = re.compile(r"[.,:;!?\n]")
_SENTENCE_END = re.compile(r"(?<=[.!?]) +")
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
      nothing but white space outside. The answer is the last complete answer part, or the last \boxed{} within it.
    * boxed: well formatted is a last complete \boxed{} that is not empty, outside the thinking part. It is the answer.
    * none: any text is well formatted, an empty one too. The answer is the first that there is of these: the last
      \boxed{}. The last line that starts with ####, A: or Answer:. The last "answer is ...". The value that the last
      line or its last sentence states (`She has 78 left.`, `Each costs 39, so 2 * 39 = 78 dollars.`). That line or
      sentence itself, whole.

    Args:
        text: The response without its trailing special tokens.
        format: Which of the three.
        tags: The markers of the thinking part and the answer part.
        prefilled_think: The prompt ends in the opening thinking tag, so the response must not repeat it.

    Returns:
        Both facts. A badly formatted response may still have an answer: outside the thinking part or, if the thinking
        part was never closed, in the whole text.
    """
    find_answer = {"think-answer": _tagged_answer, "boxed": _boxed_answer, "none": _free_answer}[format]
    outside = _without_thinking(text, tags, starts_inside=prefilled_think, drop_unclosed=True)
    answer = find_answer(outside, tags)
    reason = ""
    if format == "think-answer":
        reason = _think_answer_fault(text, tags, prefilled_think=prefilled_think)
    elif format == "boxed" and not answer:
        reason = r"no complete \boxed{} with an answer outside the thinking part"
    if answer is None:
        answer = find_answer(_without_thinking(text, tags, starts_inside=prefilled_think, drop_unclosed=False), tags)
    return ParsedResponse(well_formatted=not reason, answer=answer, reason=reason)


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete \boxed{} or \fbox{}, the innermost of nested ones. None without one.

    >>> last_boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}}, \boxed{unfinished")
    '\\frac{1}{2}'
    """
    open_braces: list[int | None] = []  # where a box's content begins. None: another brace
    begin, end = -1, -1
    for match in _BRACES.finditer(text):
        if match["box"]:
            open_braces.append(match.end())
        elif match[0] == "{":
            open_braces.append(None)
        elif match[0] == "}" and open_braces:
            box = open_braces.pop()
            if box is not None and box > begin:
                begin, end = box, match.start()
    return None if begin < 0 else text[begin:end].strip()


def answer_line(text: str) -> str:
    """The text after ####, A: or Answer: in the last line that starts with one of these. "" without such a line."""
    for line in reversed(text.splitlines()):
        if match := _ANSWER_LINE.match(line.strip().lstrip("*")):
            return match["answer"].strip()
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


def _without_thinking(text: str, tags: Tags, *, starts_inside: bool, drop_unclosed: bool) -> str:
    """The text outside the thinking parts. A closing tag alone ends a part that began with the text."""
    head, closing, rest = text.partition(tags.think_close)
    if closing and tags.think_open not in head:
        text = rest
    elif starts_inside and not closing and drop_unclosed:
        return ""
    closed, _, tail = text.rpartition(tags.think_close)
    outside, *parts = closed.split(tags.think_open)
    after = [part.partition(tags.think_close)[2] for part in parts]
    return "".join([outside, *after, tail.partition(tags.think_open)[0] if drop_unclosed else tail])


def _tagged_answer(text: str, tags: Tags) -> str | None:
    last_close = text.rfind(tags.answer_close)
    opening = text.rfind(tags.answer_open, 0, last_close) if last_close >= 0 else -1
    if opening < 0:
        return None
    answer = text[opening + len(tags.answer_open) :].partition(tags.answer_close)[0].strip()
    return last_boxed(answer) or answer or None


def _boxed_answer(text: str, tags: Tags) -> str | None:
    return last_boxed(text) or None


def _free_answer(text: str, tags: Tags) -> str | None:
    return last_boxed(text) or answer_line(text) or _stated_answer(text) or _last_expression(text) or None


def _stated_answer(text: str) -> str:
    """What follows the last "answer is". The whole clause if it denies or hedges the answer."""
    matches = list(_ANSWER_SENTENCE.finditer(text))
    if not matches:
        return ""
    before = _CLAUSE_END.split(text[: matches[-1].start()][-MAX_ANSWER_CHARS:])[-1]
    return f"{before}{matches[-1][0]}".strip() if changes_value(before) else matches[-1]["answer"]


def _last_expression(text: str) -> str:
    """The value that the last line states, or else its last sentence. What states none is the answer as a whole."""
    text = _CALCULATION.sub("", text).strip()
    if end := _DISPLAY_END.search(text[-MAX_ANSWER_CHARS:]):
        opening = "$$" if end["close"] == "$$" else r"\["
        return text[: text.rindex(end["close"])].rpartition(opening)[2].strip()
    line = without_full_stop(text.rpartition("\n")[2].strip())
    if len(line) > MAX_ANSWER_CHARS or not has_words(line):
        return line
    last = _SENTENCE_END.split(line)[-1]
    values = (stated_value(line), stated_value(last), last_value(last))
    return next((value for value in values if value in text and value not in (line, last)), last)
