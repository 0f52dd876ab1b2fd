"""Texts of models for the page, split into plain text and formulas. No text is lost."""

import ast
import re
from typing import Any

from gar.report.maths import MAX_CHARACTERS, mathml
from gar.report.page import Part, ShownText
from gar.types import Prompt

_OPENING = re.compile(r"\\\(|\\\[|\$\$|\$|\\begin\{(align\*?|equation\*?|gather\*?)\}|\\boxed\{")
_CLOSING = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_MAX_TRIES = 800
"""Places of one text at which a formula is looked for. The rest of the text is shown as written."""
_MAX_BOXED = 300


class Formulas:
    """Every formula once: its source with delimiters, whether it is a display formula, and its tree."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._known: dict[str, int | None] = {}

    def index(self, source: str, latex: str, *, display: bool) -> int | None:
        """Index of the formula in `rows`; None where it cannot be drawn."""
        if source not in self._known:
            tree = mathml(latex, display=display)
            self._known[source] = None if tree is None else len(self.rows)
            if tree is not None:
                self.rows.append({"source": source, "display": display, "tree": tree})
        return self._known[source]


def shown_text(text: str, formulas: Formulas, *, max_characters: int) -> ShownText:
    """Split a text into plain parts and formulas. The parts and the formulas' sources join to the text."""
    kept = text[:max_characters]
    return ShownText(parts=_parts(kept, formulas), num_cut=len(text) - len(kept))


def _parts(text: str, formulas: Formulas) -> list[Part]:
    parts: list[Part] = []
    done = tries = start = 0
    while tries < _MAX_TRIES and (opening := _OPENING.search(text, start)):
        tries += 1
        start = opening.end()
        formula = _formula(text, opening)
        if formula is None:
            continue
        end, latex, display = formula
        index = formulas.index(text[opening.start() : end], latex, display=display)
        if index is None:
            continue
        if opening.start() > done:
            parts.append(text[done : opening.start()])
        parts.append(index)
        done = start = end
    if done < len(text):
        parts.append(text[done:])
    return parts


def _formula(text: str, opening: re.Match[str]) -> tuple[int, str, bool] | None:
    """End, LaTeX and display style of the formula that begins here, if any."""
    begin, mark = opening.end(), opening[0]
    limit = begin + MAX_CHARACTERS
    if mark == "$":
        return _dollars(text, begin)
    if mark == "\\boxed{":
        end = _closing_brace(text, begin, begin + _MAX_BOXED)
        return None if end is None else (end, text[opening.start() : end], False)
    closing = _CLOSING.get(mark, f"\\end{{{opening[1]}}}")
    end = text.find(closing, begin, limit)
    if end < 0:
        return None
    stop = end + len(closing)
    inner = text[opening.start() : stop] if opening[1] else text[begin:end]
    return stop, inner, mark != "\\("


def _dollars(text: str, begin: int) -> tuple[int, str, bool] | None:
    """Pandoc's rule, which leaves prices alone: no space inside the dollars, no digit after them, on one line."""
    end = text.find("$", begin, begin + MAX_CHARACTERS)
    while end > 0 and text[end - 1] == "\\":
        end = text.find("$", end + 1, begin + MAX_CHARACTERS)
    inner = text[begin:end] if end > begin else ""
    if not inner or inner[0].isspace() or inner[-1].isspace() or "\n" in inner or text[end + 1 : end + 2].isdigit():
        return None
    return end + 1, inner, False


def _closing_brace(text: str, begin: int, limit: int) -> int | None:
    depth = 1
    for position in range(begin, min(limit, len(text))):
        depth += (text[position] == "{") - (text[position] == "}")
        if not depth:
            return position + 1
    return None


def recorded_prompt(prompt: str) -> Prompt:
    """Parse chat messages, which are recorded as the text of a Python list; any other prompt is returned unchanged."""
    if not prompt.startswith("[{'"):
        return prompt
    try:
        messages = ast.literal_eval(prompt)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return prompt
    whole = isinstance(messages, list) and all(
        isinstance(message, dict) and {"role", "content"} <= message.keys() for message in messages
    )
    return messages if whole else prompt


def readable_prompt(prompt: str) -> str:
    """A recorded prompt for readers, with chat messages one below the other."""
    messages = recorded_prompt(prompt)
    if isinstance(messages, str):
        return messages
    return "\n\n".join(f"{message['role']}:\n{message['content']}" for message in messages)
