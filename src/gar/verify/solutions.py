"""Check the final answers of expert solutions against gold answers, as worker processes call it."""

from dataclasses import replace

from gar.types import Status
from gar.verify.answers import grade_answer, grade_exactly
from gar.verify.format import DEFAULT_TAGS, parse_response
from gar.verify.grades import Graded, unparsed

_ENDS_IN = "expert solution ends in "


def compared(solution: str, gold: str) -> Graded:
    """The verdict on the final answer of an expert solution. Its detail is a finding in words.

    Without a solution, the verdict on the answer 0, which is an error if the gold answer cannot be parsed.
    """
    answer = _final_answer(solution)
    return _worded(grade_answer(answer, gold) if answer else _NO_ANSWER, solution, answer, gold)


def compared_exactly(solution: str, gold: str) -> Graded | None:
    """As `compared`, if no parser is needed, else None."""
    answer = _final_answer(solution)
    graded = grade_exactly(answer, gold) if answer else _NO_ANSWER
    return graded and _worded(graded, solution, answer, gold)


def finding(graded: Graded, solution: str, gold: str) -> str:
    """The finding in words, also if a worker was killed, whose verdict has none."""
    if graded.detail.startswith(_ENDS_IN):
        return graded.detail
    return _worded(graded, solution, _final_answer(solution), gold).detail


_NO_ANSWER = unparsed("no answer found")


def _final_answer(solution: str) -> str:
    if not solution:
        return "0"
    format = "think-answer" if DEFAULT_TAGS.answer_open in solution else "none"
    return parse_response(solution, format=format).answer or ""


def _worded(graded: Graded, solution: str, answer: str, gold: str) -> Graded:
    if not solution or graded.status is Status.OK:
        return graded
    reason = f" ({graded.detail})" if graded.detail else ""
    return replace(graded, detail=f"{_ENDS_IN}{answer!r}, gold is {gold!r}{reason}")
