r"""The answer formats: how a prompt asks for one, how a response is read, and which part of the response is scored.

A new format is a function that reads it, a record in `FORMATS`, and its name in `gar.types.AnswerFormat`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from gar.types import ResponseFormat, Tags
from gar.verify.boxes import boxed_answer
from gar.verify.free import free_answer
from gar.verify.markers import last_tagged, outside_thinking
from gar.verify.words import DATA

DEFAULT_TAGS = Tags()
_MARKERS = {marker for part in ("thinking", "answer") for pair in DATA[part]["pairs"] for marker in pair}
_END_TOKEN = re.compile(
    r"\s*(?P<name><\|(?!/)[A-Za-z_0-9]{1,30}\|>|</s>|<eos>|<end_of_turn>|<[｜|]end▁of▁sentence[｜|]>)\Z"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedResponse:
    """A response's format and final answer: two separate facts.

    `answer` is None if there is none. `reason` is why a response is not well formatted, and empty if it is.

    Example: ParsedResponse(answer="7", reason="2 <think>, expected 1")
    """

    answer: str | None
    reason: str = ""

    @property
    def well_formatted(self) -> bool:
        """Whether the response has the format."""
        return not self.reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """An answer format. Texts are made with the markers of a run.

    Attributes:
        read: Parses a response without end tokens. Whether the prompt ends in the opening thinking tag comes last.
        instruction: The sentence that asks for it in a prompt. The wording is ours, the paper prints none.
        span: The part of a response that is scored unless `signal.span` is set.
        advice: What helps if few responses have it.
    """

    read: Callable[[str, Tags, bool], ParsedResponse]
    instruction: Callable[[Tags], str] = lambda tags: ""
    span: Literal["think", "response"] = "response"
    advice: Callable[[Tags], str] = lambda tags: ""


def parse_response(
    text: str, *, format: ResponseFormat = "think-answer", tags: Tags = DEFAULT_TAGS, prefilled_think: bool = False
) -> ParsedResponse:
    """Find out whether a response is well formatted, and its final answer. Takes linear time.

    Args:
        text: The response. Trailing special tokens do not matter.
        format: One of `FORMATS`.
        tags: The markers of the thinking part and the answer part.
        prefilled_think: The prompt ends in the opening thinking tag, so the response must not repeat it.

    Returns:
        Both facts. A badly formatted response may still have an answer, unless its thinking part was never closed.
    """
    text = text.rstrip()
    markers = _MARKERS | {tags.think_close.lower(), tags.answer_close.lower()}
    while (token := _END_TOKEN.search(text, max(0, len(text) - 40))) and token["name"].lower() not in markers:
        text = text[: token.start()].rstrip()
    return FORMATS[format].read(text, tags, prefilled_think)


def _read_think_answer(text: str, tags: Tags, prefilled_think: bool) -> ParsedResponse:
    """The strict format of the GAR paper [appendix C.5]: one thinking part, then one answer part that is not empty.

    Only white space may be outside. The answer is the last complete answer part, or the box within it.
    """
    answer = last_tagged(outside_thinking(text, tags, starts_inside=prefilled_think), tags, known=False)
    box = boxed_answer(answer) if answer else None
    fault = _think_answer_fault(text, tags, prefilled_think=prefilled_think)
    return ParsedResponse(answer=box[0] if box else answer, reason=fault)


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


def _read_boxed(text: str, tags: Tags, prefilled_think: bool) -> ParsedResponse:
    r"""A complete \boxed{} that is not empty, outside the thinking part. The last one is the answer."""
    box = boxed_answer(outside_thinking(text, tags, starts_inside=prefilled_think))
    if box is None:
        return ParsedResponse(answer=None, reason=r"no complete \boxed{} with an answer outside the thinking part")
    return ParsedResponse(answer=box[0])


def _read_any(text: str, tags: Tags, prefilled_think: bool) -> ParsedResponse:
    """Any text, an empty one too. `gar.verify.free` finds the answer."""
    return ParsedResponse(answer=free_answer(outside_thinking(text, tags, starts_inside=prefilled_think), tags))


FORMATS: Mapping[ResponseFormat, Format] = {
    "think-answer": Format(
        read=_read_think_answer,
        instruction=lambda tags: (
            f"First work the problem out between {tags.think_open} and {tags.think_close}. Then give the final answer "
            f"alone between {tags.answer_open} and {tags.answer_close}. Write nothing else:\n"
            f"{tags.think_open} your working {tags.think_close} "
            f"{tags.answer_open} final answer {tags.answer_close}"
        ),
        span="think",
        advice=lambda tags: (
            f"If the prompt ends in {tags.think_open}, a response must not open that again: choose --verify.format "
            "boxed, or a chat template that does not open the thinking part. For other markers: "
            "--verify.tags.think_open and its kin."
        ),
    ),
    "boxed": Format(
        read=_read_boxed,
        instruction=lambda tags: "Show your working, then give the final answer inside \\boxed{}.",
    ),
    "none": Format(read=_read_any),
}
"""The formats by name."""
