"""Data that is read without an error and is not what its author meant."""

import json
import re
from collections import Counter
from collections.abc import Sequence

from gar.types import Problem

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
