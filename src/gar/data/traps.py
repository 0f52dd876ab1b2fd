"""Data that is read without an error: not what its author meant, or answers that a response can hit by luck."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from gar.types import Problem
from gar.verify.choices import is_choice
from gar.verify.latex import plain_latex

_GUESSED_WORDS = frozenset({"yes", "no", "true", "false"})
_MAY_BE_GUESSED = re.compile(r"(?<![A-Za-z\\])(?:[A-J]|(?i:yes|no|true|false))(?![A-Za-z])")
"""Most answers are not worth a closer look, which takes 40 microseconds."""
_LONGEST_GUESS = 200
"""Characters. The text of a choice may follow its letter."""

_MARKS = re.compile(r"<<[^<>A-Za-z\n]+=[-$\d., ]+>>")
_TURN = re.compile(  # of ChatML, Llama, Gemma, Mistral
    r"<\|(?:im_(?:start|end)|(?:start|end)_header_id|eot_id|endoftext|user|assistant)\|>"
    r"|<(?:start|end)_of_turn>|\[/?INST\]|</s>"
)

MARKS = "calculator marks as in <<3*4=12>>, which no policy writes: remove them from the expert solution"
TURN = "markers of a rendered chat turn: the expert solution should be the text that a response has"
JSON_TEXT = "JSON text of chat messages, on which a policy would be trained literally: parse it into a list of messages"


def find_traps(problem: Problem) -> list[str]:
    """What looks wrong in a problem: some of `MARKS`, `TURN` and `JSON_TEXT`."""
    texts = [anchor.text for anchor in problem.anchors]
    found = {
        MARKS: any(map(_MARKS.search, texts)),
        TURN: any(map(_TURN.search, texts)),
        JSON_TEXT: isinstance(problem.prompt, str) and _is_messages(problem.prompt),
    }
    return [trap for trap, there in found.items() if there]


def trap_note(problems: Sequence[Problem]) -> str:
    """A sentence about the traps in some problems. "" if there are none."""
    counts = Counter(trap for problem in problems for trap in find_traps(problem))
    parts = [f"{count} {'has' if count == 1 else 'have'} {trap}" for trap, count in counts.items()]
    return f"Of {len(problems)} problems read, {'; '.join(parts)}." if parts else ""


def _is_messages(text: str) -> bool:
    if not text.lstrip().startswith("[") or '"role"' not in text:
        return False
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return bool(value) and all(isinstance(each, dict) and {"role", "content"} <= each.keys() for each in value)


@lru_cache(1024)  # a source has few of them
def is_guessable(answer: str) -> bool:
    """Whether a gold answer is one of few that a guess would try: the letter of a choice, yes or no, true or false.

    A verifier cannot tell a lucky answer from a derived one, and pays both.
    """
    if len(answer) > _LONGEST_GUESS or not _MAY_BE_GUESSED.search(answer):
        return False
    return is_choice(answer) or plain_latex(answer).strip(" .$").casefold() in _GUESSED_WORDS
